"""Owners as rows of a store's file, and whether each is still there.

A lease runs by the machine's clock since its boot, which all its processes share and nobody can set: a file of this
kind is used on one machine only. An owner from before the last boot is gone.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from proctor.supervisor.ports.facts import Owner
from proctor.supervisor.ports.processes import is_gone, machine

from ..schema.tables import CLAIMED

OWNER_COLUMNS = "owners.epoch, owner_id, host, machine, pid, started, until"


def lease_end(lease_s: float) -> float:
    """The end of a lease that begins now."""
    return time.monotonic() + lease_s


def owner_of(row: tuple[Any, ...]) -> Owner | None:
    """The owner that `OWNER_COLUMNS` hold, None where they are empty."""
    epoch, owner_id, host, where, pid, started, until = row
    if epoch is None:
        return None
    owner = Owner(epoch=epoch, owner_id=owner_id, host=host, machine=where, pid=pid, started=started)
    over = until is None or until <= time.monotonic() or bool(where and _boot(where) != _boot(machine()))
    return Owner(
        epoch=epoch,
        owner_id=owner_id,
        host=host,
        machine=where,
        pid=pid,
        started=started,
        gone=over or is_gone(owner),
    )


def find_owner(connection: sqlite3.Connection, epoch: int) -> Owner | None:
    """The owner of an epoch, None when there is none."""
    row = connection.execute(f"SELECT {OWNER_COLUMNS} FROM owners WHERE epoch = ?", (epoch,)).fetchone()
    return row and owner_of(row)


def gone_owners(connection: sqlite3.Connection) -> list[int]:
    """The epochs of the owners that are gone and have left a run that is not over."""
    sql = f"SELECT {OWNER_COLUMNS} FROM owners WHERE epoch IN (SELECT epoch FROM runs WHERE {CLAIMED})"
    owners = map(owner_of, connection.execute(sql))
    return [owner.epoch for owner in owners if owner is not None and owner.gone]


def _boot(where: str) -> str:
    return where.partition("/")[0]
