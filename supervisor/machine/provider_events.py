"""The provider's side of a run: which of its events are recorded, and how it says it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.policies.events import (
    TERMINAL,
    Event,
    MessageReceived,
    MessageStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionStarted,
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

from .event_factory import input_changed
from .run_state import RunState
from .validation import believed, flaw_in, flaw_in_usage


class ProviderEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the provider said it ended."""

    completed: bool
    output: Any = None
    error: Any = None


class ProviderEvents:
    """Takes a provider's events. After its end was reported nothing more is taken, and only its end once the record
    of the run is full.
    """

    __slots__ = ("_deltas", "_message", "_model", "_reported", "_state", "end", "turn")

    def __init__(self, state: RunState, *, model: str | None = None) -> None:
        self._state = state
        self._model = model
        self._message: Any = None
        self._deltas: list[str] = []
        self._reported: TokenUsageUpdated | None = None
        self.end: ProviderEnd | None = None
        self.turn = 1

    def take(self, event: object) -> None:
        """Record what a provider reported, as far as it is believed."""
        if self.end is not None or (self._state.counts.full and not isinstance(event, TERMINAL)):
            return
        if not isinstance(event, Event):
            self._state.blame_adapter(f"reported a `{type(event).__name__}`, which is not an event")
        elif (flaw := flaw_in(event)) is not None:
            self._state.blame_adapter(f"reported a `{event.type}` event whose {flaw}")
        elif (handler := _HANDLERS.get(type(event))) is not None:
            handler(self, event)
        else:
            self._state.record(believed(event))

    @property
    def output(self) -> Any:
        """The provider's output, or as much of its last message as arrived."""
        if self.end is not None and self.end.output is not None:
            return self.end.output
        return "".join(map(str, self._deltas)) if self._deltas else self._message

    def recall(self, event: Event) -> None:
        """Take up what the run's record says of the model and of what it wrote."""
        match event:
            case MessageReceived(role="assistant"):
                self._message = event.content
                self._deltas.clear()
            case MessageStreamed(role="assistant"):
                self._deltas.append(event.delta)
            case RunStarted(model=str()):
                self._model = event.model
            case SessionStarted(metadata={"model": str(model)}):
                self._model = model
            case TokenUsageUpdated(scope="cumulative"):
                self._reported = event
            case TurnCompleted():
                self.turn = max(self.turn, event.turn - self._state.identity.turns_before + 1)

    def _received(self, event: MessageReceived) -> None:
        if event.role == "assistant":
            self._message = event.content
            self._deltas.clear()
        self._state.record(event)

    def _streamed(self, event: MessageStreamed) -> None:
        if event.role == "assistant":
            self._deltas.append(event.delta)
        self._state.record(event)

    def _noted(self, event: Event) -> None:
        self.recall(event)
        self._state.record(event)

    def _turn(self, event: TurnEvent) -> None:
        numbered = self._state.numbered(event)
        self.recall(numbered)
        self._state.record(numbered)

    def _usage(self, event: TokenUsageUpdated) -> None:
        flaw = flaw_in_usage(event, self._reported)
        if flaw is not None:
            self._state.blame_adapter(f"reported a `{event.type}` event whose {flaw}")
            return
        self.recall(event)
        if event.model is None and self._model is not None:
            event = msgspec.structs.replace(event, model=self._model)
        self._state.record(event)

    def _requested(self, event: ToolCallRequested) -> None:
        id, calls = event.tool_call_id, self._state.judge.calls
        if id not in calls and id not in calls.session.denied:
            self._state.record(self._state.numbered(event))

    def _started(self, event: ToolCallStarted) -> None:
        calls = self._state.judge.calls
        call = calls.get(event.tool_call_id)
        if call is not None and call.runs and calls.is_same(call, event.tool_name, event.tool_input):
            return  # the gate recorded it when it permitted it
        self._state.record(self._state.numbered(event))

    def ran_otherwise(self, event: ToolCallStarted) -> None:
        """Record the start of a call whose input somebody changed, judge it as it ran, and end the run for it."""
        self._started(event)
        self._state.follow([input_changed(event)])

    def _outcome(self, event: ToolCallCompleted | ToolCallFailed) -> None:
        if event.tool_call_id not in self._state.judge.calls.session.denied:
            self._state.record(event)

    def _denied(self, event: ToolCallDenied) -> None:
        """A call allowed here and then refused by the provider has failed."""
        id, calls = event.tool_call_id, self._state.judge.calls
        if id in calls.session.denied:
            return
        call = calls.get(id)
        if call is None or not call.runs:
            self._state.record(event)
            return
        error = event.tell_model or "refused by the provider"
        self._state.record(ToolCallFailed(tool_call_id=id, tool_name=call.name, error=error, event_id=event.event_id))

    def _run_started(self, event: RunStarted) -> None:
        self._model = event.model or self._model
        self._state.record(believed(event))

    def _completed(self, event: RunCompleted) -> None:
        self.end = ProviderEnd(completed=True, output=event.output)

    def _failed(self, event: RunFailed | RunCancelled) -> None:
        error = event.error if isinstance(event, RunFailed) else {"message": event.reason}
        self.end = ProviderEnd(completed=False, error=error)


_HANDLERS: dict[type[Event], Callable[[ProviderEvents, Any], None]] = {
    MessageReceived: ProviderEvents._received,
    MessageStreamed: ProviderEvents._streamed,
    TurnStarted: ProviderEvents._turn,
    TurnCompleted: ProviderEvents._turn,
    TokenUsageUpdated: ProviderEvents._usage,
    ToolCallRequested: ProviderEvents._requested,
    ToolCallStarted: ProviderEvents._started,
    ToolCallCompleted: ProviderEvents._outcome,
    ToolCallFailed: ProviderEvents._outcome,
    ToolCallDenied: ProviderEvents._denied,
    RunStarted: ProviderEvents._run_started,
    SessionStarted: ProviderEvents._noted,
    RunCompleted: ProviderEvents._completed,
    RunFailed: ProviderEvents._failed,
    RunCancelled: ProviderEvents._failed,
}
