"""`--context`: rules see the values as typed, and a `when` on a missing value is reported."""

import json
import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import click
import pytest

from proctor.adapters.cli.app import app
from proctor.adapters.cli.options import read_context


@pytest.mark.parametrize(
    "text", ["1.10", "true", "True", "null", "0007", "1e3", '"quoted"', "[1]", "{}", "", "a=b", "a:=b"]
)
@pytest.mark.parametrize("key", ["tenant", "user", "user_role", "labels.env", "metadata.team"])
def test_a_value_is_the_text_that_was_typed(key: str, text: str) -> None:
    """Whatever type it could have."""
    assert at(key, f"{key}={text}") == text


@pytest.mark.parametrize(("typed", "value"), [
    ("1.10", 1.1),
    ("true", True),
    ("null", None),
    ('"1.10"', "1.10"),
    ('["a", 2]', ["a", 2]),
    ('{"a": 1}', {"a": 1}),
])  # fmt: skip
def test_metadata_may_be_json_with_an_explicit_operator(typed: str, value: Any) -> None:
    """The operator is `:=`. It can also set a field to null, which satisfies only `exists: false`."""
    assert at("metadata.x", f"metadata.x:={typed}") == value
    if not isinstance(value, (float, list, dict, bool)):
        assert at("tenant", f"tenant:={typed}") == value


@pytest.mark.parametrize(("given", "message"), [
    ("tenant", "is not KEY=VALUE"),
    ("=x", "is not KEY=VALUE"),
    (":=1", "is not KEY=VALUE"),
    ("tenant:=1.10", "`tenant` is text"),
    ("labels.env:=1", "`labels.env` is text"),
    ("metadata.x:=1.1.0", "what follows `:=` is not JSON"),
    (f"metadata.x:={'[' * 9_999}", "what follows `:=` is nested too deeply"),
    ("tennant=x", "`tenant`"),
    ("labels=x", "`labels.NAME`"),
    ("labels.=x", "`labels.NAME`"),
])  # fmt: skip
def test_an_invalid_context_is_an_error(given: str, message: str) -> None:
    """With the position and the correct form."""
    with pytest.raises(click.UsageError) as raised:
        read_context([given])

    assert f"`--context {given.partition('=')[0].removesuffix(':')}" in str(raised.value)
    assert message in str(raised.value)


@pytest.mark.parametrize("given", [
    ("tenant=red", "tenant=blue"),
    ("tenant=red", "tenant:=null"),
    ("labels.env=a", "labels.env=a"),
    ("metadata.n=1", "metadata.n:=1"),
])  # fmt: skip
def test_a_key_may_be_given_only_once(given: tuple[str, str]) -> None:
    """The later value does not replace the earlier silently."""
    with pytest.raises(click.UsageError, match="is given twice"):
        read_context(given)


def commands(group: Any = app, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, with its names."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def options_of(command: click.Command) -> list[click.Option]:
    """Its options with one value."""
    each = [one for one in command.params if isinstance(one, click.Option)]
    return [one for one in each if not one.multiple and (not one.is_flag or one.name == "scope")]


@pytest.mark.parametrize(("words", "command"), [*commands()], ids=str)
def test_no_option_silently_overrides_another(words: tuple[str, ...], command: Any) -> None:
    """Each option with one value, given twice; each pair of alternatives, given together. Nothing is read
    or written.
    """
    options = options_of(command)
    for option in (each for each in options if not each.is_flag):
        twice = (option.opts[-1], "1", option.opts[-1], "2")
        with pytest.raises(click.UsageError, match=f"`{max(option.opts, key=len)}` is given twice; give it once"):
            app.main([*words, *twice], standalone_mode=False)
    for one, other in permutations((each.opts[0] for each in options if each.is_flag), 2):
        with pytest.raises(click.UsageError, match=f"`{one}` and `{other}` are given; give one of them"):
            app.main([*words, one, other], standalone_mode=False)


@pytest.mark.parametrize(("words", "command"), [*commands()], ids=str)
def test_an_option_with_an_empty_value_does_not_mean_its_default(words: tuple[str, ...], command: Any) -> None:
    """As with an unset variable: `prune --store "$STORE"` would prune another store than intended."""
    for each in (each for each in command.params if not getattr(each, "is_flag", False)):
        if each.type is click.UNPROCESSED:  # the arguments of another program
            continue
        named = max(each.opts, key=len) if isinstance(each, click.Option) else re.escape(each.metavar or "")
        given = [each.opts[-1], ""] if isinstance(each, click.Option) else ["x"] * command.params.index(each) + [""]
        with pytest.raises(click.UsageError, match=f"`.*{named}.*` is given with an empty value"):
            app.main([*words, *given], standalone_mode=False)


def test_a_rule_that_compares_text_compares_the_typed_text(cli: Any, place: Any) -> None:
    """`1.10` is not `1.1`."""
    place.joinpath("when.yaml").write_text(
        "name: w\non_violation: deny\nrules:\n"
        "  - {type: blocklist, id: r, tools: [bash], when: [{path: $.tenant, equals: '1.10'}]}\n"
    )
    run = ("run", "--adapter", "shell", "--policy", "when.yaml", "--json", "echo hello")

    assert cli(*run, "--context", "tenant=1.10").code == 1
    assert cli(*run, "--context", "tenant=1.1").code == 0


def at(key: str, given: str) -> Any:
    """The value at a key of a context with these arguments."""
    found: Any = read_context([given])
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


LACKING = """
name: p
tool_rules: [{deny: [bash], id: no-bash, action: ACTION, when: [{path: $.user_role, not_equals: admin}]}]
"""
SESSION = {"id": "s", "events": [{"type": "tool_call", "id": "1", "name": "read", "input": {}}]}
TESTS = """\
policies: [p.yaml]
tests:
  - {name: one, calls: [{tool: read}]}
  - {name: two, context: {user_role: dev}, calls: [{tool: read}]}
"""


@pytest.mark.parametrize("action", ["warn", "deny", "cancel"])
def test_a_rule_with_missing_context_is_not_evaluated(cli: Any, place: Path, action: str) -> None:
    """With any action, nobody knows whether it applies. `eval`, `narrow` and `test` report it and exit with 1."""
    place.joinpath("p.yaml").write_text(LACKING.replace("ACTION", action))
    place.joinpath("s.jsonl").write_text(json.dumps(SESSION) + "\n")
    place.joinpath("t.yaml").write_text(TESTS)
    judged = ("--policy", "p.yaml", "--format", "sessions", "s.jsonl")
    programs, people = cli("eval", *judged, "--json"), cli("eval", *judged)
    (line,), shown = programs.lines, " ".join(people.out.split())
    narrowed, tested = cli("narrow", *judged), cli("test", "t.yaml")

    assert [answer.code for answer in (programs, people, narrowed, tested)] == [1, 1, 1, 1]
    assert (line["unjudged"], line["passed"]) == (["no-bash"], False)
    assert line["violations"][0]["details"]["missing_context"] == ["$.user_role"]
    assert "could not be evaluated" in shown
    assert "$.user_role" in shown
    assert "suggestion: give the context that it asks for: `--context NAME=VALUE`" in shown
    assert "`no-bash`" in narrowed.err
    assert "$.user_role" in tested.out
    assert "1 passed, 1 failed" in tested.out
    assert [cli(command, *judged, "--context", "user_role=dev").code for command in ("eval", "narrow")] == [0, 0]
