"""Sessions written one a line: `{"id": ..., "events": [{"type": "tool_call" | "message" | ...}]}`.

A call's input is its `arguments` or `input`, its result the `content` or `output`, or the `error` of one that failed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.run_context import recorded_context
from proctor.policies.values.json_values import NOT_JSON, json_words

from ..kit.trace_lines import TraceLines, TraceLog, TraceSession, message_kind, tool_input


class _Item(msgspec.Struct, tag_field="type", kw_only=True):
    turn: int = 0


class _Message(_Item, tag="message"):
    role: str = "assistant"
    text: Any = None
    content: Any = None


class _Usage(_Item, tag="usage", forbid_unknown_fields=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    cost: float | None = None
    model: str | None = None


class _Call(_Item, tag="tool_call"):
    id: str
    name: str
    arguments: Any = None
    input: Any = None

    @property
    def given(self) -> Any:
        """Its input; None if there is none under either key."""
        return self.arguments if self.arguments is not None else self.input


class _Result(_Item, tag="tool_result"):
    id: str
    content: Any = None
    output: Any = None
    error: Any = None
    is_error: bool | None = False

    @property
    def given(self) -> Any:
        """Its output; None if there is none under any key."""
        return next((each for each in (self.content, self.output, self.error) if each is not None), None)


ItemT = TypeVar("ItemT")
_Known: TypeAlias = _Message | _Usage | _Call | _Result
_KNOWN = ("message", "usage", "tool_call", "tool_result")
_NOT_INPUT = ("args", "params", "parameters", "tool_input", "inputs", "argument", "kwargs")
"""Keys that others use for a call's input: a call that has one of them was not recorded without input."""
_USAGE = {"type", *_Usage.__struct_fields__}
_AMOUNTS = "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd"


class _Line(msgspec.Struct, Generic[ItemT], kw_only=True):
    id: str
    events: list[ItemT]
    source: Any = None
    model: str | None = None
    task: Any = None
    outcome: Any = None


_strict = msgspec.json.Decoder(_Line[_Known])
_loose = msgspec.json.Decoder(_Line[dict[str, Any]])


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one file, one a line. Raises TraceError."""
    for line in lines:
        record, items = _decode(lines, line)
        log = TraceLog(record.id)
        _fill(log, items, record.model)
        about = {name: getattr(record, name) for name in ("source", "model", "task", "outcome")}
        yield log.session(lines.name, "sessions", about)


def _decode(lines: TraceLines, line: bytes) -> tuple[_Line[Any], list[_Known | dict[str, Any]]]:
    """A line with its items; items of unknown types stay as they came."""
    with suppress(*NOT_JSON):
        strict = _strict.decode(line)
        if not any(isinstance(item, _Call) and item.given is None for item in strict.events):
            return strict, list(strict.events)
    loose = lines.decode(_loose, line)
    items: list[_Known | dict[str, Any]] = []
    for n, item in enumerate(loose.events):
        if item.get("type") in _KNOWN:
            fields = {key: value for key, value in item.items() if item["type"] != "usage" or key in _USAGE}
            try:
                step: _Known = msgspec.convert(fields, _Known)
            except msgspec.ValidationError as error:
                raise lines.fail(f"`events[{n}]`: {json_words(error)}") from None
            if wrong := _misnamed(step, item):
                raise lines.fail(f"`events[{n}]`: {wrong}")
            items.append(step)
        elif isinstance(item.get("type"), str):
            items.append(item)
        else:
            raise lines.fail(f"`events[{n}]` has no `type`")
    return loose, items


def _misnamed(step: _Known, item: dict[str, Any]) -> str | None:
    """What to call an input or an amount that would be passed over; None if nothing is."""
    if isinstance(step, _Call) and step.given is None:
        other = next(filter(item.__contains__, _NOT_INPUT), None)
        return other and f"a call's input is its `arguments` or `input`, not `{other}`"
    if isinstance(step, _Usage):
        counted = {"total_tokens"} if step.input_tokens or step.output_tokens else set()
        amounts = (key for key in item if ("token" in key or "cost" in key) and item[key])
        other = next((key for key in amounts if key not in _USAGE | counted), None)
        return other and f"the amounts of a usage are {_AMOUNTS}, not `{other}`"
    return None


def _fill(log: TraceLog, items: list[_Known | dict[str, Any]], model: str | None) -> None:
    ran = _ran(items)
    names: dict[str, str] = {}
    for n, item in enumerate(items):
        if isinstance(item, dict):
            log.add(ev.Unrecognized, raw=item)
            continue
        log.enter_turn(item.turn)
        match item:
            case _Message():
                content = item.text if item.text is not None else item.content
                log.add(message_kind(item.role), role=item.role, content=content)
            case _Usage():
                _usage(log, item, model)
            case _Call():
                names[item.id] = item.name
                _call(log, item, None if ran is None else n in ran)
            case _Result():
                failed = item.is_error or item.error
                log.end_call(item.id, names.get(item.id, ""), item.given, failed=failed)


def _ran(items: list[_Known | dict[str, Any]]) -> set[int] | None:
    """The places of the calls that have a result, each of the call of its id that came last before it; None if no
    results are recorded.
    """
    if not any(isinstance(item, _Result) for item in items):
        return None
    found: set[int] = set()
    latest: dict[str, int] = {}
    for n, item in enumerate(items):
        if isinstance(item, _Call):
            latest[item.id] = n
        elif isinstance(item, _Result) and item.id in latest:
            found.add(latest[item.id])
    return found


def _call(log: TraceLog, call: _Call, ran: bool | None) -> None:
    """Add a call. One with a result ran; one without, in a session with results, never ran. In a session that records
    no results at all, each call counts as completed.
    """
    kind = ev.ToolCallRequested if ran is False else ev.ToolCallStarted
    fields: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name}
    log.add(kind, **fields, tool_input=tool_input(call.given), turn=call.turn)
    if ran is None:
        log.add(ev.ToolCallCompleted, **fields)


def _usage(log: TraceLog, usage: _Usage, model: str | None) -> None:
    log.add(
        ev.TokenUsageUpdated,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=usage.cost if usage.cost_usd is None else usage.cost_usd,
        model=usage.model or model,
    )


_EVENT = b'{"event":'


def read_own_events(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one file, in the order of their first events. Raises TraceError.

    A session is held until the file ends, when no more of its events can follow.
    """
    sessions: dict[str, list[ev.Event]] = {}
    for line in lines:
        if (event := _own_events_decode(lines, line)) is None:
            continue
        events = sessions.setdefault(event.session_id or event.run_id or lines.name, [])
        events.append(event if event.seq else msgspec.structs.replace(event, seq=len(events) + 1))
    for session_id, events in sessions.items():
        yield TraceSession(
            id=session_id,
            source=lines.name,
            format="events",
            events=events,
            complete=_is_complete(events),
            never_ran=_denied(events),
            metadata=_metadata(events),
        )


def is_export(value: dict[str, Any]) -> bool:
    """Whether a line's object is the head of an export."""
    return str(value.get("format", "")).startswith("proctor record ")


def _own_events_decode(lines: TraceLines, line: bytes) -> ev.Event | None:
    """The event of a line; None for the head of an export and for a run in it."""
    try:
        return ev.decode_event(_exported(line))
    except EventError as error:
        if line.startswith((b'{"format":"proctor record ', b'{"run":')):
            return None
        raise lines.fail(str(error)) from None


def _exported(line: bytes) -> bytes:
    """An event out of the line of an export that holds it; any other line as it is."""
    stripped = line.rstrip()
    return stripped[len(_EVENT) : -1] if stripped.startswith(_EVENT) and stripped.endswith(b"}") else line


def _is_complete(events: list[ev.Event]) -> bool:
    """Whether the last run has ended; bookkeeping of the session may still follow its end."""
    for event in reversed(events):
        if isinstance(event, ev.TERMINAL):
            return True
        if event.run_id and not isinstance(event, ev.Unrecognized):
            return False
    return False


def _denied(events: list[ev.Event]) -> frozenset[str]:
    """The calls that were denied; one that was only requested may still be held, and may run."""
    started = {event.tool_call_id for event in events if isinstance(event, ev.ToolCallStarted)}
    denied = {event.tool_call_id for event in events if isinstance(event, ev.ToolCallDenied)}
    return frozenset(denied - started)


def _metadata(events: list[ev.Event]) -> dict[str, Any]:
    """The model, and the context that the first run of it was started with."""
    starts = [event for event in events if isinstance(event, ev.RunStarted)]
    contexts = (recorded_context(start.metadata.get("context")) for start in starts)
    fields = {
        "model": next((start.model for start in starts if start.model), None),
        "context": next((context for context in contexts if context is not None), None),
    }
    return {name: value for name, value in fields.items() if value is not None}
