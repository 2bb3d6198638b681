"""OpenTelemetry GenAI traces: `invoke_agent`, `chat` and `execute_tool` spans, one trace a session."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from proctor.policies import events as ev

from ..kit.trace_lines import TraceLines, TraceLog, TraceSession, documents, message_kind, parsed, tool_input

_RESOURCES = ("resourceSpans", "resource_spans")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
_ENDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
_TOO_LATE = int(datetime.max.replace(tzinfo=UTC).timestamp()) * 10**9
_VALUES = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue")


class SpanError(ValueError):
    """A JSON value is no span; the message says why."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span; `start` and `end` are nanoseconds since the epoch, `error` is None unless it failed."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    error: str | None = None

    def first(self, *names: str) -> Any:
        """The value of the first of these attributes that exists, else None."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)


def at(nanoseconds: int) -> datetime | None:
    """A moment in UTC; 0 is none."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC) if nanoseconds else None


def spans_in(document: Any) -> Iterator[Span]:
    """The spans of one JSON value: an export of many, a list, or one span. Raises SpanError, or for a value of
    another shape what Python raises.
    """
    if isinstance(document, list):
        for part in document:
            yield from spans_in(part)
    elif not isinstance(document, dict):
        raise SpanError("neither an object nor a list")
    elif any(name in document for name in (*_RESOURCES, *_SCOPES, "spans")):
        for part in _either(document, *_RESOURCES, *_SCOPES, "spans") or ():
            yield from spans_in(part)
    else:
        yield _span(document)


def is_span(document: Any) -> bool:
    """Whether a JSON value looks like a span or an export of spans."""
    if isinstance(document, list):
        return bool(document) and is_span(document[0])
    if not isinstance(document, dict):
        return False
    return any(name in document for name in (*_RESOURCES, *_SCOPES)) or bool(_identity(document)[1])


def _span(document: dict[str, Any]) -> Span:
    trace_id, span_id = _identity(document)
    if not span_id:
        raise SpanError("it has no id")
    start = _nanoseconds(_either(document, *_STARTS))
    end = _nanoseconds(_either(document, *_ENDS))
    attributes = _attributes(document.get("attributes"))
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=str(_either(document, "parentSpanId", "parent_span_id", "parent_id") or ""),
        name=str(document.get("name", "")),
        start=start,
        end=max(end, start),
        attributes=attributes,
        events=tuple(
            (str(event.get("name", "")), _attributes(event.get("attributes")))
            for event in document.get("events") or ()
            if isinstance(event, dict)
        ),
        error=_error(document.get("status"), attributes),
    )


def _identity(document: dict[str, Any]) -> tuple[str, str]:
    context = document.get("context")
    own = context if isinstance(context, dict) else document
    return str(_either(own, "traceId", "trace_id") or ""), str(_either(own, "spanId", "span_id") or "")


def _either(document: dict[str, Any], *names: str) -> Any:
    return next((document[name] for name in names if document.get(name) is not None), None)


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return {}
    return {str(pair["key"]): _value(pair.get("value")) for pair in value if isinstance(pair, dict) and "key" in pair}


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for name in _VALUES:
        if name in value:
            return int(value[name]) if name == "intValue" else value[name]
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return _attributes(value["kvlistValue"].get("values", []))
    return None


def _nanoseconds(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and not value.isdigit():
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise SpanError(f"`{value}` is not a time") from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9
    if not 0 <= (nanoseconds := int(value)) < _TOO_LATE:
        raise SpanError(f"`{value}` is not a time in nanoseconds")
    return nanoseconds


def _error(status: Any, attributes: dict[str, Any]) -> str | None:
    """The error, from the status or, without one, from `error.type`."""
    code, message = status, ""
    if isinstance(status, dict):
        code = _either(status, "code", "status_code", "statusCode")
        message = str(_either(status, "message", "description") or "")
    if str(code).rsplit(".", 1)[-1].upper() in ("2", "ERROR", "STATUS_CODE_ERROR"):
        return message or str(attributes.get("error.type", "error"))
    return str(attributes["error.type"]) if attributes.get("error.type") else None


_NUMBERED = re.compile(r"(?:gen_ai\.(?P<side>prompt|completion))\.(?P<n>\d+)\.(?P<field>role|content)$")


class SpanMessage(msgspec.Struct, kw_only=True):
    """One message: text, requested calls (id, name, arguments), results (id, value)."""

    role: str
    text: str = ""
    calls: list[tuple[str, str, Any]] = []
    results: list[tuple[str, Any]] = []

    @property
    def is_said(self) -> bool:
        """Whether it has text that is no part of a tool's result."""
        return bool(self.text and not self.results)


def sent(span: Span) -> list[SpanMessage]:
    """The model's input, oldest first."""
    return _structured(span, "gen_ai.input.messages") or _numbered(span, "prompt") or _from_events(span)


def answered(span: Span) -> list[SpanMessage]:
    """The model's output."""
    return _structured(span, "gen_ai.output.messages") or _numbered(span, "completion")


def _structured(span: Span, attribute: str) -> list[SpanMessage]:
    carriers = [span.attributes, *(attributes for _, attributes in span.events)]
    found = next((carrier[attribute] for carrier in carriers if attribute in carrier), None)
    messages = parsed(found)
    if isinstance(messages, str) and messages.lstrip().startswith(("[", "{")):
        raise SpanError(f"`{attribute}` of the span `{span.span_id}` is not JSON; the exporter may have cut it")
    if not isinstance(messages, list):
        return []
    return [_message(message) for message in messages if isinstance(message, dict)]


def _message(message: dict[str, Any]) -> SpanMessage:
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}]
    parts = _objects(parts)
    texts = [part.get("content", part.get("text")) for part in parts if part.get("type") == "text"]
    return SpanMessage(
        role=str(message.get("role", "")),
        text="\n".join(text for text in texts if isinstance(text, str)),
        calls=[*_calls(parts), *_older_calls(message)],
        results=[*_results(parts), *_older_results(message)],
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _calls(parts: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    for part in parts:
        if part.get("type") == "tool_call":
            yield str(part.get("id") or ""), str(part.get("name", "")), part.get("arguments")


def _older_calls(message: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            yield str(call.get("id") or ""), str(function.get("name", "")), function.get("arguments")


def _results(parts: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        if part.get("type") == "tool_call_response":
            yield str(part.get("id") or ""), part.get("response", part.get("result"))


def _older_results(message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if message.get("tool_call_id"):
        yield str(message["tool_call_id"]), message.get("content")


def _numbered(span: Span, side: str) -> list[SpanMessage]:
    """Messages spread over attributes: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`."""
    fields: dict[int, dict[str, str]] = {}
    for name, value in span.attributes.items():
        match = _NUMBERED.match(name)
        if match and match["side"] == side:
            fields.setdefault(int(match["n"]), {})[match["field"]] = str(value)
    return [
        SpanMessage(role=message.get("role", ""), text=message.get("content", ""))
        for _, message in sorted(fields.items())
    ]


def _from_events(span: Span) -> list[SpanMessage]:
    """Messages as span events: `gen_ai.user.message`."""
    return [
        SpanMessage(role=name.split(".")[1], text=str(attributes.get("content", "")))
        for name, attributes in span.events
        if name in ("gen_ai.user.message", "gen_ai.system.message", "gen_ai.assistant.message")
    ]


_CHATS = ("chat", "generate_content", "text_completion", "call_llm")
_TOOL = "execute_tool"
_AGENT = "invoke_agent"
_OTHER_KINDS = {"LLM": "chat", "TOOL": _TOOL, "tool": _TOOL, "AGENT": _AGENT, "agent": _AGENT}
_NAME = ("gen_ai.tool.name", "tool.name")
_INPUT = ("gen_ai.tool.call.arguments", "gen_ai.tool.args", "tool_arguments", "input.value", "tool.parameters")
_OUTPUT = ("gen_ai.tool.call.result", "gen_ai.tool.output", "gen_ai.output", "tool_response", "output.value")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model")


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one file, by conversation if the spans name one, else by trace. Raises TraceError.

    They are held until the file ends, as exporters mix traces and write a span when it has ended.
    """
    traces: dict[str, list[Span]] = {}
    for document in documents(lines):
        try:
            for span in spans_in(document):
                traces.setdefault(span.trace_id, []).append(span)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            why = str(error)[:200] if isinstance(error, SpanError) else "its layout is a different one"
            raise lines.fail(f"not an OpenTelemetry span: {why}; `--format` names other formats") from None
    conversations: dict[str, list[Span]] = {}
    for trace_id, spans in traces.items():
        if any(_operation(span) for span in spans):
            conversations.setdefault(_conversation(spans) or trace_id, []).extend(spans)
    if not conversations:
        raise lines.fail("no GenAI spans (`gen_ai.operation.name`) in it", about_file=True)
    for session_id, spans in conversations.items():
        try:
            yield _session(session_id, spans, lines.name)
        except msgspec.ValidationError:
            raise lines.fail("the tokens of a span are no whole number", about_file=True) from None
        except SpanError as error:
            raise lines.fail(str(error), about_file=True) from None


def _session(session_id: str, spans: list[Span], source: str) -> TraceSession:
    reader = _Reader(spans)
    for span in sorted(spans, key=lambda span: span.start):
        reader.add(span)
    providers = (span.first("gen_ai.provider.name", "gen_ai.system") for span in spans)
    log = TraceLog(session_id, str(next((name for name in providers if name), "otel")))
    for moment, _, kind, fields in sorted(reader.happened, key=lambda entry: entry[:2]):
        log.add(kind, at=at(moment), **fields)
    roots = [span for span in spans if _operation(span) == _AGENT and not span.parent_id]
    if roots and roots[-1].error is not None:
        log.add(ev.RunFailed, at=at(roots[-1].end), error=roots[-1].error)
    model = next((model for span in spans if (model := span.first(*_MODEL))), None)
    return log.session(source, "otel", {"model": model})


class _Reader:
    """Turns the spans of one session, ordered by their start, into events in order.

    A call with a span of its own ran. One that only a message requests ran if a later message has its result;
    otherwise it never ran. Every request repeats earlier messages, so each is reported once; only the latest of the
    user is reported again if another one was reported since.
    """

    def __init__(self, spans: list[Span]) -> None:
        self.happened: list[tuple[int, int, type[ev.Event], dict[str, Any]]] = []
        self._spans = {span.span_id: span for span in spans}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._messages: set[tuple[str, str]] = set()
        self._latest = ""
        self._names: dict[str, str] = {}
        tools = [span for span in spans if _operation(span) == _TOOL]
        chats = [span for span in spans if _operation(span) in _CHATS]
        self._with_span = {_call_id(span) for span in tools}
        self._results = {call for chat in chats for message in sent(chat) for call, _ in message.results}
        self._spans_have_no_ids = bool(tools) and not any(span.first("gen_ai.tool.call.id") for span in tools)
        self._usage_in_chats = any(_has_usage(span) for span in chats)

    def add(self, span: Span) -> None:
        operation = _operation(span)
        if operation in _CHATS:
            self._chat(span)
        elif operation == _TOOL:
            self._tool(span)
        if operation in _CHATS or (operation == _AGENT and not self._usage_in_chats):
            self._usage(span)

    def _add(self, moment: int, kind: type[ev.Event], **fields: Any) -> None:
        self.happened.append((moment, len(self.happened), kind, fields))

    def _chat(self, span: Span) -> None:
        caller = self._caller(span)
        if caller is None:
            self._turn += 1
            self._add(span.start, ev.TurnStarted, turn=self._turn)
        messages = sent(span)
        typed = (message for message in reversed(messages) if message.role == "user" and message.is_said)
        latest = next(typed, None) if caller is None else None
        for message in messages:
            again = message is latest and message.text != self._latest
            self._sent(span, message, by_user=caller is None, again=again)
        for message in answered(span):
            if message.text:
                self._messages.add(("assistant", message.text))
                self._add(span.end, ev.MessageReceived, content=message.text)
            for call in message.calls:
                self._request(span, *call)

    def _sent(self, span: Span, message: SpanMessage, *, by_user: bool, again: bool) -> None:
        if message.is_said and (again or (message.role, message.text) not in self._messages):
            self._messages.add((message.role, message.text))
            role = "assistant" if message.role == "user" and not by_user else message.role
            self._latest = message.text if role == "user" else self._latest
            self._add(span.start, message_kind(message.role), role=role, content=message.text)
        for call_id, value in message.results:
            if call_id in self._names:
                fields = {"tool_call_id": call_id, "tool_name": self._names.pop(call_id)}
                self._add(span.start, ev.ToolCallCompleted, **fields, tool_output=value)

    def _request(self, span: Span, call_id: str, name: str, arguments: Any) -> None:
        if call_id in self._with_span or self._spans_have_no_ids:
            return
        ran = call_id in self._results
        if ran:
            self._names[call_id] = name
        self._add(
            span.end,
            ev.ToolCallStarted if ran else ev.ToolCallRequested,
            tool_call_id=call_id,
            tool_name=name,
            tool_input=tool_input(arguments),
            turn=self._turn,
        )

    def _tool(self, span: Span) -> None:
        caller = self._caller(span)
        call_id = _call_id(span)
        turn = self._turns.get(caller or "", self._turn)
        self._turns[call_id] = turn
        fields = {"tool_call_id": call_id, "tool_name": _tool_name(span)}
        self._add(
            span.start,
            ev.ToolCallStarted,
            **fields,
            tool_input=tool_input(span.first(*_INPUT)),
            turn=turn,
            parent_tool_call_id=caller,
        )
        if span.error is not None:
            self._add(span.end, ev.ToolCallFailed, **fields, error=span.error)
        else:
            self._add(span.end, ev.ToolCallCompleted, **fields, tool_output=span.first(*_OUTPUT))

    def _caller(self, span: Span) -> str | None:
        """The call this span is part of, if its agent runs as a tool of another."""
        seen = {span.span_id}
        parent = self._spans.get(span.parent_id)
        while parent is not None and parent.span_id not in seen:
            if _operation(parent) == _TOOL:
                return _call_id(parent)
            seen.add(parent.span_id)
            parent = self._spans.get(parent.parent_id)
        return None

    def _usage(self, span: Span) -> None:
        if _has_usage(span):
            self._add(
                span.end,
                ev.TokenUsageUpdated,
                model=span.first(*_MODEL),
                input_tokens=_count(span, "input_tokens", "prompt_tokens"),
                output_tokens=_count(span, "output_tokens", "completion_tokens"),
                cache_read_tokens=_count(span, "cache_read.input_tokens"),
                cache_write_tokens=_count(span, "cache_creation.input_tokens"),
                reasoning_tokens=_count(span, "reasoning.output_tokens"),
            )


def _operation(span: Span) -> str:
    """The span's operation, by the GenAI conventions; "" for a span that is not theirs."""
    named = span.first("gen_ai.operation.name")
    if named is not None:
        return str(named)
    other = span.first("openinference.span.kind", "traceloop.span.kind")
    return _OTHER_KINDS.get(str(other), "") or (_TOOL if span.name.startswith(f"{_TOOL} ") else "")


def _conversation(spans: list[Span]) -> str:
    return next((str(name) for span in spans if (name := span.first("gen_ai.conversation.id"))), "")


def _call_id(span: Span) -> str:
    return str(span.first("gen_ai.tool.call.id") or span.span_id)


def _tool_name(span: Span) -> str:
    return str(span.first(*_NAME) or span.name.removeprefix(f"{_TOOL} "))


def _has_usage(span: Span) -> bool:
    return any(name.startswith("gen_ai.usage.") for name in span.attributes)


def _count(span: Span, *names: str) -> int:
    return msgspec.convert(span.first(*(f"gen_ai.usage.{name}" for name in names)) or 0, int, strict=False)
