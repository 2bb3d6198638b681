"""Conditions as predicates, in words, and explained for one call.

Conditions fail closed. To allow (allow lists, evidence), there must be a value, every value must satisfy the
condition, and an ordering must hold against every operand. To deny, one value is enough, `not_*` also hold for a
missing path, and an ordering that cannot be made holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from ..values import paths, regexes
from ..values.json_values import container_of, is_number, is_unserializable, scalars_in, text_of
from ..values.model_base import UNCLEAR, has_unclear
from ..values.paths import inside, place_of
from .conditions import Condition, Expand, OutputRef, as_written, has_references, is_argument, is_output, output_ref
from .facts import Facts
from .operators import LENGTHS, MEMBERSHIPS, OPERATORS, ORDERINGS, Evidence, Reading, flat
from .shell_commands import NamedCommands, would_run


def is_within(directory: str, reading: Reading) -> Callable[[Any, Facts], bool]:
    """The test of one value: of a list or object in a call's input, each text in it is a path."""

    def is_inside(value: Any, facts: Facts) -> bool | None:
        if reading.loose and is_number(value):
            value = text_of(value)
        if type(value) is not str or (reading.loose and container_of(value) is not None):
            return None
        around = facts.directories[:2]
        return inside(place_of(value, *around), place_of(directory, *around))

    def holds(value: Any, facts: Facts) -> bool:
        found = [is_inside(each, facts) for each in (scalars_in(value) if reading.loose else (value,))]
        if reading.allows:
            return bool(found) and all(found)
        return any(each is not False for each in found)

    return holds


Predicate: TypeAlias = Callable[[Any, Facts], bool]
Forecast: TypeAlias = Callable[[Facts], bool]
Fold: TypeAlias = Callable[[Iterable[bool]], bool]


def _unknown(facts: Facts) -> bool:
    return False


class CompiledConditions(NamedTuple):
    """A list of conditions as one predicate on (document, facts).

    `dynamic`: it depends on the evaluated call or on remembered outputs, so it cannot be settled beforehand.
    `always` and `never` say, of what was remembered alone, that it holds for every document, or for none.
    One operator holds for a value, or, `whole`, for all values at once; `missing` is its answer to none.
    """

    holds: Predicate
    dynamic: bool = False
    outputs: tuple[OutputRef, ...] = ()
    always: Forecast = _unknown
    never: Forecast = _unknown
    missing: bool = False
    whole: bool = False


def compile_conditions(
    conditions: Sequence[Condition],
    *,
    allows: bool,
    loose: bool,
    ahead: bool = False,
    evidence: Evidence = None,
    expand: Expand = as_written,
) -> CompiledConditions:
    """One predicate for conditions that must all hold; `loose` for a call's input, typed for outputs.

    `ahead`: it holds where some call to come would have the arguments for it. `evidence`: see `Reading`.
    """
    return _all_of(conditions, Reading(allows, loose, ahead=ahead, evidence=evidence), expand)


def compile_when(conditions: Sequence[Condition]) -> Predicate:
    """The predicate on a run's context."""
    return _all_of(conditions, Reading(allows=False, loose=False, context=True), as_written).holds


def _all_of(conditions: Sequence[Condition], reading: Reading, expand: Expand) -> CompiledConditions:
    parts = [_compile(condition, reading, expand) for condition in conditions]
    predicates = [part.holds for part in parts]
    if len(predicates) == 1:
        holds = predicates[0]
    else:

        def holds(doc: Any, facts: Facts) -> bool:
            return all(predicate(doc, facts) for predicate in predicates)

    return _joined(holds, parts, always=all, never=any)


def _compile(condition: Condition, reading: Reading, expand: Expand) -> CompiledConditions:
    if condition.not_ is not UNSET:
        return _denied(condition.not_, reading, expand)
    if condition.any_of is not UNSET:
        parts = [_compile(inner, reading, expand) for inner in condition.any_of]
        return _joined(lambda doc, facts: any(part.holds(doc, facts) for part in parts), parts, always=any, never=all)
    assert condition.path is not UNSET
    values_at = paths.compile_path(condition.path, reading.loose)
    tests = [_test(name, operand, reading, expand) for name, operand in condition.operators()]
    need = 1 if condition.at_least is UNSET else condition.at_least
    holds = _quantified(values_at, tests, reading.allows, need)
    if reading.context:
        absent = all(operator == ("exists", False) for operator in condition.operators())
        holds = _null_is_absent(values_at, holds, absent)
    return _joined(holds, tests, always=all if need == 1 else lambda _: False, never=any)


def _joined(
    holds: Predicate, parts: Sequence[CompiledConditions], *, always: Fold, never: Fold
) -> CompiledConditions:
    """Parts as one: it always holds, or never, where so many of them do."""
    return CompiledConditions(
        holds,
        any(part.dynamic for part in parts),
        tuple(ref for part in parts for ref in part.outputs),
        always=lambda facts: always(part.always(facts) for part in parts),
        never=lambda facts: never(part.never(facts) for part in parts),
    )


def _null_is_absent(values_at: paths.PathFn, holds: Predicate, absent: bool) -> Predicate:
    return lambda doc, facts: absent if None in values_at(doc) else holds(doc, facts)


def _denied(conditions: Sequence[Condition], reading: Reading, expand: Expand) -> CompiledConditions:
    """Conditions that must not all hold: each is read the other way round, so that the whole leans as it should."""
    if reading.ahead and has_references(conditions):
        return CompiledConditions(lambda doc, facts: True, dynamic=True)
    inner = _all_of(conditions, reading._replace(allows=not reading.allows, ahead=False), expand)
    return CompiledConditions(
        lambda doc, facts: not inner.holds(doc, facts),
        inner.dynamic,
        inner.outputs,
        always=inner.never,
        never=inner.always,
    )


def _quantified(values_at: paths.PathFn, tests: list[CompiledConditions], allows: bool, need: int) -> Predicate:
    """A predicate of the values at a path: all must meet the tests where it allows, and at least `need` of them in
    any case.
    """
    each = [test.holds for test in tests if not test.whole]
    whole = [test.holds for test in tests if test.whole]
    missing = all(test.missing for test in tests)
    alone = each[0] if len(tests) == len(each) == need == 1 else None

    def holds(doc: Any, facts: Facts) -> bool:
        values = values_at(doc)
        if not values:
            return missing
        if alone is not None and len(values) == 1:
            return not allows if values[0] == UNCLEAR else alone(values[0], facts)
        if has_unclear(values):
            return not allows
        if not all(test(values, facts) for test in whole):
            return False
        meeting = [all(test(value, facts) for test in each) for value in values]
        return (not allows or all(meeting)) and sum(meeting) >= need

    return holds


def _test(name: str, operand: Any, reading: Reading, expand: Expand) -> CompiledConditions:
    """One operator with its operand, compiled to be asked of one value, or of all together (`whole`)."""
    if name in ("within", "runs"):
        return CompiledConditions((is_within if name == "within" else would_run)(operand, reading))
    operator = OPERATORS[name]
    negative = name in ("not_equals", "not_in")
    missing = (negative and not reading.allows) or (name == "exists" and operand is False)
    whole = name == "set_equals"
    if is_argument(operand):
        asks = _with_any_argument(name, reading) if reading.ahead else _with_argument(name, operand["arg"], reading)
        return CompiledConditions(asks, missing=missing, whole=whole, dynamic=True)
    if is_output(operand):
        return _of_outputs(name, output_ref(operand, expand), reading, missing)
    operands: tuple[Any, ...] = (operand,)
    if name == "regex":
        operands = (regexes.Regex(operand).found_in,)
    elif isinstance(operand, list | tuple) and (name in MEMBERSHIPS or name == "type"):
        operands = tuple(operand)
    return CompiledConditions(lambda value, facts: operator(value, operands, reading), missing=missing, whole=whole)


def _of_outputs(name: str, ref: OutputRef, reading: Reading, missing: bool) -> CompiledConditions:
    def useless(facts: Facts) -> bool:
        remembered = facts.outputs(ref)
        return remembered.empty or (remembered.full and (reading.allows or name == "not_in"))

    return CompiledConditions(
        _with_outputs(name, ref, reading),
        missing=missing,
        whole=name == "set_equals",
        dynamic=True,
        outputs=(ref,),
        always=useless if name == "not_in" and not reading.allows else _unknown,
        never=useless if name == "in" else _unknown,
    )


def _with_any_argument(name: str, reading: Reading) -> Predicate:
    """Whether there is an argument for which the operator would hold."""
    if name in LENGTHS:
        return lambda value, facts: OPERATORS["length_gte"](value, (0,), reading)
    if name in ORDERINGS:
        return lambda value, facts: OPERATORS["gte"](value, (value,), reading)
    return lambda value, facts: True


def _with_argument(name: str, path: str, reading: Reading) -> Predicate:
    operator = OPERATORS[name]
    values_at = paths.compile_path(path, loose=True)
    reading = reading._replace(output=not reading.loose)

    def holds(value: Any, facts: Facts) -> bool:
        operands = values_at(facts.input)
        if has_unclear(operands):
            return not reading.allows
        if name in MEMBERSHIPS:
            operands = flat(operands)
        elif name == "contains":
            operands = [*operands, *(text_of(operand) for operand in operands if is_number(operand))]
        return operator(value, operands, reading)

    return holds


def _with_outputs(name: str, ref: OutputRef, reading: Reading) -> Predicate:
    def holds(value: Any, facts: Facts) -> bool:
        remembered = facts.outputs(ref)
        if remembered.full:  # what was forgotten might have denied
            return not reading.allows
        if name == "set_equals":
            return OPERATORS[name](value, remembered.values(), reading)
        items = flat([value])
        if not items:  # an empty list is no value of theirs
            return name == "not_in" and not reading.allows
        return (all if reading.allows else any)(
            remembered.has(item, reading.loose) == (name == "in") for item in items
        )

    return holds


LONGEST_SHOWN = 60
_LISTED = 5
"""How many items of a list are named, if it has more than one more."""

_SAYS = {
    "equals": "is",
    "not_equals": "is not",
    "in": "is one of",
    "not_in": "is none of",
    "type": "is of type",
    "gt": "is more than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
    "regex": "matches",
    "contains": "contains",
    "length": "has length",
    "length_gte": "has a length of at least",
    "length_lte": "has a length of at most",
    "set_equals": "has just the values",
    "within": "is inside",
    "runs": "would run",
}


def condition_words(conditions: Sequence[Condition]) -> str:
    """Conditions that must all hold, as one phrase."""
    return " and ".join(_condition(condition) for condition in conditions)


def _condition(condition: Condition) -> str:
    if condition.any_of is not UNSET:
        return f"({' or '.join(_condition(inner) for inner in condition.any_of)})"
    if condition.not_ is not UNSET:
        return f"not ({condition_words(condition.not_)})"
    operators = " and ".join(_operator(name, operand) for name, operand in condition.operators())
    often = "" if condition.at_least in (UNSET, 1) else f" {condition.at_least} times"
    return f"`{condition.path}` {operators}{often}"


def _operator(name: str, operand: Any) -> str:
    if name == "exists":
        return "is given" if operand else "is not given"
    return f"{_SAYS[name]} {_operand(operand)}"


def _operand(operand: Any) -> str:
    if is_argument(operand):
        return f"the call's `{operand['arg']}`"
    if is_output(operand):
        ref = output_ref(operand)
        return f"what {' or '.join(f'`{tool}`' for tool in ref.tools)} returned at `{ref.path}`"
    if isinstance(operand, tuple):
        named = operand if len(operand) <= _LISTED + 1 else operand[:_LISTED]
        others = [f"one of {len(operand) - len(named)} others"] if len(named) < len(operand) else []
        return " or ".join([*map(_operand, named), *others])
    text = operand if isinstance(operand, str) else msgspec.json.encode(operand).decode()
    return f"`{text if len(text) <= LONGEST_SHOWN else f'{text[: LONGEST_SHOWN - 3]}...'}`"


def met(conditions: Sequence[Condition], document: Any, facts: Facts, expand: Expand) -> list[Condition]:
    """Conditions that deny and hold, without what does not: other alternatives, other commands of `runs`."""
    return [_met(condition, document, facts, expand) for condition in conditions]


def _met(condition: Condition, document: Any, facts: Facts, expand: Expand) -> Condition:
    def satisfied(each: Iterable[Condition]) -> list[Condition]:
        return [
            one for one in each
            if compile_conditions([one], allows=False, loose=True, expand=expand).holds(document, facts)
        ]  # fmt: skip

    if condition.any_of is not UNSET and (found := satisfied(condition.any_of)):
        return msgspec.structs.replace(condition, any_of=tuple(met(found, document, facts, expand)))
    if isinstance(condition.runs, tuple):
        alone = [one for one in condition.runs if satisfied([msgspec.structs.replace(condition, runs=one)])]
        return msgspec.structs.replace(condition, runs=tuple(alone)) if alone else condition
    return condition


def unlisted(conditions: Sequence[Condition], document: Any, facts: Facts) -> list[str]:
    """The commands of a call that `runs` in an allow list's conditions does not name."""
    found: list[str] = []
    for condition in conditions:
        if condition.any_of is not UNSET:
            found += unlisted(condition.any_of, document, facts)
        elif condition.runs is not UNSET and condition.path is not UNSET:
            lines = [each for each in paths.compile_path(condition.path, loose=True)(document) if type(each) is str]
            found += [one for line in lines for one in NamedCommands(condition.runs).unnamed(line, facts)]
    return list(dict.fromkeys(found))


LONGEST = 200
"""How many characters of a value are shown."""

MOST = 5
"""How many values of a path are shown."""


def explained(
    conditions: Sequence[Condition],
    document: Any,
    facts: Facts,
    *,
    allows: bool,
    loose: bool,
    expand: Expand = as_written,
) -> list[dict[str, Any]]:
    """Each condition in words, whether it holds, and the values it looked at."""
    found: list[dict[str, Any]] = []
    for condition in conditions:
        holds = compile_conditions([condition], allows=allows, loose=loose, expand=expand).holds(document, facts)
        shown = [condition] if allows or not holds else met([condition], document, facts, expand)
        entry: dict[str, Any] = {"condition": condition_words(shown), "holds": holds}
        if condition.path is not UNSET:
            values = [_shown(value) for value in paths.compile_path(condition.path, loose)(document)[:MOST]]
            entry["value"] = values[0] if len(values) == 1 else values
        found.append(entry)
    return found


def _shown(value: Any) -> Any:
    """A value as it is, if it is short; else the beginning of its text."""
    if is_unserializable(value):
        return "a value that cannot be written down"
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}..."
