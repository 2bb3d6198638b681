"""What every written record shares, and the types of its fields."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from ..values.complaints import Complaint

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]


class Base(msgspec.Struct, frozen=True):
    """What every written record shares: lists given in Python become the tuples the record holds."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, list | dict) and name not in _open_fields(type(self)):
                msgspec.structs.force_setattr(self, name, _tuples(value))


@functools.cache
def _open_fields(cls: type) -> frozenset[str]:
    """The fields that hold any JSON value, where a list is a list."""
    hints = get_type_hints(cls).items()
    return frozenset(name for name, hint in hints if hint is Any or get_args(hint)[-1:] == (Any,))


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class Record(Base, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A written record: unknown keys are errors."""

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        return iter(())
