"""The calls in a list of messages, of real libraries' objects and of their JSON."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.adapters.kit import MessageCall, extract_calls
from proctor.adapters.kit.values import to_jsonable
from proctor.supervisor.errors import UsageError


def expected(*, second: Any, first: Any = "one") -> list[MessageCall]:
    """Two calls of one response and one of the next, which has no result yet."""
    return [
        MessageCall(id="a", name="make", input={"path": "x"}, turn=1, outcome="completed", output=first),
        MessageCall(id="b", name="rm", input={"path": "y"}, turn=1, **second),
        MessageCall(id="c", name="make", input={}, turn=2),
    ]


def test_of_openai_chat() -> None:
    """Objects and dictionaries, mixed as a loop has them; the protocol does not say what failed."""
    chat = pytest.importorskip("openai.types.chat")

    def asking(*calls: tuple[str, str, str]) -> Any:
        made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        return chat.ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": made})

    messages = [
        {"role": "user", "content": "go"},
        asking(("a", "make", '{"path": "x"}'), ("b", "rm", '{"path": "y"}')),
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        asking(("c", "make", "")),
    ]

    assert extract_calls(messages) == expected(second={"outcome": "completed", "output": "two"})
    assert extract_calls(to_jsonable(messages)) == extract_calls(messages)


def test_of_openai_responses() -> None:
    """Items one after another belong to one response until somebody else speaks."""
    responses = pytest.importorskip("openai.types.responses")

    def asking(call_id: str, name: str, arguments: str) -> Any:
        return responses.ResponseFunctionToolCall(
            type="function_call", call_id=call_id, name=name, arguments=arguments
        )

    messages = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "r", "summary": []},
        asking("a", "make", '{"path": "x"}'),
        asking("b", "rm", '{"path": "y"}'),
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "now"}]},
        asking("c", "make", "{}"),
    ]

    assert extract_calls(messages) == expected(second={"outcome": "completed", "output": "two"})
    assert extract_calls(to_jsonable(messages)) == extract_calls(messages)


def test_of_anthropic() -> None:
    """Blocks of the messages' content."""
    messages: list[Any] = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "first"},
                {"type": "tool_use", "id": "a", "name": "make", "input": {"path": "x"}},
                {"type": "tool_use", "id": "b", "name": "rm", "input": {"path": "y"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "make", "input": {}}]},
    ]

    assert extract_calls(messages) == expected(second={"outcome": "failed", "output": "no"})


def test_of_langchain() -> None:
    """A call that stands with the message and among its blocks is one."""
    core = pytest.importorskip("langchain_core.messages")
    block = {"type": "tool_use", "id": "a", "name": "make", "input": {"path": "x"}}
    first = [{"id": "a", "name": "make", "args": {"path": "x"}}, {"id": "b", "name": "rm", "args": {"path": "y"}}]
    messages = [
        core.HumanMessage("go"),
        core.AIMessage([block], tool_calls=first),
        core.ToolMessage("one", tool_call_id="a"),
        core.ToolMessage("no", tool_call_id="b", status="error"),
        core.AIMessage("", tool_calls=[{"id": "c", "name": "make", "args": {}}]),
    ]

    assert extract_calls(messages) == expected(second={"outcome": "failed", "output": "no"})
    assert extract_calls(to_jsonable(messages)) == extract_calls(messages)
    assert extract_calls(core.messages_to_dict(messages)) == extract_calls(messages)
    unreadable = {"id": "d", "name": "make", "args": "{", "error": "no JSON"}
    [call] = extract_calls([("user", "go"), core.AIMessage("", invalid_tool_calls=[unreadable])])
    assert (call.id, call.input, call.turn) == ("d", {"input": "{"}, 1)


def test_of_pydantic_ai() -> None:
    """Parts of its messages, a call that is to be repeated among them."""
    parts = pytest.importorskip("pydantic_ai.messages")
    messages = [
        parts.ModelRequest(parts=[parts.UserPromptPart("go")]),
        parts.ModelResponse(
            parts=[
                parts.ToolCallPart("make", {"path": "x"}, tool_call_id="a"),
                parts.ToolCallPart("rm", '{"path": "y"}', tool_call_id="b"),
            ]
        ),
        parts.ModelRequest(
            parts=[
                parts.ToolReturnPart(tool_name="make", content={"made": 1}, tool_call_id="a"),
                parts.ToolReturnPart(tool_name="rm", content="no", tool_call_id="b", outcome="retried"),
            ]
        ),
        parts.ModelResponse(parts=[parts.ToolCallPart("make", None, tool_call_id="c")]),
    ]

    wanted = expected(first={"made": 1}, second={"outcome": "failed", "output": "no"})
    assert extract_calls(messages) == wanted
    older = to_jsonable(messages)
    older[2]["parts"][1] = {"part_kind": "retry-prompt", "content": "no", "tool_name": "rm", "tool_call_id": "b"}
    assert extract_calls(older) == wanted
    assert extract_calls(to_jsonable(messages)) == extract_calls(messages)


def test_of_what_the_provider_runs_itself_and_ids_that_come_again() -> None:
    """A result belongs to the latest call of its id; a result without a call is nothing."""
    again: list[Any] = [
        {"type": "mcp_call", "id": "m", "name": "find", "arguments": "{}", "output": None, "error": "gone"},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q"}},
        {"type": "function_call_output", "call_id": "nobody", "output": "?"},
        {"role": "assistant", "tool_calls": [{"id": "m", "function": {"name": "find", "arguments": "[1]"}}]},
        {"role": "tool", "tool_call_id": "m", "content": "there"},
    ]

    found = [(call.name, call.input, call.turn, call.outcome, call.output) for call in extract_calls(again)]
    assert found == [
        ("find", {}, 1, "failed", "gone"),
        ("web_search", {"action": {"query": "q"}}, 1, None, None),
        ("find", {"input": "[1]"}, 2, "completed", "there"),
    ]


@pytest.mark.parametrize("message", ["go", 7, None, ["x"]])
def test_what_is_no_message_is_an_error_that_says_which(message: Any) -> None:
    """By its place in the list."""
    with pytest.raises(UsageError, match=r"^message 2 is none: "):
        extract_calls([{"role": "user", "content": "go"}, message])
