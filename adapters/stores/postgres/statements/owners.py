"""Owners as rows of a store, and whether each is still there.

A lease runs by the server's clock, the one that all machines share.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proctor.supervisor.ports.facts import Owner
from proctor.supervisor.ports.processes import is_gone

from ..connection.connecting import Connection
from ..schema import CLAIMED

OWNER_COLUMNS = (
    "owners.epoch, owner_id, host, machine, pid, started, (until IS NULL OR until <= clock_timestamp()) AS over"
)
LEASE_END = "clock_timestamp() + make_interval(secs => %s)"


def owner_of(row: tuple[Any, ...]) -> Owner | None:
    """The owner that `OWNER_COLUMNS` hold, None where they are empty."""
    epoch, owner_id, host, where, pid, started, over = row
    if epoch is None:
        return None
    owner = Owner(epoch=epoch, owner_id=owner_id, host=host, machine=where, pid=pid, started=started)
    return replace(owner, gone=over or is_gone(owner))


def find_owner(connection: Connection, epoch: int) -> Owner | None:
    """The owner of an epoch, None when there is none."""
    sql = f"SELECT {OWNER_COLUMNS} FROM owners WHERE epoch = %s"
    row = connection.execute(sql, (epoch,), binary=True).fetchone()
    return row and owner_of(row)


def gone_owners(connection: Connection) -> list[int]:
    """The epochs of the owners that are gone and have left a run that is not over."""
    sql = f"SELECT {OWNER_COLUMNS} FROM owners WHERE epoch IN (SELECT epoch FROM runs WHERE {CLAIMED})"
    owners = map(owner_of, connection.execute(sql, binary=True))
    return [owner.epoch for owner in owners if owner is not None and owner.gone]
