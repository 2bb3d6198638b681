"""A session's events as a conversation for a model: messages, calls and their results."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from proctor.policies import events as ev
from proctor.supervisor.errors import UsageError

from .trace_lines import tool_input
from .values import to_jsonable


class TranscriptMessage(msgspec.Struct, kw_only=True):
    """A message of a user or the system."""

    role: str
    text: str


class TranscriptCall(msgspec.Struct, kw_only=True):
    """One call of a turn, with its result for the model."""

    id: str
    name: str
    input: dict[str, Any]
    result: str | None = None


class TranscriptTurn(msgspec.Struct, kw_only=True):
    """One turn of the model: its texts, then its calls."""

    texts: list[str] = []
    calls: list[TranscriptCall] = []
    turn: int = 0


Part: TypeAlias = TranscriptMessage | TranscriptTurn
_SO_FAR: Final = "This conversation continues an earlier one, which follows, one part a line:"
_NOW: Final = "The new message:"


def conversation(transcript: Iterable[ev.Event]) -> list[Part]:
    """The parts of a conversation in their order.

    Calls of subagents and calls without an outcome are left out, so that each call has its result.
    """
    parts: list[Part] = []
    calls: dict[tuple[str, str], TranscriptCall] = {}
    for event in transcript:
        if isinstance(event, ev.MessageSent):
            parts.append(TranscriptMessage(role=event.role, text=text_of(event.content)))
        elif isinstance(event, ev.MessageReceived):
            _current_turn(parts, None).texts.append(text_of(event.content))
        elif isinstance(event, (ev.ToolCallRequested, ev.ToolCallStarted)):
            _add_call(parts, calls, event)
        elif isinstance(event, ev.ToolOutcome):
            call = calls.get((event.run_id, event.tool_call_id))
            if call is not None:
                call.result = _result(event)
    return [part for part in map(_settled, parts) if part is not None]


def replay_prompt(transcript: Iterable[ev.Event], prompt: str) -> str:
    """`prompt` after the conversation of `transcript`, for a client that cannot be given messages.

    Each part is a line of JSON, so that no tool's output reads as a person's message.
    """
    parts = conversation(transcript)
    if not parts:
        return prompt
    lines = "\n".join(msgspec.json.encode(part).decode() for part in parts)
    return f"{_SO_FAR}\n\n{lines}\n\n{_NOW}\n\n{prompt}"


def text_of(content: Any) -> str:
    """The text of a message's content: text, or the texts of its blocks."""
    if isinstance(content, list):
        found = (block.get("text") for block in content if isinstance(block, dict))
        return "\n".join(text for text in found if isinstance(text, str))
    return content if isinstance(content, str) else as_text(content)


def as_text(value: Any) -> str:
    """A value as text for a model: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _add_call(parts: list[Part], calls: dict[tuple[str, str], TranscriptCall], event: ev.ToolEvent) -> None:
    key = (event.run_id, event.tool_call_id)
    if event.parent_tool_call_id is not None:
        return
    if key in calls:
        calls[key].input = event.tool_input
        return
    calls[key] = TranscriptCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input)
    _current_turn(parts, event.turn).calls.append(calls[key])


def _current_turn(parts: list[Part], turn: int | None) -> TranscriptTurn:
    """The current turn; `turn` is a call's number, None stands for a text, which begins a new turn."""
    last = parts[-1] if parts else None
    if isinstance(last, TranscriptTurn):
        if turn is None and not last.calls:
            return last
        if turn is not None and (not last.calls or last.turn == turn):
            last.turn = turn
            return last
    parts.append(TranscriptTurn(turn=turn or 0))
    return parts[-1]  # type: ignore[return-value]


def _result(event: ev.ToolOutcome) -> str | None:
    if isinstance(event, ev.ToolCallCompleted):
        return as_text(event.tool_output)
    if isinstance(event, ev.ToolCallFailed):
        return as_text(event.error)
    return event.tell_model or "" if isinstance(event, ev.ToolCallDenied) else None


def _settled(part: Part) -> Part | None:
    if isinstance(part, TranscriptMessage):
        return part
    part.calls = [call for call in part.calls if call.result is not None]
    part.texts = [text for text in part.texts if text]
    return part if part.texts or part.calls else None


_ITEMS: Final = ("message", "reasoning")
_NOT_INPUT: Final = ("id", "call_id", "type", "status", "output", "error")


class MessageCall(msgspec.Struct, kw_only=True):
    """One call that a list of messages has.

    Attributes:
        id: The call's id, as the model gave it.
        name: The tool.
        input: The arguments; anything but an object under the key `input`.
        turn: The turn that requests it, from 1.
        outcome: The call's outcome; None if the list has no result for it.
        output: The result for the model.
    """

    id: str
    name: str
    input: dict[str, Any]
    turn: int = 0
    outcome: Literal["completed", "failed"] | None = None
    output: Any = None


def extract_calls(messages: Iterable[Any]) -> list[MessageCall]:
    """The calls in a list of messages, in their order.

    Messages are objects of the library or their JSON: OpenAI's chat messages and items of its Responses API,
    Anthropic's messages with their blocks, messages of LangChain and pydantic-ai.

    Args:
        messages: the list, in the order of the conversation.

    Raises:
        UsageError: one of them is not a message.
    """
    calls: list[MessageCall] = []
    turn, answering = 0, False
    for number, given in enumerate(messages, 1):
        message = _as_data(given, number)
        requested = list(_requested(message))
        is_item = message.get("type") in _ITEMS or _is_call(message)
        speaks = bool(requested) or _is_response(message)
        if speaks and not (answering and is_item):
            turn += 1
        answering = speaks and (is_item or answering)
        same_turn = {call.id for call in calls if call.turn == turn}
        for call in requested:
            if call.id not in same_turn:  # some libraries list a call with the message and among its blocks
                same_turn.add(call.id)
                calls.append(msgspec.structs.replace(call, turn=turn))
        for call_id, output, failed in _results(message):
            found = next((call for call in reversed(calls) if call.id == call_id), None)
            if found is not None:
                found.outcome, found.output = "failed" if failed else "completed", output
    return calls


def _as_data(given: Any, number: int) -> dict[str, Any]:
    message = to_jsonable(given)
    if isinstance(given, tuple) and len(given) == 2:  # LangChain's short form: who, and what
        message = {"role": given[0], "content": to_jsonable(given[1])}
    if not isinstance(message, dict):
        raise UsageError(f"message {number} is none: `{type(given).__name__}` instead of an object or a dictionary")
    inner = message.get("data")
    return {**inner, "type": message.get("type")} if isinstance(inner, dict) else message


def _is_response(message: dict[str, Any]) -> bool:
    is_answer = message.get("role") == "assistant" or message.get("type") in ("ai", "AIMessageChunk", "reasoning")
    return is_answer or message.get("kind") == "response"


def _is_call(message: dict[str, Any]) -> bool:
    return str(message.get("type")).endswith("_call")


def _objects(message: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        found = message.get(name)
        yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


def _requested(message: dict[str, Any]) -> Iterator[MessageCall]:
    """The calls that a message requests, in each library's way to write them."""
    for call in _objects(message, "tool_calls", "invalid_tool_calls"):
        what = next((call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), dict)), call)
        yield _call(call.get("id"), what.get("name"), _given(what))
    for part in _objects(message, "content", "parts"):
        if str(part.get("type")).endswith("tool_use"):
            yield _call(part.get("id"), part.get("name"), _given(part))
        elif str(part.get("part_kind")).endswith("tool-call"):
            yield _call(part.get("tool_call_id"), part.get("tool_name"), _given(part))
    if _is_call(message):
        kind = message["type"].removesuffix("_call")
        rest = {name: value for name, value in message.items() if name not in _NOT_INPUT and value is not None}
        given = _given(message) if {"arguments", "input"} & message.keys() else rest
        yield _call(message.get("call_id") or message.get("id"), message.get("name") or kind, given)


def _results(message: dict[str, Any]) -> Iterator[tuple[Any, Any, bool]]:
    """The results in a message, each with its call, its value, and whether it is a failure."""
    kind = str(message.get("type"))
    if kind.endswith("_call_output"):
        yield message.get("call_id"), message.get("output"), message.get("status") in ("failed", "incomplete")
    elif _is_call(message) and (message.get("output") or message.get("error")) is not None:
        yield message.get("id"), message.get("error") or message.get("output"), bool(message.get("error"))
    elif message.get("tool_call_id") is not None:
        yield message["tool_call_id"], message.get("content"), message.get("status") == "error"
    for part in _objects(message, "content", "parts"):
        what = str(part.get("part_kind"))
        if part.get("tool_use_id") is not None:
            yield part["tool_use_id"], part.get("content"), bool(part.get("is_error"))
        elif what.endswith("tool-return") or (what == "retry-prompt" and part.get("tool_name")):
            succeeded = what != "retry-prompt" and part.get("outcome", "success") == "success"
            yield part.get("tool_call_id"), part.get("content"), not succeeded


def _call(call_id: Any, name: Any, given: Any) -> MessageCall:
    return MessageCall(id=str(call_id or ""), name=str(name or ""), input=given)


def _given(call: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments as an object, whatever their key."""
    return tool_input(
        next((call[name] for name in ("arguments", "args", "input") if call.get(name) is not None), None)
    )
