"""Digests and seals of rows: whoever changes a row by other SQL leaves a digest or a seal that does not match it.

A run's row has its digest. The rows of a list, such as all runs, have one seal: the exclusive or of their marks, each
of which is a digest's beginning.
"""

from collections.abc import Iterable
from functools import reduce
from hashlib import sha256
from operator import xor
from typing import Any, TypeAlias

import msgspec

from .schema import COMMANDS

_encode = msgspec.json.Encoder().encode
Row: TypeAlias = tuple[Any, ...]
RUN = "number, runs.provider, created_at, created_ms, spec, after"
"""The columns of a row that `run_digest` takes, between the ids and the owner."""
NUMBERED = "UPDATE runs SET seal = sha256(?::bytea || convert_to(number::text, 'UTF8')) WHERE run_id = ?"
"""Computes the digest of a run's seal where only the database knows its number."""


def row_digest(*values: Any) -> bytes:
    """The digest of some values."""
    return sha256(_encode(values)).digest()


def run_seal(run_id: str, session_id: str, row: Row, epoch: int, attempts: int) -> bytes:
    """The digest of a run as it was created, and of its owner; `row` begins with its provider."""
    provider, created_at, created_ms, spec, after = row
    what = sha256(spec).hexdigest()
    return row_digest("run", run_id, session_id, provider, created_at, created_ms, what, after, epoch, attempts)


def run_digest(run_id: str, session_id: str, row: Row, epoch: int, attempts: int) -> bytes:
    """The same with the number of its row, which `row` begins with."""
    number, *rest = row
    return _numbered(run_seal(run_id, session_id, tuple(rest), epoch, attempts), number)


def _numbered(seal: bytes, number: int) -> bytes:
    """A digest that PostgreSQL can compute when it alone knows the number."""
    return sha256(seal + str(number).encode()).digest()


def mark(*values: Any) -> int:
    """The mark of a row with these values."""
    return _mark(row_digest(*values))


def _mark(digest: bytes) -> int:
    return int.from_bytes(digest[:7], "big")


def run_mark(run_id: str) -> int:
    """The mark of a run that is in the list."""
    return mark("run", run_id)


def owner_mark(epoch: int) -> int:
    """The mark of an owner that has registered."""
    return mark("owner", epoch)


def note_mark(session_id: str, name: str, data: bytes) -> int:
    """The mark of a hook's note beside a session, by its name."""
    return mark("note", session_id, name, sha256(data).hexdigest())


def store_mark(store_id: str) -> int:
    """The mark of the store."""
    return mark("store", store_id)


def command_mark(number: int, data: bytes) -> int:
    """The mark of a command."""
    return _mark(_numbered(sha256(data).digest(), number))


COMMANDED = f"""UPDATE seals SET marks = marks # (SELECT
    ('x' || left(encode(sha256(sha256(data) || convert_to(number::text, 'UTF8')), 'hex'), 14))::bit(56)::bigint
    FROM instructions ORDER BY number DESC LIMIT 1) WHERE name = '{COMMANDS}'"""
"""Marks the latest command where only the database knows its number."""


def marked(seal: str, *marks: int) -> tuple[str, tuple[Any, ...]]:
    """The statement that adds rows of these marks to a seal, or removes them: a seal is the exclusive or of all its
    rows' marks, so that a row changed by other SQL no longer matches it.
    """
    return f"{_MARKED.format(table='seals')} WHERE name = ?", (*_twice(marks), seal)


def budget_marked(counter: int, *marks: int) -> tuple[str, tuple[Any, ...]]:
    """The same for the rows of one budget."""
    return f"{_MARKED.format(table='budgets')} WHERE counter = ?", (*_twice(marks), counter)


_MARKED = "UPDATE {table} SET marks = (marks | ?) - (marks & ?)"


def _twice(marks: Iterable[int]) -> tuple[int, int]:
    total = all_marks(marks)
    return total, total


def all_marks(marks: Iterable[int]) -> int:
    """The seal over these marks."""
    return reduce(xor, marks, 0)
