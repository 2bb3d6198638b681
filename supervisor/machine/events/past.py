"""What a session's past counts for in its next run."""

from __future__ import annotations

from collections import deque

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event, ToolApprovalGranted, ToolCallStarted, ToolEvent, TurnEvent

from ..boundary.result import call_of

CALLS_KEPT = 1_000
"""How many of the session's latest calls an error of a later run tells."""


class Past:
    """A session's events, taken one after another: the `seq` of the latest, the number of model responses, and the
    latest calls that ran.

    Responses of the run `of` are not counted: they are not its past.
    """

    __slots__ = ("_calls", "_grants", "_of", "last_seq", "turns")

    def __init__(self, *, of: str | None = None, turns: int = 0, last_seq: int = 0) -> None:
        self._of = of
        self.turns = turns
        self.last_seq = last_seq
        self._calls: deque[ToolCallStarted] = deque(maxlen=CALLS_KEPT)
        self._grants: dict[str, ToolApprovalGranted] = {}

    def take(self, event: Event) -> None:
        """Count one more event."""
        self.last_seq = max(self.last_seq, event.seq)
        if event.run_id != self._of and isinstance(event, (TurnEvent, ToolEvent)):
            self.turns = max(self.turns, event.turn)
            if isinstance(event, ToolCallStarted):
                self._calls.append(event)
        if isinstance(event, ToolApprovalGranted):
            self._granted(event)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The latest calls that ran."""
        return tuple(map(call_of, self._calls))

    @property
    def grants(self) -> list[ToolApprovalGranted]:
        """The grants that hold for a later run: those that cover the session, and those that came after their run was
        over and are not used.
        """
        return list(self._grants.values())

    def _granted(self, event: ToolApprovalGranted) -> None:
        # One that came late is recorded without a run; using it records it once more, with the run that used it.
        if event.scope == "session":
            self._grants[event.approval_id] = event
        elif event.run_id:
            self._grants.pop(event.approval_id, None)
        elif event.input_digest:
            self._grants[event.approval_id] = event
