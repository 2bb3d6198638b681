"""A supervisor as the owner of its runs: it registers with the store, renews its lease, and leaves.

While it is there it also ends the runs that others have lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from proctor.policies.values.foreign import error_text

from ..errors import StoreError
from ..ports.adapters import Remains, Store
from ..ports.facts import Owner
from ..ports.processes import enter, leave
from ..run import orphans
from ..run.foreign.isolation import contained
from ..run.orphans import LEAVE_S, end_lost_runs

LEASE_S = orphans.LEASE_S
RENEW_S = LEASE_S / 3
RETRY_S = 1.0


class Ownership:
    """One owner, registered when it is first needed; `registered` is called with it then. `remains` ends what a lost
    run left running on this machine. `store_id` is the store's id, from then on.
    """

    def __init__(self, store: Store, log: Any, *, registered: Callable[[Owner], None]) -> None:
        self._store = store
        self._log = log
        self._registered = registered
        self.remains: Remains | None = None
        self.store_id = ""
        self._owner: Owner | None = None
        self._registering = anyio.Lock()
        self._reaping = anyio.Lock()

    async def owner(self) -> Owner:
        """The owner this is, with its epoch. Raises StoreError."""
        async with self._registering:
            if self._owner is None:
                self.store_id = (await self._store.place()).store_id
                owner = enter()
                try:
                    self._owner = await self._store.register(owner, lease_s=LEASE_S)
                except BaseException:
                    leave(owner)
                    raise
                self._registered(self._owner)
        return self._owner

    async def keep(self) -> None:
        """Renew the lease, and end what other owners have lost, until cancelled."""
        pause = RENEW_S
        while True:
            if pause == RENEW_S:
                await self.reap()
            await anyio.sleep(pause)
            pause = RENEW_S if await self._renewed() else RETRY_S

    async def leave(self) -> None:
        """Let the lease go: what is not over is lost at once. A store that fails does not concern the caller."""
        if self._owner is None:
            return
        owner, self._owner = self._owner, None
        leave(owner)
        with anyio.move_on_after(LEAVE_S, shield=True), suppress(Exception):
            await contained(lambda: self._store.release(owner.epoch))

    async def reap(self) -> None:
        """End what other owners have lost, and return when it is ended, whoever of this supervisor began it."""
        async with self._reaping:
            if self._owner is None:
                return
            try:
                ended = await contained(lambda: end_lost_runs(self._store, remains=self.remains))
            except Exception as error:  # it must not end any run here
                self._log.warning("lost_runs.not_ended", error=error_text(error))
                return
            for run in ended:
                self._log.warning("run.lost", run_id=run.run_id, session_id=run.session_id, owner=str(run.owner))

    async def _renewed(self) -> bool:
        if self._owner is None:
            return True
        epoch = self._owner.epoch
        try:
            await contained(lambda: self._store.renew(epoch, lease_s=LEASE_S))
        except Exception as error:  # the lease still runs for a while; appends say when it does not
            self._log.warning("lease.not_renewed", error=error_text(error))
            return isinstance(error, StoreError) and error.kind in ("closed", "fenced")
        return True
