"""The calls in a framework's list of messages, whichever of the usual forms it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from proctor.supervisor.errors import UsageError

from .values import plain

_ITEMS: Final = ("message", "reasoning")
_NOT_INPUT: Final = ("id", "call_id", "type", "status", "output", "error")


class MessageCall(msgspec.Struct, kw_only=True):
    """One call that a list of messages has.

    Attributes:
        id: The call's id, as the model gave it.
        name: The tool.
        input: The arguments; what is no object stands under `input`.
        turn: The number of the model's response that asks for it, from 1.
        outcome: The call's outcome; None if the list has no result for it.
        output: The result that the model was given.
    """

    id: str
    name: str
    input: dict[str, Any]
    turn: int = 0
    outcome: Literal["completed", "failed"] | None = None
    output: Any = None


def extract_calls(messages: Iterable[Any]) -> list[MessageCall]:
    """The calls in a list of messages, in their order.

    Messages are objects of the library or what they are as JSON: OpenAI's chat messages and items of its Responses
    API, Anthropic's messages with their blocks, LangChain's messages, messages of pydantic-ai.

    Args:
        messages: the list, in the order of the conversation.

    Raises:
        UsageError: one of them is no message.
    """
    calls: list[MessageCall] = []
    turn, answering = 0, False
    for number, given in enumerate(messages, 1):
        message = _as_data(given, number)
        requested = list(_requested(message))
        is_item = message.get("type") in _ITEMS or _is_call(message)
        speaks = bool(requested) or _is_response(message)
        turn += speaks and not (answering and is_item)
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
    message = plain(given)
    if isinstance(given, tuple) and len(given) == 2:  # LangChain's short form: who, and what
        message = {"role": given[0], "content": plain(given[1])}
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
    """The results that a message has: of which call, what it is, and whether it tells of a failure."""
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
    """A call's arguments, under whichever name they stand, as an object."""
    value = next((call[name] for name in ("arguments", "args", "input") if call.get(name) is not None), None)
    found = value
    if isinstance(value, str):
        try:
            found = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            found = value
    if isinstance(found, dict):
        return found
    return {} if found is None or found == "" else {"input": value}
