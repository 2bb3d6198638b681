"""The base of every written record, and the types of its fields."""

import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from ..errors import PolicyError

Where: TypeAlias = tuple[str | int, ...]
"""A place within a record: field names and list positions."""

Issue: TypeAlias = tuple[Where, str]
"""A problem, with its place."""

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]


class Base(msgspec.Struct, frozen=True):
    """The base of every written record: lists given in Python become the tuples the record holds. Raises PolicyError:
    a field that takes one of a few words has another.
    """

    main_key: ClassVar[str] = ""
    """The key that a text in the record's place is likely meant under, if no key is required."""

    def __post_init__(self) -> None:
        for name, words in _words(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in words:
                allowed = ", ".join(f"`{word}`" for word in words)
                raise PolicyError(f"`{value}` is no {name} of `{type(self).__name__}`: use one of {allowed}")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, list | dict) and name not in _open_fields(type(self)):
                msgspec.structs.force_setattr(self, name, _tuples(value))


@functools.cache
def _open_fields(cls: type) -> frozenset[str]:
    """The fields that hold any JSON value, where a list is a list."""
    hints = get_type_hints(cls).items()
    return frozenset(name for name, hint in hints if hint is Any or get_args(hint)[-1:] == (Any,))


@functools.cache
def _words(cls: type) -> dict[str, tuple[str, ...]]:
    """The fields whose text is one of a few words, with the words."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        words = [word for option in options if get_origin(option) is Literal for word in get_args(option)]
        if words and str not in options:
            found[name] = tuple(words)
    return found


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class Record(Base, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A written record: unknown keys are errors."""

    def problems(self) -> Iterator[Issue]:
        """Problems that the field types alone do not rule out."""
        return iter(())


def circle(leads_to: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names of which each leads to the next and the last to the first, which ends it; empty if there is no circle."""
    done: set[str] = set()
    for start in leads_to:
        path = {start: iter(leads_to[start])}
        while path:
            name = next(reversed(path))
            follower = next((each for each in path[name] if each not in done), None)
            if follower is None:
                done.add(name)
                del path[name]
            elif follower in path:
                names = list(path)
                return (*names[names.index(follower) :], follower)
            else:
                path[follower] = iter(leads_to[follower])
    return ()


class Aliased(dict[str, Any]):
    """An object as it came; paths also find the values of `also`, by the names there.

    A name that the object has itself gives its own value and those.
    """

    __slots__ = ("also",)

    also: Mapping[str, list[Any]]


def aliased(members: Mapping[str, Any], also: Mapping[str, list[Any]]) -> Mapping[str, Any]:
    """An object whose values are also found by the names of `also`; itself where there are none."""
    if not also:
        return members
    made = Aliased(members)
    made.also = also
    return made


def also_of(value: Any) -> Mapping[str, list[Any]]:
    """Other lists of values that stand beside a value, by name."""
    return value.also if type(value) is Aliased else {}


UNCLEAR: Final = "(not known: not all of the call's input is understood)"
"""Stands for unknown values: no allow matches it, every other condition does."""


def has_unclear(values: Sequence[Any]) -> bool:
    """Whether there may be more values than these."""
    return UNCLEAR in values
