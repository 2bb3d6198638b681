"""Every kind of rule in full: its descriptions, and the messages about wrong fields.

PROCTOR_TRANSCRIPTS=write pytest tests/policies/rules/test_rules_in_full.py rewrites both transcripts.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proctor.policies import PolicyError, parse_policies

PATH = Path(__file__).with_name("rules_in_full.yaml")
WRONG: list[Any] = [None, "", [], -1, 0, 3, "(", "$.[", ["a", "a"], {"x": 1}, [{"tool": ""}], {"tool": "("}, True]
LEFT_OUT = object()
OF_TYPES = re.compile("expected |unknown |must not be empty|`[a-z]+` is missing")
"""The start of a message about a field of a wrong type; one converter writes it for all."""
CLAUSES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("clauses.yaml").read_text())
UNSAID = re.compile(r", \w+=(UNSET|None|\(\)|False)(?=[,)])")


def variants(clause: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The clause with one field, or a nested one, missing or wrong."""
    for path in paths(clause):
        for value in (LEFT_OUT, *WRONG):
            shown = "-" if value is LEFT_OUT else json.dumps(value)
            yield f"{'.'.join(map(str, path))} {shown}", with_value_at(clause, path, value)


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values, up to five levels deep."""
    if above:
        yield above
    if len(above) < 5 and isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*above, key))


def with_value_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at that path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = with_value_at(value[path[0]], path[1:], new)
    if copy[path[0]] is LEFT_OUT:
        del copy[path[0]]
    return copy


def messages_about(clause: dict[str, Any]) -> str:
    """The problems that the rule reports, with their paths; empty if the clause is valid."""
    try:
        parse_policies({"version": 1, "name": "p", "on_violation": "deny", "rules": [clause]})
    except PolicyError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return "; ".join(line for line in lines if line and not OF_TYPES.match(line))
    return ""


def descriptions_of(clause: dict[str, Any]) -> dict[str, str]:
    """A rule's descriptions, for preflight, diagrams and people."""
    (policy,) = parse_policies({"version": 1, "name": "p", "rules": [clause]})
    (rule,) = policy.rules
    profile = rule.profile()
    roles = {
        name: value for name in ("restricts", "evidence", "others", "allows") if (value := getattr(profile, name))
    }
    named = {
        "words": profile.words,
        "owes": profile.obligation,
        "roles": roles,
        "of_other_calls": profile.unevaluated,
    }
    listed = {
        "inputs": rule.inputs(),
        "caps": profile.caps,
        "outline": profile.abstraction,
        "drawing": profile.drawing,
    }
    parts = named | {name: [*values] for name, values in listed.items()}
    return {name: UNSAID.sub("", str(value)) for name, value in parts.items() if value not in (None, (), [], {})}


def compared(part: str, found: dict[str, Any]) -> None:
    """They equal the transcript."""
    written = yaml.safe_load(PATH.read_text()) if PATH.exists() else {}
    if os.environ.get("PROCTOR_TRANSCRIPTS") == "write":
        written[part] = found
        PATH.write_text(yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=10_000))

    assert found == written[part]


def test_the_descriptions_of_a_rule_match_the_transcript() -> None:
    """Its texts, its roles, its obligations and maxima, its abstraction and its drawing."""
    compared("of itself", {name: descriptions_of(clause) for name, clause in CLAUSES["whole"].items()})


def test_messages_about_a_wrong_field_match_the_transcript() -> None:
    """The path and what is expected. Of identical texts for one kind of rule, only the first is listed."""
    found: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for name, clause in CLAUSES["whole"].items():
        for how, wrong in variants(clause):
            messages = messages_about(wrong)
            if messages and (clause["type"], messages) not in seen:
                seen.add((clause["type"], messages))
                found.setdefault(name, {})[how] = messages
    compared("wrong fields", found)


def test_messages_about_conflicting_fields_match_the_transcript() -> None:
    """Each field has its type."""
    compared("wrong together", {name: messages_about(clause) for name, clause in CLAUSES["together"].items()})
