"""The rows of one append, and what rows are read with: the SQL of a database, its connections, the owner of a row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies.events import EVENT_TYPES, Event, at_ms
from proctor.supervisor.ports.processes import is_gone
from proctor.supervisor.ports.stored_types import Owner
from proctor.supervisor.store.records import RunDelta, Unit, UnitPart, unit_start

from .schema import CLAIMED

Columns: TypeAlias = tuple[str | None, str, int | None, int, int]
"""A row's event_id, type and at, then its event's offset among the bytes of its part, and its length."""
_encode = msgspec.json.Encoder().encode
_TAGS = {kind: tag for tag, kind in EVENT_TYPES.items()}


class PartRows(NamedTuple):
    """The rows of a part of a unit, as they are and as JSON."""

    columns: list[Columns]
    encoded: bytes


class Batch(Unit):
    """A unit with the seq at which it was first appended (see `unit_start`) and the rows of its parts, which are made
    in the caller's event loop, before the writing thread gets them.
    """

    __slots__ = ("rows", "unit_start")

    def __init__(self, events: Sequence[Event], next_seq: Mapping[str, int] | None = None) -> None:
        super().__init__(events, next_seq)
        self.unit_start = unit_start(events) if events else 0
        self.rows = [_rows_of(part) for part in self.parts]


def _rows_of(part: UnitPart) -> PartRows:
    columns: list[Columns] = []
    at = moment = None
    offset = 1
    for event, data in zip(part.events, part.records, strict=True):
        if event.at is not at:
            at = event.at
            moment = None if at is None else at_ms(at)
        kind = _TAGS.get(type(event)) or event.type
        columns.append((event.event_id or None, kind, moment, offset, len(data)))
        offset += len(data)
    return PartRows(columns, _encode(columns))


Inserted: TypeAlias = tuple[int, UnitPart, PartRows, list[bytes]]
"""A part to insert: the key of its session, its rows, and the digests of its records."""


class Gathered:
    """The inserts of one transaction, and the changes in the rows of runs."""

    def __init__(self) -> None:
        self._parts: list[Inserted] = []
        self._deltas: dict[str, RunDelta] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, key: int, part: UnitPart, rows: PartRows, digests: list[bytes]) -> None:
        """Add the rows of a part."""
        self._parts.append((key, part, rows, digests))
        if part.delta is not None and part.run_id:
            before = self._deltas.get(part.run_id)
            self._deltas[part.run_id] = part.delta if before is None else before.then(part.delta)

    def of_run(self, run_id: str, start: int) -> list[tuple[int, bytes]]:
        """The seqs and records of a run that are not inserted yet, from a seq on."""
        parts = [part for _, part, _, _ in self._parts if part.run_id == run_id]
        rows = ((seq, data) for part in parts for seq, data in enumerate(part.records, part.seq))
        return [row for row in rows if row[0] >= start]

    def clear(self) -> None:
        """Drop all rows."""
        self._parts.clear()
        self._deltas.clear()


Condition: TypeAlias = tuple[Any, ...]
"""A condition on rows, and its placeholders' values."""


def all_of(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """The conjunction, and its placeholders' values."""
    wanted = " AND ".join(text for text, *_ in conditions) or "TRUE"
    return wanted, [value for _, *values in conditions for value in values]


PAGE_BYTES = 1024 * 1024
"""A page of rows ends once it has this many bytes."""
PAGE_ROWS = 512


class Dialect(NamedTuple):
    """A database's own SQL, as text."""

    until: str
    """Of an owner's row: what `is_over` takes."""
    is_over: Callable[[Any, str], bool]
    """Whether a lease is over, by its `until` and the machine of its owner."""
    lease_end: str
    """The end of a lease that begins now."""
    lease: Callable[[float], float]
    """Its placeholder, for a length in seconds."""
    among: Callable[[str, Sequence[Any]], Condition]
    """A value is one of several."""
    begins: Callable[[str, str], Condition]
    """A text begins with another."""
    labelled: Callable[[Mapping[str, str]], Iterable[Condition]]
    """A run has these labels."""
    last_command: str
    """The number of the latest command, 0 where there is none."""
    until_value: str
    """The end of an owner's lease, exact."""
    in_log: str = "JOIN"
    """How the events of all sessions, in their order, are joined to their sessions."""
    lock: str = ""
    """The end of a query whose rows are changed afterwards."""


class Tables(Protocol):
    """A connection to the tables of a store, for one thread at a time; or a transaction on it."""

    @property
    def dialect(self) -> Dialect: ...

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement."""


class Pages(Tables, Protocol):
    """A connection that reads rows in pages."""

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, up to one page."""


def owner_columns(dialect: Dialect) -> str:
    """The columns that `owner_of` takes."""
    return f"owners.epoch, owner_id, host, machine, pid, started, {dialect.until}"


def owner_row(dialect: Dialect) -> str:
    """The fields of an owner that its digest covers."""
    return f"epoch, owner_id, host, machine, pid, started, {dialect.until_value}"


def owner_of(dialect: Dialect, row: tuple[Any, ...]) -> Owner | None:
    """The owner in these columns, None where they are empty."""
    epoch, owner_id, host, where, pid, started, until = row
    if epoch is None:
        return None
    owner = Owner(epoch=epoch, owner_id=owner_id, host=host, machine=where, pid=pid, started=started)
    return replace(owner, gone=dialect.is_over(until, where) or is_gone(owner))


def find_owner(tables: Tables, epoch: int) -> Owner | None:
    """The owner of an epoch, None when there is none."""
    rows = tables.rows(f"SELECT {owner_columns(tables.dialect)} FROM owners WHERE epoch = ?", (epoch,))
    return owner_of(tables.dialect, rows[0]) if rows else None


def gone_owners(tables: Tables) -> list[int]:
    """The epochs of the lost owners whose runs have not ended."""
    columns = owner_columns(tables.dialect)
    rows = tables.rows(f"SELECT {columns} FROM owners WHERE epoch IN (SELECT epoch FROM runs WHERE {CLAIMED})")
    owners = (owner_of(tables.dialect, row) for row in rows)
    return [owner.epoch for owner in owners if owner is not None and owner.gone]
