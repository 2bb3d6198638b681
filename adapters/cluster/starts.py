"""How a worker starts a run: it claims it before it makes anything of it, so that it counts whatever that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor.adapters.agents.registry import adapter_named
from proctor.adapters.kit.processes.remains import end_remains
from proctor.policies.policy import Policy
from proctor.supervisor import RunHandle, RunInfo, StartsBlockedError, StoreError, Supervisor, UsageError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapters import Adapter, Store
from proctor.supervisor.run.orphans import fail_untried, withdraw
from proctor.supervisor.store.take_over import ordered_to_end

from .queue import Waiting, is_free, spec_of

ATTEMPTS: Final = 3
"""How often a run is tried whose workers die before it has begun."""
_KEPT: Final = 256


class Starts:
    """Starts the runs of one worker.

    Args:
        store: where runs wait and are recorded.
        adapters: makes an adapter from its name and options.
    """

    def __init__(self, store: Store, adapters: Callable[..., Adapter] = adapter_named) -> None:
        self.epoch = 0
        self._store = store
        self._adapter_named = adapters
        self._prepared: dict[bytes, tuple[Adapter, list[Policy]]] = {}
        self._log = logger()

    async def start(self, supervisor: Supervisor, waiting: Waiting) -> RunHandle | None:
        """Start a run that was seen to wait, unless another worker has had it since, or starts are blocked; one that
        can start nowhere, or was tried often enough, is ended with the reason. Raises StoreError.
        """
        now = await self._store.run(waiting.run_id)
        if now is None or not is_free(now, self.epoch) or now.attempts != waiting.attempts:
            return None
        try:
            run = await supervisor.claim(now.run_id, remains=end_remains)
        except UsageError:  # another worker has it, or its session
            return None
        assert run.owner is not None
        self.epoch = run.owner.epoch
        if run.attempts > ATTEMPTS:
            await self._give_up(run)
            return None
        return await self._started(supervisor, run)

    async def begun(self, handle: RunHandle) -> None:
        """Wait until it is on record that a run has begun, or is over. Raises StoreError."""
        token = 0
        while not handle.done:
            run = await self._store.run(handle.run_id)
            if run is None or run.status != "created":
                return
            token = await self._store.wait(token, 1.0)

    async def _started(self, supervisor: Supervisor, run: RunInfo) -> RunHandle | None:
        try:
            spec = spec_of(run)
            assert spec is not None
            adapter, policies = self._parts(spec.adapter, spec.options, spec.policies)
            return await supervisor.execute(adapter, run.run_id, policies=policies, continuation=spec.continuation)
        except StartsBlockedError:
            order = await ordered_to_end(self._store, run)  # else it waits until that is lifted
            if order is not None:
                await self._withdraw(run, order.reason)
        except StoreError:
            raise
        except Exception as error:  # whatever an adapter's options do, no other run is to end of it
            if not isinstance(error.__cause__, StoreError):
                self._log.error("run.not_started", run_id=run.run_id, session_id=run.session_id, error=str(error))
                await self._withdraw(run, f"it could not be started: {error}")
        return None

    async def _withdraw(self, run: RunInfo, reason: str) -> None:
        await withdraw(self._store, run, epoch=self.epoch, reason=reason)

    async def _give_up(self, run: RunInfo) -> None:
        reason = f"it was tried {ATTEMPTS} times, and each time its worker went away before it had begun"
        self._log.error("run.given_up", run_id=run.run_id, session_id=run.session_id, attempts=ATTEMPTS)
        await fail_untried(self._store, run, epoch=self.epoch, reason=reason)

    def _parts(
        self, name: str, options: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]
    ) -> tuple[Adapter, list[Policy]]:
        """The adapter and the policies of a spec, shared by runs with the same: one plan is made for all of them."""
        from proctor.policies import parse_policies

        key = msgspec.json.encode([name, options, policies])
        if key not in self._prepared:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            self._prepared[key] = (
                self._adapter_named(name, **options),
                list(parse_policies({"policies": list(policies)})),
            )
        return self._prepared[key]
