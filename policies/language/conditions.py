"""Conditions on JSON, as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from ..values import paths
from ..values.complaints import Complaint
from .operands import is_argument, is_output, operand_problems
from .operators import ALL_OPERATORS
from .record import Positive, Record

JsonType: TypeAlias = Literal["string", "number", "integer", "boolean", "null", "array", "object"]


class Condition(Record, frozen=True):
    """`{path: $.amount, lte: 5000}`: all operators given must hold; or `{any_of: [...]}`, or `{not: [...]}`.

    An operand may be `{arg: path}` (of the call being judged) or `{output_of: [tools], path: path}` (what
    earlier calls returned; with `in`, `not_in` and `set_equals`).

    Attributes:
        path: Where the value is: `$.amount`, `$.to[*]`.
        any_of: One of these conditions is enough; stands alone.
        not_: Not all of these hold; stands alone.
        equals: The value is this one.
        not_equals: It is another.
        in_: It is one of these.
        not_in: It is none of these.
        exists: There is a value, or there is none.
        type: It is of this JSON type, or of one of these.
        gt: It is more.
        gte: It is as much or more.
        lt: It is less.
        lte: It is as much or less.
        regex: The text matches somewhere.
        contains: The text has this in it; the list has this element.
        length: The text, list or object has this length.
        length_gte: It has this length or more.
        length_lte: It has this length or less.
        set_equals: The list has these elements, in any order.
        within: The path is this directory, or inside it.
        runs: The command line would run one of these.
        at_least: So many values must meet it; all of them to permit and one to refuse if not given.
    """

    path: str | UnsetType = UNSET
    any_of: tuple[Condition, ...] | UnsetType = UNSET
    not_: tuple[Condition, ...] | UnsetType = field(default=UNSET, name="not")
    equals: Any = UNSET
    not_equals: Any = UNSET
    in_: Any = field(default=UNSET, name="in")
    not_in: Any = UNSET
    exists: bool | UnsetType = UNSET
    type: JsonType | tuple[JsonType, ...] | UnsetType = UNSET
    gt: Any = UNSET
    gte: Any = UNSET
    lt: Any = UNSET
    lte: Any = UNSET
    regex: str | UnsetType = UNSET
    contains: Any = UNSET
    length: Any = UNSET
    length_gte: Any = UNSET
    length_lte: Any = UNSET
    set_equals: Any = UNSET
    within: str | UnsetType = UNSET
    runs: str | tuple[str, ...] | UnsetType = UNSET
    at_least: Positive | UnsetType = UNSET

    def operators(self) -> Iterator[tuple[str, Any]]:
        """The operators given, as (written name, operand)."""
        for name in ALL_OPERATORS:
            operand = getattr(self, "in_" if name == "in" else name)
            if operand is not UNSET:
                yield name, operand

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        given = list(self.operators())
        if self.any_of is not UNSET or self.not_ is not UNSET:
            yield from self._group_problems(given)
            return
        if self.path is UNSET:
            yield (), "a condition needs a `path`"
        else:
            yield from paths.problems(self.path, ("path",))
        if not given:
            yield (), f"a condition needs an operator: one of {', '.join(ALL_OPERATORS)}"
        for name, operand in given:
            yield from operand_problems(name, operand)

    def _group_problems(self, given: Sequence[tuple[str, Any]]) -> Iterator[Complaint]:
        name, inner = ("any_of", self.any_of) if self.any_of is not UNSET else ("not", self.not_)
        if self.any_of is not UNSET and self.not_ is not UNSET:
            yield (), "`any_of` and `not` are two conditions: write one inside the other, or both in the list"
        if self.path is not UNSET or given or self.at_least is not UNSET:
            yield (), f"`{name}` must be alone: put path and operators inside its list"
        if not inner:
            yield (name,), f"`{name}` lists no condition"

    @property
    def inner(self) -> tuple[Condition, ...]:
        """The conditions inside `any_of` or `not`."""
        return tuple(c for group in (self.any_of, self.not_) if group is not UNSET for c in group)


def all_in(conditions: Sequence[Condition]) -> Iterator[Condition]:
    """The conditions, and those inside them."""
    for condition in conditions:
        yield condition
        yield from all_in(condition.inner)


def paths_in(conditions: Sequence[Condition]) -> Iterator[str]:
    """The paths that conditions look at."""
    return (condition.path for condition in all_in(conditions) if condition.path is not UNSET)


def has_references(conditions: Sequence[Condition]) -> bool:
    """Whether any operand refers to the call being judged or to outputs."""
    return any(is_argument(operand) or is_output(operand) for c in all_in(conditions) for _, operand in c.operators())


def has_arguments(conditions: Sequence[Condition]) -> bool:
    """Whether any operand is of the call being judged."""
    return any(is_argument(operand) for c in all_in(conditions) for _, operand in c.operators())


def when_problems(conditions: Sequence[Condition]) -> Iterator[Complaint]:
    """What is wrong with a `when`: it is settled before there is a call, so it can refer to none."""
    if has_references(conditions):
        yield ("when",), "`when` is settled when the run starts: no `arg` and no `output_of` here"
