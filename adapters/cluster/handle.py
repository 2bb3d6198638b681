"""One run that workers execute, as whoever put it down holds it, in any process."""

from __future__ import annotations

from proctor.supervisor import KillOutcome, KillSwitch, RunInfo, RunResult, UsageError
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import NOT_OVER
from proctor.supervisor.store.take_over import latest
from proctor.supervisor.watch.subscriptions import Subscriptions

from .outcome import Followed

LOOK_S = 0.5
"""How long to wait for whoever ends a lost run before looking again."""


class FleetHandle:
    """One run. Where its worker died it stands for the run that goes on with it: the result says which that is."""

    __slots__ = ("_store", "_subscriptions", "_switch", "run_id", "session_id")

    def __init__(self, run: RunInfo, store: Store, subscriptions: Subscriptions, switch: KillSwitch) -> None:
        self.run_id = run.run_id
        self.session_id = run.session_id
        self._store = store
        self._subscriptions = subscriptions
        self._switch = switch

    async def info(self) -> RunInfo:
        """The run as the store has it now, or the last one that went on with it. Raises StoreError, or UsageError
        where its record was pruned.
        """
        run = await self._store.run(self.run_id)
        if run is None:
            raise UsageError(f"there is no run `{self.run_id}`")
        return await latest(self._store, run)

    async def wait_finished(self) -> None:
        """Wait until the run is over, however it ended. Raises StoreError."""
        await self._followed()

    async def wait(self) -> RunResult:
        """The result, once the run is over. How each rule ended is not recorded: `policy.rules` is empty.

        Raises:
            PolicyViolationError: a policy cancelled it.
            OwnerLostError: its worker died, and no run goes on with it.
            ProviderError: the agent failed; each of these has the result so far as its `partial`.
            StoreError: the record cannot be read.
        """
        run, followed = await self._followed()
        return followed.result(run)

    async def cancel(self, *, by: str, reason: str = "user", wait_s: float = 30.0) -> list[KillOutcome]:
        """Order the run to end, also one that waits for a worker; gives what became of it within `wait_s` seconds,
        nothing where it was over. Raises StoreError.
        """
        return await self._switch.kill(by=by, reason=reason, run_id=self.run_id, wait_s=wait_s)

    async def _followed(self) -> tuple[RunInfo, Followed]:
        token = 0
        while True:
            run, followed = await self.info(), Followed()
            async with self._subscriptions.subscribe(run_id=run.run_id) as events:
                async for event in events:
                    followed.take(event)
            now = await self.info()
            if now.run_id == run.run_id and now.status not in NOT_OVER:
                return now, followed
            token = await self._store.wait(token, LOOK_S)
