"""A session of the client, folded from its record: the monitor's state, and which calls are open."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies import CompiledPolicy, RunContext, ToolCall
from proctor.policies.stream.calls import input_digest
from proctor.policies.stream.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolApprovalDenied,
    ToolApprovalGranted,
    ToolApprovalRequested,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnCompleted,
)


class OpenCall(msgspec.Struct):
    """A call that is not over; `approval` is set while the client asks its person about it."""

    call: ToolCall
    started: bool = False
    approval: ToolApprovalRequested | None = None


class Session:
    """What the record says of a session so far.

    `run_id` is that of the latest run, "" before the first; `run_at` when it began, `ended` how it ended, if
    it has.
    """

    def __init__(self, compiled: CompiledPolicy, context: RunContext, past: Iterable[Event]) -> None:
        self.monitor = compiled.monitor(context)
        self.open: dict[str, OpenCall] = {}
        self.over: set[str] = set()
        self.run_id = ""
        self.prompt_id = ""
        self.runs = 0
        self.turn = 1
        self.run_at: datetime | None = None
        self.ended: type[Event] | None = None
        for event in past:
            self.take(event)
        self.monitor.warnings()  # those were handed over by the hooks that came near their limits

    def take(self, event: Event) -> list[Any]:
        """One more event of the record; returns what it violates."""
        self._follow(event)
        return list(self.monitor.observe(event))

    def suppose_answered(self) -> None:
        """Judge from here on as if the person agreed to every call the client asks about just now.

        It is no part of the record: two questions at once could otherwise both be answered yes and together
        spend more than there is.
        """
        for waiting in self.open.values():
            if waiting.approval is not None:
                call = waiting.call
                self.monitor.observe(granted(waiting.approval))
                self.monitor.observe(started(call))

    def _follow(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.run_id, self.run_at, self.ended = event.run_id, event.at, None
                self.prompt_id = str(event.metadata.get("prompt_id", ""))
                self.runs += 1
                self.open.clear()
            case RunCompleted() | RunFailed() | RunCancelled():
                self.ended = type(event)
                self.open.clear()
            case TurnCompleted():
                self.turn = max(self.turn, event.turn + 1)
            case ToolCallRequested():
                call = ToolCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input, turn=event.turn)
                self.open[call.id] = OpenCall(call)
            case ToolCallStarted():
                if event.tool_call_id in self.open:
                    self.open[event.tool_call_id].started = True
            case ToolApprovalRequested():
                if event.tool_call_id in self.open:
                    self.open[event.tool_call_id].approval = event
            case ToolApprovalGranted() | ToolApprovalDenied():
                if event.tool_call_id in self.open:
                    self.open[event.tool_call_id].approval = None
            case ToolCallCompleted() | ToolCallFailed() | ToolCallDenied():
                self.open.pop(event.tool_call_id, None)
                self.over.add(event.tool_call_id)


def granted(asked: ToolApprovalRequested) -> ToolApprovalGranted:
    """The record that the person agreed, in the client."""
    return ToolApprovalGranted(
        approval_id=asked.approval_id,
        tool_call_id=asked.tool_call_id,
        tool_name=asked.tool_name,
        tool_input=asked.tool_input,
        input_digest=input_digest(asked.tool_input),
        policy_name=asked.policy_name,
        violation_kind=asked.violation_kind,
        by="claude-code",
    )


def started(call: ToolCall) -> ToolCallStarted:
    """The record that a call runs."""
    return ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input, turn=call.turn)
