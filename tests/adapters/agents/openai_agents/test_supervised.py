"""Real agents of the OpenAI Agents SDK under the real supervisor, over a loopback API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import Deny, Limits, Policy, PolicyViolationError
from proctor.policies.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted, TurnStarted
from proctor.supervisor import Supervisor, run_once
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.store.memory_store import MemoryStore
from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("openai", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
import openai
from agents import (
    Agent,
    FunctionTool,
    Tool,
    function_tool,
)

from proctor.adapters import OpenAIAgentsAdapter

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Making = Callable[..., Agent[Any]]


def made(directory: Path) -> list[str]:
    """The files that are there."""
    return sorted(path.name for path in directory.iterdir())


async def test_a_refused_call_has_no_effect_and_the_model_is_told(tmp_path: Path, api: Any, worker: Making) -> None:
    """Its siblings run; the conversation stays paired; the caller's agent is as it was. Each response is a turn."""
    calls = api.calls(("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"}), ("3", "make", {"path": "b"}))
    api.script = [calls, api.text("done")]
    agent = worker()

    result = await run_once(OpenAIAgentsAdapter(agent), "go", policy=NO_RM)

    outputs = {i["call_id"]: i["output"] for i in api.bodies[1]["input"] if i.get("type") == "function_call_output"}
    assert made(tmp_path) == ["a", "b"]
    assert outputs == {"1": "a", "2": "Tool 'rm' is not available in this context.", "3": "b"}
    assert (result.status, result.output, result.usage.total_tokens) == ("completed", "done", 220)
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]
    assert [e.turn for e in result.events if isinstance(e, TurnStarted)] == [1, 2]
    started = [e for e in result.events if isinstance(e, ToolCallStarted)]
    assert [(e.turn, e.parent_tool_call_id) for e in started] == [(1, None)] * 2
    assert all(isinstance(tool, FunctionTool) and tool.tool_input_guardrails is None for tool in agent.tools)


async def test_a_token_limit_stops_the_calls_of_the_response_that_exceeds_it(
    tmp_path: Path, api: Any, worker: Making
) -> None:
    """What a response used is judged before its calls are."""
    api.script = [api.calls((name, "make", {"path": name})) for name in ("a", "b")]
    policy = Policy(name="p", limits=Limits(max_total_tokens=150))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=policy)

    assert made(tmp_path) == ["a"]
    assert [v.kind for v in caught.value.violations] == ["max_total_tokens"]
    assert caught.value.partial.usage.total_tokens == 220


async def test_a_limit_of_turns_is_the_policys_finding(api: Any, worker: Making) -> None:
    """The SDK holds it too; the caller's lower limit stays the SDK's error."""
    api.script = [api.calls((name, "make", {"path": name})) for name in ("a", "b", "c")]
    policy = Policy(name="p", limits=Limits(max_turns=2))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=policy)
    assert [v.kind for v in caught.value.violations] == ["max_turns"]
    assert len(api.bodies) == 2

    with pytest.raises(ProviderError, match="MaxTurnsExceeded"):
        await run_once(OpenAIAgentsAdapter(worker(), max_turns=1), "go", policy=policy)


async def test_a_tool_that_raises_has_failed_though_the_model_gets_a_text(api: Any, worker: Making) -> None:
    """With the SDK's text, with the caller's, and past a time limit."""

    def bare() -> str:
        raise KeyError("lost")

    async def late() -> str:
        await anyio.sleep_forever()
        raise AssertionError

    tools: list[Tool] = [
        function_tool(bare, name_override="default"),
        function_tool(bare, name_override="own", failure_error_function=lambda context, error: "never mind"),
        function_tool(late, name_override="late", timeout=0.05),
        function_tool(lambda: "fine", name_override="fine"),
    ]
    names = ("default", "own", "late", "fine")
    api.script = [api.calls(*((name, name, {}) for name in names)), api.text("done")]

    result = await run_once(OpenAIAgentsAdapter(worker(tools=tools)), "go", policy=OPEN)

    failed = [e.tool_name for e in result.events if isinstance(e, ToolCallFailed)]
    completed = [e.tool_name for e in result.events if isinstance(e, ToolCallCompleted)]
    tool_outputs = {
        i["call_id"]: i["output"] for i in api.bodies[1]["input"] if i.get("type") == "function_call_output"
    }
    assert (sorted(failed), completed) == (["default", "late", "own"], ["fine"])
    assert tool_outputs["own"] == "never mind"


async def test_an_api_that_fails_is_the_runs_error(api: Any, worker: Making) -> None:
    """With the report, and the SDK's exception as its cause."""
    api.script = [500]

    with pytest.raises(ProviderError, match="InternalServerError") as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)

    assert isinstance(caught.value.__cause__, openai.APIStatusError)
    assert caught.value.policy.action == "allow"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_is_cancelled_while_a_tool_runs(api: Any, worker: Making, stream: bool) -> None:
    """In bounded time; the call has failed."""
    reached = anyio.Event()
    api.script = [api.calls(("1", "wait", {}))]

    @function_tool
    async def wait() -> str:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            adapter = OpenAIAgentsAdapter(worker(tools=[wait]), stream=stream)
            handle = await supervisor.start(adapter, "go", policy=OPEN)
            await reached.wait()
            await handle.cancel()
            result = await handle.wait()

    assert result.status == "cancelled"
    assert [event.tool_call_id for event in result.events if isinstance(event, ToolCallFailed)] == ["1"]
