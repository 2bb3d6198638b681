"""The operators of conditions: each on one value and the operands it may be compared with.

Operands are alternatives (`{arg: $.ids[*]}` gives several); an ordering must hold against every one where the
condition allows, and against one where it denies, and an ordering that cannot be made leans to denial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from ..values.json_values import as_compared, container_of, is_number, number_of, order, same, text_of, texts_in

Evidence: TypeAlias = Literal["call", "success"] | None
"""What shows to a rule that something was done: that it was called, or only that it succeeded."""


class Reading(NamedTuple):
    """How a condition is read: does it allow something, and is its document a call's (loose) input.

    `output`: the document is what a tool returned and the operands are of a call's input.
    `ahead`: the evaluated call is yet to come, so its arguments are whatever would do.
    `context`: the document is a run's context, where None says that there is none.
    `evidence`: a call that meets it shows that each command it runs does its work, or its success that of each.
    """

    allows: bool
    loose: bool
    output: bool = False
    ahead: bool = False
    context: bool = False
    evidence: Evidence = None

    def same(self, value: Any, operand: Any) -> bool:
        """Whether a value of the document equals an operand."""
        if self.output:
            operand = as_compared(value, operand)
        return same(value, operand, self.loose)

    def order(self, value: Any, operand: Any) -> int | None:
        """-1, 0 or 1 as the value is below, at or above the operand; None where no ordering can be made."""
        return order(value, self._as_number(operand), self.loose)

    def length(self, operand: Any) -> Any:
        """The number that an operand of a length means: a number itself, or the length of a text or list."""
        operand = self._as_number(operand)
        return operand if is_number(operand) else _length(operand)

    def _as_number(self, operand: Any) -> Any:
        number = number_of(operand, loose=True) if self.output or self.loose else None
        return operand if number is None else number


Operator: TypeAlias = Callable[[Any, Sequence[Any], Reading], bool]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "number": is_number,
    "integer": lambda v: is_number(v) and float(v).is_integer(),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "array": lambda v: isinstance(v, list | tuple),
    "object": lambda v: isinstance(v, dict),
}


def _equals(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    return any(reading.same(value, operand) for operand in operands)


def _not_equals(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    if not operands:
        return not reading.allows
    return not _equals(value, operands, reading)


def _ordering(holds: Callable[[int], bool]) -> Operator:
    def test(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
        return _compares([reading.order(value, operand) for operand in operands], holds, reading)

    return test


def _compares(orders: list[int | None], holds: Callable[[int], bool], reading: Reading) -> bool:
    """Whether all of these orders are such; where a match denies, whether one is or may be."""
    results = [None if order is None else holds(order) for order in orders]
    if reading.allows:
        return bool(results) and all(results)
    return not results or any(result is None or result for result in results)


def _contains(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    for operand in operands:
        if isinstance(value, list | tuple) and any(reading.same(item, operand) for item in value):
            return True
        if isinstance(operand, str) and _texts_hold(value, lambda text, o=operand: o in text, reading):  # type: ignore[misc]
            return True
        if reading.loose and is_number(operand) and same(value, operand, loose=True):
            return True
    return False


def _texts_hold(value: Any, found: Callable[[str], bool], reading: Reading) -> bool:
    if isinstance(value, str):
        inner = container_of(value) if reading.loose and not reading.allows else None
        return found(value) or (inner is not None and any(found(text) for text in texts_in(inner)))
    if not reading.loose:
        return False
    texts = texts_in(value)
    return bool(texts) and (all if reading.allows else any)(found(text) for text in texts)


def _matches(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    return _texts_hold(value, operands[0], reading)


def _of_type(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    return any(_TYPES[name](value) for name in operands)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | tuple | dict) else None


def _length_is(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
    length = _length(text_of(value) if reading.loose and not reading.allows and is_number(value) else value)
    return length is not None and any(length == reading.length(operand) for operand in operands)


def _length_ordering(holds: Callable[[int], bool]) -> Operator:
    def test(value: Any, operands: Sequence[Any], reading: Reading) -> bool:
        length = _length(value)
        return _compares(
            [order(length, reading.length(operand), loose=False) for operand in operands], holds, reading
        )

    return test


def _set_equals(values: Any, operands: Sequence[Any], reading: Reading) -> bool:
    left, right = flat(values), flat(operands)
    return all(_equals(v, right, reading) for v in left) and all(any(reading.same(v, o) for v in left) for o in right)


def flat(values: Sequence[Any]) -> list[Any]:
    """Values with the elements of lists in their place."""
    return [item for v in values for item in (v if isinstance(v, list | tuple) else (v,))]


OPERATORS: dict[str, Operator] = {
    "equals": _equals,
    "not_equals": _not_equals,
    "in": _equals,
    "not_in": _not_equals,
    "exists": lambda value, operands, reading: bool(operands[0]),
    "type": _of_type,
    "gt": _ordering(lambda o: o > 0),
    "gte": _ordering(lambda o: o >= 0),
    "lt": _ordering(lambda o: o < 0),
    "lte": _ordering(lambda o: o <= 0),
    "regex": _matches,
    "contains": _contains,
    "length": _length_is,
    "length_gte": _length_ordering(lambda o: o >= 0),
    "length_lte": _length_ordering(lambda o: o <= 0),
    "set_equals": _set_equals,
}
"""Every operator by its written name, in the order they are documented."""

ALL_OPERATORS = (*OPERATORS, "within", "runs")
"""Every operator by its written name; the last two look at a value as a path and as a command line."""

SIGNS = {"==": "equals", "=": "equals", "!=": "not_equals", "<=": "lte", "<": "lt", ">=": "gte", ">": "gt"}
"""The operators that are written as a sign elsewhere; a sign stands before the one that it begins with."""
ORDERINGS = frozenset({"gt", "gte", "lt", "lte"})
LENGTHS = frozenset({"length", "length_gte", "length_lte"})
MEMBERSHIPS = frozenset({"in", "not_in", "set_equals"})
"""The operators that take a list, and may refer to `output_of`."""
