"""The provider's side of a run: which of its events are recorded, and how it says it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.policies.stream.events import (
    Event,
    MessageReceived,
    MessageStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnCompleted,
    TurnEvent,
    TurnStarted,
)

from .event_checks import flaw_in
from .open_calls import OpenCalls
from .run_state import RunCore
from .trust import believed


class ProviderEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the provider said it ended."""

    completed: bool
    output: Any = None
    error: Any = None


class Reports:
    """Takes a provider's events. After its end was reported nothing more is taken."""

    __slots__ = ("_calls", "_core", "_deltas", "_message", "_model", "end")

    def __init__(self, core: RunCore, calls: OpenCalls, *, model: str | None = None) -> None:
        self._core = core
        self._calls = calls
        self._model = model
        self._message: Any = None
        self._deltas: list[str] = []
        self.end: ProviderEnd | None = None

    def take(self, event: object) -> None:
        """Record what a provider reported, as far as it is believed."""
        if self.end is not None:
            return
        if not isinstance(event, Event):
            self._core.blame_adapter(f"reported a `{type(event).__name__}`, which is no event")
        elif (flaw := flaw_in(event)) is not None:
            self._core.blame_adapter(f"reported a `{event.type}` event whose {flaw}")
        elif (handler := _HANDLERS.get(type(event))) is not None:
            handler(self, event)
        else:
            self._core.record(believed(event))

    @property
    def output(self) -> Any:
        """What the provider gave, or as much of its last message as came."""
        if self.end is not None and self.end.output is not None:
            return self.end.output
        return "".join(map(str, self._deltas)) if self._deltas else self._message

    def _received(self, event: MessageReceived) -> None:
        if event.role == "assistant":
            self._message = event.content
            self._deltas.clear()
        self._core.record(event)

    def _streamed(self, event: MessageStreamed) -> None:
        if event.role == "assistant":
            self._deltas.append(event.delta)
        self._core.record(event)

    def _turn(self, event: TurnEvent) -> None:
        self._core.record(self._core.numbered(event))

    def _usage(self, event: TokenUsageUpdated) -> None:
        if event.model is None and self._model is not None:
            event = msgspec.structs.replace(event, model=self._model)
        self._core.record(event)

    def _requested(self, event: ToolCallRequested) -> None:
        if self._calls.get(event.tool_call_id) is None:
            self._calls.put(event.tool_call_id, event.tool_name, event.tool_input, "requested")
            self._core.record(self._core.numbered(event))

    def _started(self, event: ToolCallStarted) -> None:
        id, name, input = event.tool_call_id, event.tool_name, event.tool_input
        known = self._calls.get(id)
        if known is not None and known.stage == "started" and known.same(name, input):
            return  # the gate recorded it when it permitted it
        self._calls.put(id, name, input, "started")
        self._core.record(self._core.numbered(event))

    def _outcome(self, event: ToolCallCompleted | ToolCallFailed) -> None:
        known = self._calls.end(event.tool_call_id)
        if known is None or known.stage != "denied":
            self._core.record(event)

    def _denied(self, event: ToolCallDenied) -> None:
        """A call allowed here and then refused by the provider has failed."""
        known = self._calls.end(event.tool_call_id)
        if known is not None and known.stage == "started":
            self._core.record(
                ToolCallFailed(
                    tool_call_id=event.tool_call_id,
                    tool_name=known.name,
                    error=event.tell_model or "refused by the provider",
                    event_id=event.event_id,
                )
            )
        elif known is None or known.stage == "requested":
            self._core.record(event)

    def _run_started(self, event: RunStarted) -> None:
        self._model = event.model or self._model
        self._core.record(believed(event))

    def _completed(self, event: RunCompleted) -> None:
        self.end = ProviderEnd(completed=True, output=event.output)

    def _failed(self, event: RunFailed | RunCancelled) -> None:
        error = event.error if isinstance(event, RunFailed) else {"message": event.reason}
        self.end = ProviderEnd(completed=False, error=error)


_HANDLERS: dict[type[Event], Callable[[Reports, Any], None]] = {
    MessageReceived: Reports._received,
    MessageStreamed: Reports._streamed,
    TurnStarted: Reports._turn,
    TurnCompleted: Reports._turn,
    TokenUsageUpdated: Reports._usage,
    ToolCallRequested: Reports._requested,
    ToolCallStarted: Reports._started,
    ToolCallCompleted: Reports._outcome,
    ToolCallFailed: Reports._outcome,
    ToolCallDenied: Reports._denied,
    RunStarted: Reports._run_started,
    RunCompleted: Reports._completed,
    RunFailed: Reports._failed,
    RunCancelled: Reports._failed,
}
