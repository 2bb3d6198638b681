"""OpenTelemetry GenAI traces, in the JSON forms of several exporters."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.traces import TraceError, TraceSession, read_sessions
from proctor.policies import events as ev

SECOND = 1_000_000_000


def span(name: str, id: str, start: int, end: int, parent: str = "root", **attributes: Any) -> dict[str, Any]:
    """A span with plain attributes; `__` in their names stands for a dot; times in seconds."""
    return {
        "traceId": "trace-1",
        "spanId": id,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(start * SECOND),
        "endTimeUnixNano": str(end * SECOND),
        "attributes": {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()},
    }


def chat(id: str, start: int, end: int, parent: str = "root", **attributes: Any) -> dict[str, Any]:
    usage = {"usage__input_tokens": 10, "usage__output_tokens": 2, "request__model": "m"}
    return span("chat m", id, start, end, parent, operation__name="chat", **{**usage, **attributes})


def tool(id: str, start: int, end: int, parent: str = "root", **attributes: Any) -> dict[str, Any]:
    """A call of the tool `look`."""
    named = {"operation__name": "execute_tool", "tool__name": "look", "tool__call__id": f"call-{id}"}
    return span("execute_tool look", id, start, end, parent, **{**named, **attributes})


ROOT = {**span("invoke_agent a", "root", 1, 20, "", operation__name="invoke_agent"), "parentSpanId": ""}


def types(session: TraceSession) -> list[str]:
    return [event.type for event in session.events]


def test_a_trace_is_read_in_the_order_of_its_times(read_one: Callable[..., TraceSession]) -> None:
    """Spans are written when they end, the outermost last. Parallel calls overlap."""
    session = read_one(
        tool("b", 4, 5),
        tool("a", 3, 6, tool__call__arguments='{"at": "sky"}', tool__call__result='{"n": 1}'),
        chat("c1", 2, 3),
        chat("c2", 7, 8),
        ROOT,
    )

    assert types(session) == [
        *("turn_started", "token_usage_updated", "tool_call_started", "tool_call_started", "tool_call_completed"),
        *("tool_call_completed", "turn_started", "token_usage_updated"),
    ]
    first = session.events[2]
    assert isinstance(first, ev.ToolCallStarted)
    assert (first.tool_call_id, first.tool_name, first.tool_input, first.turn) == ("call-a", "look", {"at": "sky"}, 1)
    done = next(e for e in session.events if isinstance(e, ev.ToolCallCompleted) and e.tool_call_id == "call-a")
    assert done.tool_output == '{"n": 1}'
    assert first.at is not None
    assert first.at.timestamp() == 3
    assert (session.id, session.metadata) == ("trace-1", {"model": "m"})


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    """An OTLP export: attributes as lists of typed values."""
    typed: dict[type, Callable[[Any], dict[str, Any]]] = {
        int: lambda value: {"intValue": str(value)},
        str: lambda value: {"stringValue": value},
    }

    def packed(one: dict[str, Any]) -> dict[str, Any]:
        pairs = [{"key": key, "value": typed[type(value)](value)} for key, value in one["attributes"].items()]
        return {**one, "attributes": pairs}

    scopes = [{"scope": {"name": "x"}, "spans": [packed(one) for one in spans]}]
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": scopes}]}


def console(one: dict[str, Any]) -> str:
    """A span as the Python SDK's console exporter writes it: on several lines, with ids in a context."""
    return json.dumps(
        {
            "name": one["name"],
            "context": {"trace_id": one["traceId"], "span_id": one["spanId"], "trace_state": "[]"},
            "parent_id": one["parentSpanId"] or None,
            "start_time": f"1970-01-01T00:00:{int(one['startTimeUnixNano']) // SECOND:02}.000000Z",
            "end_time": f"1970-01-01T00:00:{int(one['endTimeUnixNano']) // SECOND:02}.000000Z",
            "status": {"status_code": "UNSET"},
            "attributes": one["attributes"],
        },
        indent=4,
    )


def test_every_exporters_form_gives_the_same_session(write: Callable[..., str], tmp_path: Path) -> None:
    """A span a line, an OTLP export a line, one indented export, console output."""
    spans = [chat("c1", 2, 3), tool("a", 3, 6), ROOT]
    laid_out, printed = tmp_path / "export.json", tmp_path / "console.json"
    laid_out.write_text(json.dumps(otlp(*spans), indent=2))
    printed.write_text("\n".join(console(one) for one in spans))
    paths = [write(*spans), write(otlp(*spans[:1]), otlp(*spans[1:]), name="x.jsonl"), str(laid_out), str(printed)]

    sessions = [next(read_sessions([path])) for path in paths]

    assert all(session.events == sessions[0].events for session in sessions)
    assert len(sessions[0].events) == 4


def test_a_failed_span_is_a_failed_call_or_run(read_one: Callable[..., TraceSession]) -> None:
    """By its status, or by `error.type` alone. Obligations stay open then."""
    by_status = {**tool("a", 3, 4), "status": {"code": 2, "message": "no network"}}
    by_type = tool("b", 5, 6)
    by_type["attributes"]["error.type"] = "TimeoutError"
    root = {**ROOT, "status": {"code": "STATUS_CODE_ERROR", "message": "out of money"}}

    events = read_one(root, by_status, by_type).events

    assert [event.error for event in events if isinstance(event, ev.ToolCallFailed)] == ["no network", "TimeoutError"]
    assert isinstance(events[-1], ev.RunFailed)
    assert events[-1].error == "out of money"


def test_an_agent_run_as_a_tool_has_the_turn_of_its_call(read_one: Callable[..., TraceSession]) -> None:
    """Its responses are no turns of the session, and its prompt is not the user's."""
    prompt = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "go on"}]}])
    session = read_one(
        ROOT,
        chat("c1", 2, 3),
        tool("agent", 3, 9),
        chat("inner", 4, 5, "agent", input__messages=prompt),
        tool("deep", 6, 7, "inner"),
        chat("c2", 10, 11),
    )

    calls = [event for event in session.events if isinstance(event, ev.ToolCallStarted)]
    assert [(call.tool_call_id, call.turn, call.parent_tool_call_id) for call in calls] == [
        ("call-agent", 1, None),
        ("call-deep", 1, "call-agent"),
    ]
    assert types(session).count("turn_started") == 2
    assert [event.role for event in session.events if isinstance(event, ev.MessageSent)] == ["assistant"]


def messages(*parts: tuple[str, dict[str, Any]]) -> str:
    """Messages of one part each, as the attribute holds them."""
    return json.dumps([{"role": role, "parts": [part]} for role, part in parts])


def test_messages_repeated_by_later_requests_are_read_once(read_one: Callable[..., TraceSession]) -> None:
    """Each request has the whole conversation. If the user repeats a message, it is the latest again."""
    ask = ("user", {"type": "text", "content": "who?"})
    answer = ("assistant", {"type": "text", "content": "me"})
    more = ("user", {"type": "text", "content": "and why?"})

    session = read_one(
        ROOT,
        chat("c1", 2, 3, input__messages=messages(ask), output__messages=messages(answer)),
        chat("c2", 4, 5, input__messages=messages(ask, answer, more)),
        chat("c3", 6, 7, input__messages=messages(ask, answer, more, ask)),
        chat("c4", 8, 9, input__messages=messages(ask, answer, more, ask, answer)),
    )

    contents = [event.content for event in session.events if isinstance(event, ev.MessageEvent)]
    assert contents == ["who?", "me", "and why?", "who?"]


def test_calls_without_spans_are_read_from_the_messages(read_one: Callable[..., TraceSession]) -> None:
    """A call whose result is in a later request ran; one without was only requested."""
    call = {"type": "tool_call", "id": "k1", "name": "look", "arguments": {"at": "sky"}}
    result = {"type": "tool_call_response", "id": "k1", "response": "blue"}

    session = read_one(
        chat("c1", 2, 3, output__messages=messages(("assistant", call), ("assistant", {**call, "id": "k2"}))),
        chat("c2", 4, 5, input__messages=messages(("assistant", call), ("tool", result))),
    )

    about_calls = [(event.type, event.tool_call_id) for event in session.events if hasattr(event, "tool_call_id")]
    assert about_calls == [("tool_call_started", "k1"), ("tool_call_requested", "k2"), ("tool_call_completed", "k1")]


def test_the_traces_of_one_conversation_are_one_session(read_one: Callable[..., TraceSession]) -> None:
    """A conversation may have several runs."""
    first = chat("c1", 2, 3, conversation__id="talk")
    second = {**chat("c2", 4, 5, conversation__id="talk"), "traceId": "trace-2"}

    session = read_one(first, second)

    assert (session.id, types(session).count("turn_started")) == ("talk", 2)


def test_usage_of_the_whole_agent_counts_only_if_responses_have_none(read_one: Any) -> None:
    """It is their sum."""
    total = {**ROOT, "attributes": {**ROOT["attributes"], "gen_ai.usage.input_tokens": 99}}
    bare = {**chat("c", 2, 3), "attributes": {"gen_ai.operation.name": "chat"}}

    def counted(session: TraceSession) -> list[int]:
        return [event.input_tokens for event in session.events if isinstance(event, ev.TokenUsageUpdated)]

    assert counted(read_one(total, chat("c", 2, 3))) == [10]
    assert counted(read_one(total, bare)) == [99]
    assert counted(read_one(chat("c", 2, 3, usage__input_tokens=7.0), chat("d", 4, 5, usage__input_tokens="8"))) == [
        7,
        8,
    ]


@pytest.mark.parametrize(("content", "message"), [
    ({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}, "not an OpenTelemetry span: it has no id"),
    ({"resourceSpans": 3}, "its layout is a different one; `--format` names other formats"),
    (b"3", "neither an object nor a list"),
    ({**ROOT, "startTimeUnixNano": "soon"}, "not an OpenTelemetry span: `soon` is not a time"),
    ({**ROOT, "attributes": {}}, "no GenAI spans"),
    ({"resourceSpans": []}, "no GenAI spans"),
    (chat("c", 2, 3, output__messages='[{"role": "a'), "`gen_ai.output.messages` of the span `c` is not JSON"),
    (chat("c", 2, 3, usage__input_tokens="many"), "the tokens of a span are no whole number"),
    (b'{"a": ', "not JSON"),
])  # fmt: skip
def test_a_trace_without_genai_spans_is_an_error(write: Callable[..., str], content: Any, message: str) -> None:
    """With file and line."""
    with pytest.raises(TraceError, match=message) as caught:
        list(read_sessions([write(content)], format="otel"))

    assert "trace.jsonl" in caught.value.place
