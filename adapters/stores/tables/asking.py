"""How statements reach a database, and what each database says in its own way.

A statement for every database has `?` where a value goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

Condition: TypeAlias = tuple[Any, ...]
"""A condition on rows, and the values of its places."""

CLAIMED = "epoch != 0 AND status IN ('created', 'running')"
"""What an owner has claimed and is not over, as the index of those knows it."""
WAITING = "state = 'requested' AND NOT ran"
"""What waits for a person, as the index of those knows it."""
PAGE_BYTES = 1024 * 1024
"""A page of rows ends with the one that reaches so many bytes."""
PAGE_ROWS = 512


class Dialect(NamedTuple):
    """What a database says in its own way; the texts are SQL."""

    until: str
    """Of an owner's row: what `is_over` takes."""
    is_over: Callable[[Any, str], bool]
    """Whether a lease is over, by its `until` and the machine of its owner."""
    lease_end: str
    """The end of a lease that begins now."""
    lease: Callable[[float], float]
    """The value of its place, of a length in seconds."""
    among: Callable[[str, Sequence[Any]], Condition]
    """A value is one of several."""
    begins: Callable[[str, str], Condition]
    """A text begins with another."""
    labelled: Callable[[Mapping[str, str]], Iterable[Condition]]
    """A run has these labels."""
    last_instruction: str
    """The number of the latest instruction, 0 where there is none."""
    claim: str
    """The columns of a budget's claim."""
    until_value: str
    """The end of an owner's lease, exact."""
    in_log: str = "JOIN"
    """How the events of all sessions, in their order, are joined to their sessions."""
    lock: str = ""
    """At the end of what asks for rows that are then changed."""


class Tables(Protocol):
    """A connection to the tables of a store, for one thread at a time; or a transaction on it."""

    @property
    def dialect(self) -> Dialect: ...

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement gives."""


class Pages(Tables, Protocol):
    """A connection that gives many rows in parts."""

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, as many as make a page."""
