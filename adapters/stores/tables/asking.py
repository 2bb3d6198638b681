"""How statements reach a database, and what each database says in its own way.

A statement for every database has `?` where a value goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from proctor.policies.stream.events import Event
from proctor.supervisor.ports.facts import RunInfo
from proctor.supervisor.ports.orders import Instruction

from ..row_changes import KnownSession
from .batch import Batch

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


class Transaction(Tables, Protocol):
    """What is written as one unit."""

    def hold(self, session_ids: Iterable[str] = (), run_ids: Iterable[str] = (), *, make: bool = True) -> None:
        """Have these sessions and runs to itself, as they are now; with `make`, sessions that are not there are
        made.
        """

    def hold_budgets(self) -> None:
        """Have all budgets to itself, as they are now."""

    def session(self, session_id: str) -> KnownSession | None:
        """A session that it has, None where it is not there."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Write something now; the rows that this gives."""

    def write(
        self, sql: str, values: Sequence[Any] = (), *, in_order: bool = False, runs: Sequence[str] = ()
    ) -> None:
        """Have something written by the end; `in_order`, after the events and by nobody else at the same time. `runs`
        are those whose rows it changes.
        """

    def append(self, batch: Batch, *, look_up: bool, epoch: int = 0) -> list[Event]:
        """Have events written; returns them as they will be stored."""

    def check_new(self, run: RunInfo) -> None:
        """Raises StoreError for a run that has no ids, or whose id is taken."""

    def insert_run(self, run: RunInfo, epoch: int = 0) -> None:
        """Have a new run written, claimed by that epoch. Raises StoreError for what cannot be stored."""

    def instruct(self, instruction: Instruction) -> None:
        """Have an instruction written."""

    def instructed(self) -> int:
        """The number of the instruction that it writes; it writes nothing more."""

    @property
    def last_instruction(self) -> int:
        """The number of the latest instruction when it began."""
