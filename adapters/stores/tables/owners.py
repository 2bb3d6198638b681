"""Owners as rows of a store, and whether each is still there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proctor.supervisor.ports.facts import Owner
from proctor.supervisor.ports.processes import is_gone

from .asking import CLAIMED, Dialect, Tables


def owner_columns(dialect: Dialect) -> str:
    """What `owner_of` takes."""
    return f"owners.epoch, owner_id, host, machine, pid, started, {dialect.until}"


def owner_of(dialect: Dialect, row: tuple[Any, ...]) -> Owner | None:
    """The owner that these columns hold, None where they are empty."""
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
    """The epochs of the owners that are gone and have left a run that is not over."""
    columns = owner_columns(tables.dialect)
    rows = tables.rows(f"SELECT {columns} FROM owners WHERE epoch IN (SELECT epoch FROM runs WHERE {CLAIMED})")
    owners = (owner_of(tables.dialect, row) for row in rows)
    return [owner.epoch for owner in owners if owner is not None and owner.gone]
