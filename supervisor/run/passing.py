"""An owner who passes by: it ends what others have left, and runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from ..ports.adapters import Store
from ..ports.facts import ENDING, Owner
from ..ports.processes import enter, leave
from .foreign.isolation import contained

LEASE_S = 30.0
"""How long after its last sign of life an owner counts as gone, where nobody can see its process."""
LEAVE_S = 5.0
"""How long a store may take to let an owner go."""


@asynccontextmanager
async def passing_owner(store: Store) -> AsyncIterator[Owner]:
    """An owner for as long as it takes. A start that finds its session claimed by one waits. Raises StoreError."""
    owner = enter(ENDING)
    try:
        owner = await store.register(owner, lease_s=LEASE_S)
        yield owner
    finally:
        leave(owner)
        if owner.epoch:
            with anyio.move_on_after(LEAVE_S, shield=True), suppress(Exception):
                await contained(lambda: store.release(owner.epoch))
