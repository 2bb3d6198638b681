"""Digests of rows that no event tells of: an audit finds what was changed or removed past the store."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from .transactions import Dialect

Row: TypeAlias = tuple[Any, ...]
RUN = "created_at, created_ms, spec, after"
"""What `run_digest` takes of a row, between the ids and whose it is."""
BUDGETS = "budgets"
"""The name of the seal over the rows of all budgets."""
_BYTES = 32
_encode = msgspec.json.Encoder().encode


def row_digest(*values: Any) -> bytes:
    """The digest of some values."""
    return sha256(_encode(values)).digest()


def run_digest(run_id: str, session_id: str, row: Row, epoch: int, attempts: int) -> bytes:
    """The digest of what a run was created with, and whose it is."""
    created_at, created_ms, spec, after = row
    return row_digest(
        "run", run_id, session_id, created_at, created_ms, sha256(spec).hexdigest(), after, epoch, attempts
    )


def owner_row(dialect: Dialect) -> str:
    """The fields of an owner that its digest covers."""
    return f"epoch, owner_id, host, machine, pid, started, {dialect.until_value}"


def summed(before: bytes, *, added: Iterable[Row] = (), removed: Iterable[Row] = ()) -> bytes:
    """A sum of the digests of rows, whatever their order, after some came and some went."""
    total = int.from_bytes(before, "big")
    total += sum(int.from_bytes(row_digest(*row), "big") for row in added)
    total -= sum(int.from_bytes(row_digest(*row), "big") for row in removed)
    return int(total % 2 ** (8 * _BYTES)).to_bytes(_BYTES, "big")


def part_row(claim: Row, part: int, used: float) -> Row:
    """The fields of a budget window's part that its seal covers."""
    return ("part", *claim, int(part), float(used))


def share_row(claim: Row, run_id: str, epoch: int, used: float, held: float) -> Row:
    """A run's row in a budget."""
    return ("share", *claim, run_id, int(epoch), float(used), float(held))


def budget_row(claim: Row, most: float) -> Row:
    """A budget's own line."""
    return ("budget", *claim, float(most))
