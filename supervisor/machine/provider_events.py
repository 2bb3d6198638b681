"""The provider's events, checked, filtered and recorded; and the end that it reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from proctor.policies import events as ev
from proctor.policies.events.calls import check_finite, check_input
from proctor.policies.events.run_context import FIGURES
from proctor.policies.values.json_values import json_words

from .event_factory import input_changed
from .run_state import MESSAGES_FULL, RECORD_FULL, RunState


class ProviderEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the provider reported its end."""

    completed: bool
    output: Any = None
    error: Any = None


class ProviderEvents:
    """Records a provider's events; ignores those after its end, and all but its end in a full record."""

    __slots__ = ("_deltas", "_message", "_model", "_reported", "_state", "end", "turn")

    def __init__(self, state: RunState, *, model: str | None = None) -> None:
        self._state = state
        self._model = model
        self._message: Any = None
        self._deltas: list[str] = []
        self._reported: ev.TokenUsageUpdated | None = None
        self.end: ProviderEnd | None = None
        self.turn = 1

    def handle_event(self, event: object) -> None:
        """Record an event that the provider reported, if it may be recorded."""
        if self.end is not None or (self._state.counts.full and not isinstance(event, ev.TERMINAL)):
            return
        if not isinstance(event, ev.Event):
            self._state.fail_adapter(f"reported a `{type(event).__name__}`, which is not an event")
            return
        wrong = validation_error(event)
        if wrong is not None:
            self._state.fail_adapter(f"reported a `{event.type}` event whose {wrong}")
            return
        if event.event_id and not isinstance(event, ev.TokenUsageUpdated):
            # The store would leave it out if another event has the id, and the monitor counts it.
            event = msgspec.structs.replace(event, event_id="")
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        else:
            self._state.record(filter_untrusted(event))

    @property
    def output(self) -> Any:
        """The provider's output, or what has arrived of its last message."""
        if self.end is not None and self.end.output is not None:
            return self.end.output
        return "".join(map(str, self._deltas)) if self._deltas else self._message

    def apply(self, event: ev.Event) -> None:
        """Update the state by an event of the run's log."""
        match event:
            case ev.MessageReceived(role="assistant"):
                self._message = event.content
                self._deltas.clear()
            case ev.MessageStreamed(role="assistant"):
                self._deltas.append(event.delta)
            case ev.RunStarted(model=str()):
                self._model = event.model
            case ev.SessionStarted(metadata={"model": str(model)}):
                self._model = model
            case ev.TokenUsageUpdated(scope="cumulative"):
                self._reported = event
            case ev.TurnCompleted():
                self.turn = max(self.turn, event.turn - self._state.identity.turns_before + 1)

    def _streamed(self, event: ev.MessageStreamed) -> None:
        self._state.record(event)
        if event.role == "assistant" and not self._state.counts.is_full_of(event):
            self._deltas.append(event.delta)

    def _apply_and_record(self, event: ev.Event) -> None:
        self.apply(event)
        self._state.record(event)

    def _turn(self, event: ev.TurnEvent) -> None:
        self._apply_and_record(self._state.numbered(event))

    def _usage(self, event: ev.TokenUsageUpdated) -> None:
        if self._state.monitor.state.session.meter.has_counted(event):
            return
        wrong = usage_validation_error(event, self._reported)
        if wrong is not None:
            self._state.fail_adapter(f"reported a `{event.type}` event whose {wrong}")
            return
        self.apply(event)
        if event.model is None and self._model is not None:
            event = msgspec.structs.replace(event, model=self._model)
        self._state.record(event)

    def _requested(self, event: ev.ToolCallRequested) -> None:
        id, calls = event.tool_call_id, self._state.monitor.calls
        if id not in calls and id not in calls.session.denied:
            self._state.record(self._state.numbered(event))

    def _started(self, event: ev.ToolCallStarted) -> None:
        calls = self._state.monitor.calls
        call = calls.get(event.tool_call_id)
        if call is not None and call.runs and calls.is_same(call, event.tool_name, event.tool_input):
            return  # the gate recorded it when it permitted it
        self._state.record(self._state.numbered(event))

    def changed_input(self, event: ev.ToolCallStarted) -> None:
        """Record a call that ran with another input than decided, evaluate it, cancel the run."""
        self._started(event)
        self._state.enforce([input_changed(event)])

    def _outcome(self, event: ev.ToolCallCompleted | ev.ToolCallFailed) -> None:
        if event.tool_call_id not in self._state.monitor.calls.session.denied:
            self._state.record(event)

    def _denied(self, event: ev.ToolCallDenied) -> None:
        """Record that a call failed: it was allowed here, and the provider denied it."""
        id, calls = event.tool_call_id, self._state.monitor.calls
        if id in calls.session.denied:
            return
        call = calls.get(id)
        if call is None or not call.runs:
            self._state.record(event)
            return
        error = event.tell_model or "refused by the provider"
        self._state.record(ev.ToolCallFailed(tool_call_id=id, tool_name=call.name, error=error))

    def _run_started(self, event: ev.RunStarted) -> None:
        self._model = event.model or self._model
        self._state.record(filter_untrusted(event))

    def _completed(self, event: ev.RunCompleted) -> None:
        self.end = ProviderEnd(completed=True, output=event.output)

    def _failed(self, event: ev.RunFailed | ev.RunCancelled) -> None:
        error = event.error if isinstance(event, ev.RunFailed) else {"message": event.reason}
        self.end = ProviderEnd(completed=False, error=error)


_HANDLERS: dict[type[ev.Event], Callable[[ProviderEvents, Any], None]] = {
    ev.MessageReceived: ProviderEvents._apply_and_record,
    ev.MessageStreamed: ProviderEvents._streamed,
    ev.TurnStarted: ProviderEvents._turn,
    ev.TurnCompleted: ProviderEvents._turn,
    ev.TokenUsageUpdated: ProviderEvents._usage,
    ev.ToolCallRequested: ProviderEvents._requested,
    ev.ToolCallStarted: ProviderEvents._started,
    ev.ToolCallCompleted: ProviderEvents._outcome,
    ev.ToolCallFailed: ProviderEvents._outcome,
    ev.ToolCallDenied: ProviderEvents._denied,
    ev.RunStarted: ProviderEvents._run_started,
    ev.SessionStarted: ProviderEvents._apply_and_record,
    ev.RunCompleted: ProviderEvents._completed,
    ev.RunFailed: ProviderEvents._failed,
    ev.RunCancelled: ProviderEvents._failed,
}

_REPORTABLE: tuple[type[ev.Event], ...] = (
    *_HANDLERS,
    ev.MessageSent,
    ev.SessionEvent,
    ev.ErrorEvent,
    ev.Unrecognized,
)
"""What a provider may report; an event of any other type is the supervisor's alone."""

_FULL = (ev.USER_MESSAGES_FULL, MESSAGES_FULL, RECORD_FULL)


def is_ours(event: ev.Event) -> bool:
    """Whether only the supervisor records such an event."""
    return not isinstance(event, _REPORTABLE) or (isinstance(event, ev.ErrorOccurred) and event.code in _FULL)


def filter_untrusted(event: ev.Event) -> ev.Event:
    """The event, or an error event in place of one that only the supervisor may report."""
    if is_ours(event):
        return _not_believed(event.type, event)
    if isinstance(event, ev.RunStarted):
        return _session_started(event)
    if isinstance(event, ev.Unrecognized):
        return _unrecognized(event)
    return event


def _not_believed(claimed: str, event: ev.Event) -> ev.ErrorOccurred:
    return ev.ErrorOccurred(
        code="not_believed",
        message=f"the provider reported a `{claimed}` event, which only the supervisor records",
        provider_error=msgspec.to_builtins(event),
    )


def _session_started(event: ev.RunStarted) -> ev.SessionStarted:
    metadata: dict[str, Any] = {**event.metadata}
    if event.model is not None:
        metadata["model"] = event.model
    if event.tools is not None:
        metadata["tools"] = list(event.tools)
    return ev.SessionStarted(metadata=metadata)


def _unrecognized(event: ev.Unrecognized) -> ev.Event:
    """Keep an unknown event as it came, without its id, unless it would be read back as a known one."""
    claimed = event.raw.get("type")
    if claimed in ev.EVENT_TYPES:
        return _not_believed(str(claimed), ev.Unrecognized(raw={"claimed": event.raw}))
    raw = {name: value for name, value in event.raw.items() if name != "event_id"}
    return msgspec.structs.replace(event, raw=raw if isinstance(claimed, str) else {**raw, "type": "unrecognized"})


_PLAIN: frozenset[type] = frozenset((str, int, float, bool, NoneType, dict, list))
_STAMPED = frozenset(ev.Event.__struct_fields__) - {"event_id", "omitted_chars"}
"""Fields that the supervisor sets; an adapter's values are ignored."""

_INPUTS = frozenset(("input", "tool_input"))
"""Fields that must pass `check_input`."""

_encode = msgspec.json.Encoder().encode


def validation_error(given: msgspec.Struct) -> str | None:
    """The first field of an event or a call that could not be read back from the event log, and why; or None.

    Values nested in a field of type `Any` are checked by the store, which refuses what it cannot encode.
    """
    for name, usual, check in _fields_of(type(given)):
        value = getattr(given, name)
        if type(value) not in usual:
            try:
                check(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                return f"`{name}` cannot be recorded: {json_words(error)[:200]}"
    return None


def usage_validation_error(event: ev.TokenUsageUpdated, before: ev.TokenUsageUpdated | None) -> str | None:
    """The first wrong figure of a usage report, or None; `before` is the latest cumulative report."""
    falls = before is not None and event.scope == "cumulative"
    for name in FIGURES:
        value = getattr(event, name)
        if value is None:
            continue
        if not 0 <= value < math.inf:  # a NaN is not, either
            return f"`{name}` is {value}, which is not an amount"
        figure = getattr(before, name) if falls else None
        if figure is not None and value < figure:
            return f"`{name}` fell from {figure} to {value}: what was used stays used"
    return None


@cache
def _fields_of(kind: type) -> tuple[tuple[str, frozenset[type], Callable[[Any], None]], ...]:
    """Each field's name, its usual types, and a check that raises for a value JSON would not give back."""
    stamped = _STAMPED if issubclass(kind, ev.Event) else ()
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in stamped]
    return tuple((field.name, *_intake_of(field)) for field in fields)


def _intake_of(field: msgspec.structs.FieldInfo) -> tuple[frozenset[type], Callable[[Any], None]]:
    decode = msgspec.json.Decoder(field.type).decode

    def read_back(value: Any) -> None:
        check_finite(value)
        decode(_encode(value))

    def bounded(value: Any) -> None:
        if type(value) is dict:
            check_input(value)
        else:
            read_back(value)

    return (frozenset(), bounded) if field.name in _INPUTS else (_usual(field.type), read_back)


def _usual(wanted: Any) -> frozenset[type]:
    """The types whose values JSON always gives back; values of other types are tried."""
    if wanted is Any:
        return _PLAIN
    if wanted is float:
        return frozenset((float, int))
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return frozenset(usual for one in get_args(wanted) for usual in _usual(one))
    if origin is None:
        return frozenset((wanted,))
    return frozenset((dict,)) if origin is dict else frozenset()
