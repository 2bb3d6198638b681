"""OpenTelemetry GenAI traces: `invoke_agent`, `chat` and `execute_tool` spans, one trace a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proctor.policies.stream.events import (
    Event,
    MessageReceived,
    RunFailed,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnStarted,
)

from ..lines import TraceLines, documents
from ..session import EventLog, TraceSession
from ..values import message_kind, tool_input
from .messages import SpanMessage, answered, sent
from .spans import Span, SpanError, at, spans_in

_CHATS = ("chat", "generate_content", "text_completion", "call_llm")
_TOOL = "execute_tool"
_AGENT = "invoke_agent"
_OTHER_KINDS = {"LLM": "chat", "TOOL": _TOOL, "tool": _TOOL, "AGENT": _AGENT, "agent": _AGENT}

_NAME = ("gen_ai.tool.name", "tool.name")
_INPUT = (
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.args",
    "tool_arguments",
    "input.value",
    "tool.parameters",
)
_OUTPUT = (
    "gen_ai.tool.call.result",
    "gen_ai.tool.output",
    "gen_ai.output",
    "tool_response",
    "output.value",
)
_MODEL = ("gen_ai.response.model", "gen_ai.request.model")


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one file: a conversation where the spans name one, else a trace. Raises TraceError.

    They are held until the file ends, since exporters mix traces and write a span when it has ended.
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
    if traces and not conversations:
        raise lines.fail("no GenAI spans (`gen_ai.operation.name`) in it", whole_file=True)
    for session_id, spans in conversations.items():
        yield _session(session_id, spans, lines.name)


def _session(session_id: str, spans: list[Span], source: str) -> TraceSession:
    reader = _Reader(spans)
    for span in sorted(spans, key=lambda span: span.start):
        reader.take(span)
    providers = (span.first("gen_ai.provider.name", "gen_ai.system") for span in spans)
    log = EventLog(session_id, str(next((name for name in providers if name), "otel")))
    for moment, _, kind, fields in sorted(reader.happened, key=lambda entry: entry[:2]):
        log.add(kind, at=at(moment), **fields)
    roots = [span for span in spans if _operation(span) == _AGENT and not span.parent_id]
    if roots and roots[-1].error is not None:
        log.add(RunFailed, at=at(roots[-1].end), error=roots[-1].error)
    model = next((model for span in spans if (model := span.first(*_MODEL))), None)
    return log.session(source, "otel", {"model": model})


class _Reader:
    """Turns the spans of one session, given by their start, into what happened when.

    A call with a span of its own ran. One that only a message asks for ran if a later message brings its
    result; otherwise it was requested and never ran. Every request repeats the messages before it, so each
    is told once.
    """

    def __init__(self, spans: list[Span]) -> None:
        self.happened: list[tuple[int, int, type[Event], dict[str, Any]]] = []
        self._spans = {span.span_id: span for span in spans}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._messages: set[tuple[str, str]] = set()
        self._names: dict[str, str] = {}
        tools = [span for span in spans if _operation(span) == _TOOL]
        chats = [span for span in spans if _operation(span) in _CHATS]
        self._with_span = {_call_id(span) for span in tools}
        self._results = {call for chat in chats for message in sent(chat) for call, _ in message.results}
        self._spans_have_no_ids = bool(tools) and not any(span.first("gen_ai.tool.call.id") for span in tools)
        self._usage_in_chats = any(_has_usage(span) for span in chats)

    def take(self, span: Span) -> None:
        """Add what one span says."""
        operation = _operation(span)
        if operation in _CHATS:
            self._chat(span)
        elif operation == _TOOL:
            self._tool(span)
        if operation in _CHATS or (operation == _AGENT and not self._usage_in_chats):
            self._usage(span)

    def _add(self, moment: int, kind: type[Event], **fields: Any) -> None:
        self.happened.append((moment, len(self.happened), kind, fields))

    def _chat(self, span: Span) -> None:
        caller = self._caller(span)
        if caller is None:
            self._turn += 1
            self._add(span.start, TurnStarted, turn=self._turn)
        for message in sent(span):
            self._sent(span, message, by_user=caller is None)
        for message in answered(span):
            if message.text:
                self._messages.add(("assistant", message.text))
                self._add(span.end, MessageReceived, content=message.text)
            for call in message.calls:
                self._request(span, *call)

    def _sent(self, span: Span, message: SpanMessage, *, by_user: bool) -> None:
        if message.text and (message.role, message.text) not in self._messages and not message.results:
            self._messages.add((message.role, message.text))
            role = "assistant" if message.role == "user" and not by_user else message.role
            self._add(span.start, message_kind(message.role), role=role, content=message.text)
        for call_id, value in message.results:
            if call_id in self._names:
                fields = {"tool_call_id": call_id, "tool_name": self._names.pop(call_id)}
                self._add(span.start, ToolCallCompleted, **fields, tool_output=value)

    def _request(self, span: Span, call_id: str, name: str, arguments: Any) -> None:
        if call_id in self._with_span or self._spans_have_no_ids:
            return
        ran = call_id in self._results
        if ran:
            self._names[call_id] = name
        self._add(
            span.end,
            ToolCallStarted if ran else ToolCallRequested,
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
            ToolCallStarted,
            **fields,
            tool_input=tool_input(span.first(*_INPUT)),
            turn=turn,
            parent_tool_call_id=caller,
        )
        if span.error is not None:
            self._add(span.end, ToolCallFailed, **fields, error=span.error)
        else:
            self._add(span.end, ToolCallCompleted, **fields, tool_output=span.first(*_OUTPUT))

    def _caller(self, span: Span) -> str | None:
        """The call this span is part of: that of the agent which runs as a tool of another."""
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
                TokenUsageUpdated,
                model=span.first(*_MODEL),
                input_tokens=_count(span, "input_tokens", "prompt_tokens"),
                output_tokens=_count(span, "output_tokens", "completion_tokens"),
                cache_read_tokens=_count(span, "cache_read.input_tokens"),
                cache_write_tokens=_count(span, "cache_creation.input_tokens"),
                reasoning_tokens=_count(span, "reasoning.output_tokens"),
            )


def _operation(span: Span) -> str:
    """What the span is of, in the words of the GenAI conventions; "" for one that is not theirs."""
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
    value = span.first(*(f"gen_ai.usage.{name}" for name in names))
    return value if isinstance(value, int) else 0
