"""A real langchain agent with a scripted model, under `supervise`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from proctor.adapters import supervise
from proctor.policies import Deny, Limits, Policy, PolicyViolationError
from proctor.policies.events import ToolCallFailed, ToolCallStarted

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not find_spec("langchain"), reason="langchain is not installed: pip install '.[langchain]'"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def scripted(
    script: Iterable[AIMessage], tools: list[Any], gate: Any, *, narrow: bool = True
) -> tuple[Any, list[list[str]]]:
    """An agent whose model returns scripted messages, and the tools that the model was offered each time."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    from proctor.adapters.agents.langchain import Supervision

    offered: list[list[str]] = []

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            offered.append([tool.name for tool in tools])
            return self

    watched = Supervision(gate) if narrow else Supervision(gate, narrow=False)
    return create_agent(Scripted(messages=iter(script)), tools=tools, middleware=[watched]), offered


def response(text: str = "", *calls: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """A model response with text and calls: id, name and arguments of each."""
    from langchain_core.messages import AIMessage

    tool_calls = [{"id": call_id, "name": name, "args": args} for call_id, name, args in calls]
    used = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    return AIMessage(text, tool_calls=tool_calls, usage_metadata=used)


def agent(directory: Path, gate: Any, *script: AIMessage) -> Any:
    """An agent with tools that write and remove files."""

    async def make(path: str) -> str:
        """Make a file."""
        (directory / path).touch()
        return path

    async def rm(path: str) -> str:
        """Remove a file."""
        (directory / path).unlink()
        return path

    return scripted(script, [make, rm], gate)[0]


async def test_a_denied_call_has_no_effect_and_the_model_gets_the_reason(tmp_path: Path) -> None:
    """Parallel calls run. Usage and turns are reported."""
    policy = Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),))
    script = (response("", ("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"})), response("done"))
    async with supervise([policy], prompt="go") as gate:
        ended = await agent(tmp_path, gate, *script).ainvoke({"messages": [("user", "go")]})
        gate.output = ended["messages"][-1].text

    tool_results = {m.tool_call_id: m.text for m in ended["messages"] if m.type == "tool"}
    assert (tmp_path / "a").exists()
    assert tool_results == {"1": "a", "2": "Tool 'rm' is not available in this context."}
    assert (gate.result.output, gate.result.usage.total_tokens) == ("done", 22)
    assert [(e.tool_call_id, e.turn) for e in gate.result.events if isinstance(e, ToolCallStarted)] == [("1", 1)]


async def test_tools_that_the_provider_runs_are_reported(tmp_path: Path) -> None:
    """By name, with the server's for MCP tools. A policy that denies one ends the run."""
    blocks: list[str | dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
        {"type": "mcp_tool_use", "id": "m1", "name": "push", "server_name": "git", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [], "is_error": False},
    ]
    ran = response().model_copy(update={"content": blocks, "response_metadata": {"model_provider": "anthropic"}})
    async with supervise([Policy(name="p", limits=Limits(max_tool_calls=2))], prompt="go") as gate:
        await agent(tmp_path, gate, ran).ainvoke({"messages": [("user", "go")]})
    with pytest.raises(PolicyViolationError) as raised:
        async with supervise([Policy(name="p", tool_rules=(Deny(("mcp__git__push",)),))], prompt="go") as gate:
            await agent(tmp_path, gate, ran).ainvoke({"messages": [("user", "go")]})

    started = [e for e in raised.value.partial.events if isinstance(e, ToolCallStarted)]
    assert [(e.tool_call_id, e.tool_name, e.tool_input, e.turn) for e in started] == [
        ("s1", "web_search", {"query": "x"}, 1),
        ("m1", "mcp__git__push", {}, 1),
    ]
    assert [violation.enforcement for violation in raised.value.violations] == ["interrupted"]


async def test_a_token_limit_stops_the_calls_of_the_response_that_exceeds_it(tmp_path: Path) -> None:
    """The agent is cancelled where it awaits."""
    script = (response("", ("1", "make", {"path": "a"})), response("", ("2", "make", {"path": "b"})))
    with pytest.raises(PolicyViolationError):
        async with supervise([Policy(name="p", limits=Limits(max_total_tokens=15))]) as gate:
            await agent(tmp_path, gate, *script).ainvoke({"messages": [("user", "go")]})

    assert [path.name for path in tmp_path.iterdir()] == ["a"]  # noqa: ASYNC240


async def test_a_call_with_invalid_arguments_has_failed(tmp_path: Path) -> None:
    """Although the framework turns the error into a message."""
    async with supervise([Policy(name="open")]) as gate:
        running = agent(tmp_path, gate, response("", ("1", "make", {"no": "x"})), response("done"))
        ended = await running.ainvoke({"messages": [("user", "go")]})

    assert ended["messages"][-1].text == "done"
    assert [e.tool_call_id for e in gate.result.events if isinstance(e, ToolCallFailed)] == ["1"]


async def test_the_calls_of_an_agent_that_a_tool_runs_name_that_tools_call_and_count(tmp_path: Path) -> None:
    """Its responses belong to its parent's, with any ids of its model; its usage counts."""
    policy = Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),), limits=Limits(max_turns=2))
    tool_calls = (("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"}))
    async with supervise([policy]) as gate:
        inner = agent(tmp_path, gate, response("", *tool_calls), response("made"))

        async def delegate() -> str:
            """Have another agent do it."""
            return str((await inner.ainvoke({"messages": [("user", "sub")]}))["messages"][-1].text)

        outer, _ = scripted((response("", ("1", "delegate", {})), response("done")), [delegate], gate)
        gate.output = (await outer.ainvoke({"messages": [("user", "go")]}))["messages"][-1].text

    started = [event for event in gate.result.events if isinstance(event, ToolCallStarted)]
    assert [(e.tool_call_id, e.parent_tool_call_id, e.turn) for e in started] == [("1", None, 1), ("1.1", "1", 1)]
    assert [v.tool_call_id for v in gate.result.policy.violations] == ["1.2"]
    assert (gate.result.output, gate.result.usage.total_tokens) == ("done", 44)


async def test_an_agent_that_is_not_awaited_runs_nothing(tmp_path: Path) -> None:
    """Its calls could not be held."""
    async with supervise([Policy(name="open")]) as gate:
        with pytest.raises(RuntimeError, match="`ainvoke`"):
            agent(tmp_path, gate, response("x")).invoke({"messages": [("user", "go")]})


@pytest.mark.parametrize("narrow", [True, False])
async def test_a_call_of_a_tool_that_was_not_offered_is_evaluated(narrow: bool) -> None:
    """The gate denies it, and the run continues."""

    async def make(path: str) -> str:
        """Make a file."""
        return path

    async def rm(path: str) -> str:
        """Remove a file."""
        raise AssertionError

    script = (response("", ("1", "rm", {"path": "a"})), response("done"))
    policy = Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),))
    async with supervise([policy]) as gate:
        running, offered = scripted(script, [make, rm], gate, narrow=narrow)
        gate.output = (await running.ainvoke({"messages": [("user", "go")]}))["messages"][-1].text

    assert offered == [["make"] if narrow else ["make", "rm"]] * 2
    calls = [event.type for event in gate.result.events if "tool_call" in event.type]
    assert calls == ["tool_call_requested", "tool_call_denied"]
    assert ([v.tool_name for v in gate.result.policy.violations], gate.result.output) == (["rm"], "done")
