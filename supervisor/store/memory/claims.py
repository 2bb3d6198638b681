"""Who owns what in a store in memory: owners, their leases, and the runs they have claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import anyio
from msgspec.structs import replace

from proctor.policies.stream.events import Event

from ...ports.facts import GOING_ON, Owner, RunInfo
from ...ports.processes import is_gone
from .. import refusals


class Claims:
    """Owners by epoch, and the epoch of each run; time is the event loop's, so it is virtual where that is.

    Args:
        runs: every run of the store, with its status as the events have it.
    """

    def __init__(self, runs: Mapping[str, RunInfo]) -> None:
        self._runs = runs
        self._owners: dict[int, Owner] = {}
        self._until: dict[int, float] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, str] = {}  # the claimed run of each session, while it is not over

    def register(self, owner: Owner, lease_s: float) -> Owner:
        """Let an owner in."""
        new = replace(owner, epoch=len(self._owners) + 1, gone=False)
        self._owners[new.epoch] = new
        self._until[new.epoch] = anyio.current_time() + lease_s
        return new

    def renew(self, epoch: int, lease_s: float) -> None:
        """Put the end of a lease off. Raises StoreError for one that was released, or never was."""
        if epoch not in self._until:
            raise refusals.no_owner(epoch)
        self._until[epoch] = anyio.current_time() + lease_s

    def release(self, epoch: int) -> None:
        """The owner is gone from now on."""
        self._until.pop(epoch, None)

    def check_fence(self, run_id: str, epoch: int) -> None:
        """Raises StoreError for events of a run that this epoch has not claimed."""
        if self._epochs.get(run_id, 0) != epoch:
            raise refusals.fenced(run_id, self._owner(run_id))

    def check_drawing(self, run_id: str, epoch: int) -> None:
        """Raises StoreError for a run that is not there, is over, or that this epoch has not claimed."""
        run = self._runs.get(run_id)
        if run is None:
            raise refusals.no_run(run_id)
        if run.status not in GOING_ON:
            raise refusals.run_over(run_id, run.status)
        self.check_fence(run_id, epoch)

    def check(self, run: RunInfo, epoch: int, *, lost: bool = False) -> None:
        """Raises StoreError where the run, its session or the owner does not let it be claimed."""
        if run.status not in GOING_ON:
            raise refusals.run_over(run.run_id, run.status)
        owner = self._owner(run.run_id)
        if owner is not None and not owner.gone and not (owner.epoch == epoch and run.status == "created"):
            raise refusals.claimed(run.run_id, owner)
        if run.status == "running" and not lost:
            raise refusals.started(run.run_id)
        if not self._holds(epoch):
            raise refusals.no_owner(epoch)
        other = self._open.get(run.session_id, run.run_id)
        owner = self._owner(other)
        if other != run.run_id and owner and (not owner.gone or self._runs[other].status == "running"):
            raise refusals.session_busy(run.session_id, other, owner)

    def claim(self, run: RunInfo, epoch: int) -> None:
        """Release what another owner had claimed of the session and never started."""
        other = self._open.get(run.session_id)
        if other is not None:
            self._epochs.pop(other, None)
        self._open[run.session_id] = run.run_id
        self._epochs[run.run_id] = epoch

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether what a run set aside under an epoch counts: while it goes on, though its owner is gone; where it
        never started, as long as that owner is there.
        """
        run = self._runs.get(run_id)
        if run is None or not epoch:
            return False
        created = run.status == "created" and self._epochs.get(run_id, 0) == epoch and self._holds(epoch)
        return run.status == "running" or created

    def over(self, end: Event) -> None:
        """A run has ended; its owner stays its owner, and its session is free."""
        if self._open.get(end.session_id) == end.run_id:
            del self._open[end.session_id]

    def lost(self) -> Iterator[RunInfo]:
        """The runs that are not over and whose owner is gone."""
        lost = {run_id for run_id in self._open.values() if not self._holds(self._epochs[run_id])}
        return (self.shown(run) for run in self._runs.values() if run.run_id in lost) if lost else iter(())

    def shown(self, run: RunInfo) -> RunInfo:
        """The run with its owner, and lost where that is gone."""
        owner = self._owner(run.run_id)
        if owner is None:
            return run
        lost = owner.gone and run.status == "running"
        return replace(run, owner=owner, status="lost" if lost else run.status)

    def _owner(self, run_id: str) -> Owner | None:
        epoch = self._epochs.get(run_id, 0)
        return replace(self._owners[epoch], gone=not self._holds(epoch)) if epoch else None

    def _holds(self, epoch: int) -> bool:
        until = self._until.get(epoch)
        return until is not None and anyio.current_time() < until and not is_gone(self._owners[epoch])
