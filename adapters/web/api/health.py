"""Whether the store answers: for load balancers and service managers, which have no token."""

from __future__ import annotations

import anyio
from starlette.responses import Response

from proctor.supervisor.errors import StoreError
from proctor.supervisor.log import failure, logger
from proctor.supervisor.ports.adapters import Store

from ..guard import HEALTH, refused
from ..operations import ApiRequest, operation
from ..views import Healthy

KEPT_S = 1.0
"""Seconds for which a finding is given out again: whoever may ask without a token costs the store little."""
PATIENCE_S = 5.0
"""Seconds in which the store answers."""


class StoreHealth:
    """The health of a server's store, checked on request, with one query at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking = anyio.Lock()
        self._found = True
        self._until = float("-inf")

    async def good(self) -> bool:
        """Whether the store could be read, now or within the last second."""
        async with self._looking:
            if anyio.current_time() >= self._until:
                self._found = await self._look()
                self._until = anyio.current_time() + KEPT_S
            return self._found

    async def _look(self) -> bool:
        try:
            with anyio.fail_after(PATIENCE_S):
                await self._store.runs(limit=1)
        except (StoreError, TimeoutError) as error:
            if self._found:
                logger().warning("web.store_unreachable", **failure(error))
            return False
        return True


@operation("GET", HEALTH, Healthy, role=None)
async def health(request: ApiRequest) -> Healthy | Response:
    """Whether the store can be read."""
    store: StoreHealth = request.http.app.state.health
    if await store.good():
        return Healthy()
    return refused(503, "store_unreachable", "the store cannot be read now; the server's log says why")
