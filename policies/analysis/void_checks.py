"""Checks of what is written to no effect: what no value matches, what is compared as something else than it looks
like, names that nothing uses.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec
from msgspec import UNSET

from ..events.run_context import RunContext
from ..language.conditions import AMOUNT, Condition, as_written, crossed_bounds, is_output
from ..language.operators import MEMBERSHIPS, ORDERINGS
from ..language.predicates import condition_words
from ..language.selectors import ToolWhere
from ..policy import Policy, members_of, virtual_tools_of
from ..reading.schema import did_you_mean
from ..rules.machine import listed
from ..stack.clauses import Clause, clauses_of, scope_of
from ..stack.merge import checked_stack
from ..values.automata import texts_apart
from ..values.globs import glob_problems, matcher
from ..values.json_values import number_of
from ..values.paths import keys_of
from .findings import PreflightFinding, finding
from .values import EQUALITIES

_PATTERNS = frozenset({"regex", "match", "extract", "user_said", "prior_output_regex"})
"""The fields that hold a regular expression."""
_TYPED = re.compile(r"(?i)true|false|null|none|~")
_TEXTS_OF_CONTEXT = frozenset(RunContext.__struct_fields__) - {"labels", "metadata"}


def void_findings(policy: Policy) -> Iterator[PreflightFinding]:
    """What is written in a stack to no effect, as far as a person should know who writes it."""
    stack = checked_stack(policy)
    clauses, members = clauses_of(stack), members_of(stack)
    for n, member in enumerate(members):
        yield from _unmatched((member.name, ""), [*virtual_tools_of(member)])
        yield from _unused(member, [clause for clause in clauses if clause.member == n])
    scopes = [(member.name, _given_names(member)) for member in members]
    for clause in clauses:
        yield from _of_another(clause, scopes)
        yield from _unmatched(clause, clause.record)
        yield from _taken_literally(clause)
        yield from _contradictory(clause)
        yield from _of_context(clause)


def _records_in(value: Any) -> Iterator[msgspec.Struct]:
    """The records in a value, however deep."""
    if isinstance(value, msgspec.Struct):
        yield value
        value = [getattr(value, name) for name in value.__struct_fields__]
    for each in value if isinstance(value, tuple | list) else ():
        yield from _records_in(each)


def _unmatched(about: Clause | tuple[str, str], records: Any) -> Iterator[PreflightFinding]:
    fields = ((name, getattr(each, name)) for each in _records_in(records) for name in each.__struct_fields__)
    patterns = dict.fromkeys(value for name, value in fields if name in _PATTERNS and isinstance(value, str))
    unmatched = [pattern for pattern in patterns if _matches_nothing(pattern)]
    if unmatched:
        yield finding(
            "matches_nothing",
            about,
            f"no text has a match of {listed(unmatched)}",
            witness=unmatched,
            suggestion="`^` is the start of a text and `$` its end; `\\$` is the sign itself",
        )


def _matches_nothing(pattern: str) -> bool:
    apart = texts_apart((pattern,))
    return apart.complete and (True,) not in apart.texts


def _unused(member: Policy, clauses: Sequence[Clause]) -> Iterator[PreflightFinding]:
    """Aliases and virtual tools of a policy that none of its clauses names."""
    scope = scope_of([member])
    written = [name for clause in clauses for each in _records_in(clause.record) for name in _names_in(each)]
    written += [name for tools in member.aliases.values() for name in tools]
    written += [virtual.tool for virtual in virtual_tools_of(member)]
    named, meant = {name.casefold() for name in written}, matcher(scope.expand(written))
    unused = [alias for alias in member.aliases if alias.casefold() not in named]
    unused += [virtual.name for virtual in scope.virtual_names if not meant(virtual.name)]
    if unused:
        yield finding(
            "unused_name",
            (member.name, ""),
            f"nothing in this policy names {listed(unused)}",
            witness=unused,
            suggestion="name it in a rule, or remove it",
        )


def _given_names(member: Policy) -> frozenset[str]:
    """The names that a policy gives tools, folded."""
    return frozenset(name.casefold() for name in (*member.aliases, *(each.as_ for each in virtual_tools_of(member))))


def _of_another(clause: Clause, scopes: Sequence[tuple[str, frozenset[str]]]) -> Iterator[PreflightFinding]:
    """Names that another policy of the stack gives tools: here they are tools' own names, if any."""
    _, own = scopes[clause.member]
    foreign = [name for name in dict.fromkeys(clause.names) if name.casefold() not in own]
    for policy, names in scopes:
        found = [name for name in foreign if name.casefold() in names]
        if found:
            yield finding(
                "foreign_name",
                clause,
                f"{listed(found)} is an alias or a virtual tool of `{policy}`, and applies only there",
                witness=found,
                suggestion="define it in this policy, too",
            )


def _names_in(record: msgspec.Struct) -> Iterator[str]:
    """The texts of a record's own fields that can be tools' names."""
    for field in record.__struct_fields__:
        value = getattr(record, field)
        for each in value if isinstance(value, tuple | list) else [value]:
            if isinstance(each, str) and not any(glob_problems(each)):
                yield each
            elif is_output(each):
                yield from as_written(each["output_of"])


def _taken_literally(clause: Clause) -> Iterator[PreflightFinding]:
    """Operands that are texts or whole lists to the comparison, and look meant as something else."""
    conditions = [each for each in _records_in(clause.record) if isinstance(each, Condition)]
    compared = [(name, operand) for each in conditions for name, operand in each.operators() if name in EQUALITIES]
    lists = [operand for name, operand in compared if name not in MEMBERSHIPS and isinstance(operand, list)]
    values = [each for name, operand in compared for each in (operand if name in MEMBERSHIPS else [operand])]
    texts = [each for each in values if isinstance(each, str) and _looks_like_path_or_amount(each)]
    if texts:
        yield finding(
            "taken_literally",
            clause,
            f"{listed(dict.fromkeys(texts))} is compared as a text",
            witness=texts,
            suggestion="write `true`, `null` and numbers without quotes and marks, another input as `{arg: $.other}`",
        )
    if any(lists):
        yield finding(
            "taken_literally",
            clause,
            f"{', '.join(map(_shown, filter(None, lists)))} is compared with a whole list, in this order",
            suggestion="`in` compares with each of them, `set_equals` with all in any order",
        )


def _contradictory(clause: Clause) -> Iterator[PreflightFinding]:
    """Two conditions that bound one value so that there is none."""
    wheres = [each.where for each in _records_in(clause.record) if isinstance(each, ToolWhere)]
    for one, other in (pair for where in wheres for pair in combinations(where, 2)):
        bounds = {**dict(one.operators()), **dict(other.operators())}
        if one.path == other.path and not str(one.path).endswith("]") and any(crossed_bounds(bounds)):
            yield finding(
                "contradictory_conditions",
                clause,
                f"no value meets these conditions, only what cannot be ordered: {condition_words([one, other])}",
                suggestion="write `any_of` for alternatives",
            )


def _looks_like_path_or_amount(text: str) -> bool:
    if text.startswith("$."):
        return bool(keys_of(text))
    return bool(_TYPED.fullmatch(text) or AMOUNT.fullmatch(text)) and number_of(text, loose=True) is None


def _of_context(clause: Clause) -> Iterator[PreflightFinding]:
    """Conditions on the run's context that ask for a field it never has, or compare a text with something else."""
    conditions = [each for each in _records_in(clause.record.when) if isinstance(each, Condition)]
    read = [(each.path, keys_of(each.path), each.operators()) for each in conditions if each.path is not UNSET]
    unknown = [path for path, keys, _ in read if keys and keys[0] not in RunContext.__struct_fields__]
    if unknown:
        yield finding(
            "context_missing",
            clause,
            f"its `when` asks for {listed(dict.fromkeys(unknown))}, which no run's context has: no run can start",
            witness=unknown,
            suggestion=_of_context_instead(unknown),
        )
    for path, keys, operators in read:
        for name, operand in operators if len(keys) == 1 and keys[0] in _TEXTS_OF_CONTEXT else ():
            values = operand if name in MEMBERSHIPS else [operand]
            if name in EQUALITIES | ORDERINGS and values and not any(isinstance(v, str | None) for v in values):
                yield finding(
                    "taken_literally",
                    clause,
                    f"`{path}` of a run's context is a text, and never {_shown(operand)}",
                    suggestion="write the text in quotes",
                )


def _of_context_instead(paths: Sequence[str]) -> str:
    """What to write in place of these paths: the nearest field of the first, or where fields of one's own are."""
    hint = did_you_mean(str(keys_of(paths[0])[0]), RunContext.__struct_fields__)
    return hint or "anything of your own is in `$.labels.NAME` or `$.metadata.NAME`"


def _shown(value: Any) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"
