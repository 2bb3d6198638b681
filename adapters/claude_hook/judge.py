"""A session's judge for a client that asks its person itself, several questions at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from proctor.policies import CompiledPolicy, Decision, ToolCall
from proctor.policies.monitor.monitor import Monitor
from proctor.supervisor.machine.event_factory import granted, started
from proctor.supervisor.ports.stored_types import ApprovalRequest


class AskingJudge:
    """A monitor that can judge a new call as if the person had agreed to every call being asked about.

    Two questions at once could otherwise both be answered yes and together spend more than there is.
    `latest` is the latest decision.
    """

    def __init__(self, compiled: CompiledPolicy, monitor: Monitor) -> None:
        self._compiled = compiled
        self._monitor = monitor
        self._agreed: Sequence[ApprovalRequest] = ()
        self.latest: Decision | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._monitor, name)

    @contextmanager
    def supposing(self, agreed: Sequence[ApprovalRequest]) -> Iterator[None]:
        """What is proposed in here is judged as if these were granted and ran."""
        self._agreed = agreed
        try:
            yield
        finally:
            self._agreed = ()

    def propose(self, call: ToolCall, checks: Mapping[str, Any] = {}) -> Decision:
        """Judge a call; only one that may run under the supposition, too, spends anything."""
        decision = self._supposed(call, checks) if self._agreed else None
        if decision is None or decision.action in ("allow", "warn", "request_approval"):
            decision = self._monitor.propose(call, checks)
        self.latest = decision
        return decision

    def _supposed(self, call: ToolCall, checks: Mapping[str, Any]) -> Decision:
        trial = self._compiled.restore(self._monitor.snapshot())
        for request in self._agreed:
            trial.observe(granted(request, by="", reason=None))
            trial.observe(started(request.call))
        return trial.propose(call, checks)
