"""Real agents of the OpenAI Agents SDK under the real supervisor, over a loopback API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import Deny, Limits, Policy, PolicyViolationError
from proctor.policies.events import MessageStreamed, ToolCallCompleted, ToolCallFailed, ToolCallStarted, TurnStarted
from proctor.supervisor import Supervisor, run_once
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.memory_store import MemoryStore
from proctor.supervisor.ports import ApprovalAnswer, ApprovalRequest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install 'proctor[openai-agents]'")
import openai
from agents import (
    Agent,
    FunctionTool,
    OpenAIResponsesModel,
    RunHooks,
    Tool,
    WebSearchTool,
    function_tool,
    handoff,
)

from proctor.adapters import OpenAIAgentsAdapter

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Making = Callable[..., Agent[Any]]


@pytest.fixture
def worker(tmp_path: Path, api: Any) -> Making:
    """Make an agent with tools that make and remove files."""

    @function_tool
    async def make(path: str) -> str:
        (tmp_path / path).touch()
        return path

    @function_tool
    async def rm(path: str) -> str:
        (tmp_path / path).unlink()
        return path

    def agent(name: str = "worker", tools: list[Tool] | None = None, **more: Any) -> Agent[Any]:
        return Agent(name=name, tools=[make, rm] if tools is None else tools, model=responses(api), **more)

    return agent


def responses(api: Any) -> OpenAIResponsesModel:
    """The model behind the API."""
    client = openai.AsyncOpenAI(base_url=api.url, api_key="none", max_retries=0)
    return OpenAIResponsesModel(model="gpt-5.5", openai_client=client)


def made(directory: Path) -> list[str]:
    """The files that are there."""
    return sorted(path.name for path in directory.iterdir())


async def test_a_refused_call_has_no_effect_and_the_model_is_told(tmp_path: Path, api: Any, worker: Making) -> None:
    """Its siblings run; the conversation stays paired; the caller's agent is as it was."""
    asked = api.calls(("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"}), ("3", "make", {"path": "b"}))
    api.script = [asked, api.text("done")]
    agent = worker()

    result = await run_once(OpenAIAgentsAdapter(agent), "go", policy=NO_RM)

    outputs = {i["call_id"]: i["output"] for i in api.bodies[1]["input"] if i.get("type") == "function_call_output"}
    assert made(tmp_path) == ["a", "b"]
    assert outputs == {"1": "a", "2": "Tool 'rm' is not available in this context.", "3": "b"}
    assert (result.status, result.output, result.usage.total_tokens) == ("completed", "done", 220)
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]
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


async def test_turns_are_counted(api: Any, worker: Making) -> None:
    """From 1, a response each; calls carry theirs."""
    api.script = [*(api.calls((name, "make", {"path": name})) for name in ("x1", "x2")), api.text("done")]

    result = await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)

    assert [e.turn for e in result.events if isinstance(e, TurnStarted)] == [1, 2, 3]
    started = [e for e in result.events if isinstance(e, ToolCallStarted)]
    assert [(e.turn, e.parent_tool_call_id) for e in started] == [(1, None), (2, None)]


async def test_a_held_call_runs_once_it_is_approved(tmp_path: Path, api: Any, worker: Making) -> None:
    """Not before; a sibling that was denied does not."""
    api.script = [api.calls(("1", "make", {"path": "a"}), ("2", "make", {"path": "b"})), api.text("done")]
    policy = Policy(name="p", tool_rules=(Deny(("make",), action="request_approval"),))

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        assert made(tmp_path) == []
        return ApprovalAnswer(granted=request.call.input == {"path": "a"}, by="ana")

    result = await run_once(OpenAIAgentsAdapter(worker()), "go", policy=policy, approver=approver)

    assert made(tmp_path) == ["a"]
    assert result.output == "done"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["held", "tool"])
async def test_a_run_can_be_cancelled_at_any_phase(api: Any, worker: Making, phase: str, stream: bool) -> None:
    """In bounded time; a call that ran has failed, one that was held has not run."""
    reached = anyio.Event()
    api.script = [api.calls(("1", "wait", {}))]

    @function_tool
    async def wait() -> str:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def approver(request: ApprovalRequest) -> None:
        reached.set()

    action: Any = "request_approval" if phase == "held" else "warn"
    policy = Policy(name="p", tool_rules=(Deny(("wait",), action=action),))
    with anyio.fail_after(10):
        async with Supervisor(MemoryStore(), approver=approver) as supervisor:
            adapter = OpenAIAgentsAdapter(worker(tools=[wait]), stream=stream)
            handle = await supervisor.start(adapter, "go", policy=policy)
            await reached.wait()
            await handle.cancel()
            result = await handle.wait()

    outcomes = [event.type for event in result.events if event.type in ("tool_call_failed", "tool_call_denied")]
    assert result.status == "cancelled"
    assert outcomes == {"held": ["tool_call_denied"], "tool": ["tool_call_failed"]}[phase]


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
    told = {i["call_id"]: i["output"] for i in api.bodies[1]["input"] if i.get("type") == "function_call_output"}
    assert (sorted(failed), completed) == (["default", "late", "own"], ["fine"])
    assert told["own"] == "never mind"


async def test_an_api_that_fails_is_the_runs_error(api: Any, worker: Making) -> None:
    """With the report, and the SDK's exception as its cause."""
    api.script = [500]

    with pytest.raises(ProviderError, match="InternalServerError") as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)

    assert isinstance(caught.value.__cause__, openai.APIStatusError)
    assert caught.value.policy.action == "allow"


@pytest.mark.parametrize("kind", ["agent", "handoff", "circle"])
async def test_the_tools_of_an_agent_handed_over_to_are_gated(
    tmp_path: Path, api: Any, worker: Making, kind: str
) -> None:
    """Through any kind of handoff, and in circles."""
    helper = worker("helper", instructions="help")
    front = worker("front", handoffs=[handoff(helper) if kind == "handoff" else helper])
    if kind == "circle":
        helper.handoffs.append(front)
    api.script = [api.calls(("t", "transfer_to_helper", {}))]
    asked = api.calls(("1", "rm", {"path": "a"}), ("2", "make", {"path": "b"}))
    api.scripts["help"] = [asked, api.text("helped")]
    adapter = OpenAIAgentsAdapter(front)

    result = await run_once(adapter, "go", policy=NO_RM)

    assert adapter.capabilities.gate == "all"
    assert made(tmp_path) == ["b"]
    assert result.output == "helped"
    assert [v.tool_name for v in result.policy.violations] == ["rm"]


async def test_the_calls_of_an_agent_used_as_a_tool_are_gated_and_name_their_parent(
    tmp_path: Path, api: Any, worker: Making
) -> None:
    """Its usage counts, its turns are the parent's; outside a supervised run nothing has changed."""
    helper = worker("helper", instructions="help")
    front = worker("front", tools=[helper.as_tool("ask_helper", "asks the helper")])
    api.script = [api.calls(("t", "ask_helper", {"input": "help me"})), api.text("done")]
    asked = api.calls(("1", "rm", {"path": "a"}), ("2", "make", {"path": "b"}))
    api.scripts["help"] = [asked, api.text("helped")]

    result = await run_once(OpenAIAgentsAdapter(front), "go", policy=NO_RM)

    started = [e for e in result.events if isinstance(e, ToolCallStarted)]
    assert [(e.tool_name, e.parent_tool_call_id, e.turn) for e in started] == [
        ("ask_helper", None, 1),
        ("make", "t", 1),
    ]
    assert made(tmp_path) == ["b"]
    assert [v.tool_call_id for v in result.policy.violations] == ["t.1"]
    assert result.usage.total_tokens == 440
    assert [e.turn for e in result.events if isinstance(e, TurnStarted)] == [1, 2]
    assert [e.tool_call_id for e in result.events if isinstance(e, ToolCallCompleted)] == ["t.2", "t"]


async def test_hosted_tools_make_the_gate_partial_and_are_observed(api: Any, worker: Making) -> None:
    """A call that nobody could hold is judged when it is seen, and ends the run."""
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    search = {"type": "search", "query": "x"}
    api.script = [[{**searched, "action": search, "call_id": "ws_1"}, *api.text("found")]]
    adapter = OpenAIAgentsAdapter(worker(tools=[WebSearchTool()]))
    policy = Policy(name="p", tool_rules=(Deny(("web_search",), action="deny"),))

    assert adapter.capabilities.gate == "some"
    with pytest.raises(PolicyViolationError) as caught:
        await run_once(adapter, "go", policy=policy)
    assert [(v.tool_name, v.enforcement) for v in caught.value.violations] == [("web_search", "interrupted")]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_session_goes_on_with_what_was_said(api: Any, worker: Making, same_process: bool) -> None:
    """From the SDK's own items, or from the record."""
    store = MemoryStore()
    asked = api.calls(("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"}))
    api.script = [asked, api.text("first done"), api.text("second done")]
    adapter = OpenAIAgentsAdapter(worker())

    await run_once(adapter, "first", policy=NO_RM, store=store, session_id="s")
    if not same_process:
        adapter = OpenAIAgentsAdapter(worker())
    result = await run_once(adapter, "second", policy=NO_RM, store=store, session_id="s")

    said = [item["content"] for item in api.bodies[-1]["input"] if item.get("role") == "user"]
    assert result.output == "second done"
    assert said == ["first", "second"]


async def test_text_can_be_reported_as_it_is_written(api: Any, worker: Making) -> None:
    """Deltas come before the end, usage all the same."""
    api.script = [api.text("one two")]

    result = await run_once(OpenAIAgentsAdapter(worker(), stream=True), "go", policy=OPEN)

    assert [e.delta for e in result.events if isinstance(e, MessageStreamed)] == ["one two"]
    assert (result.output, result.usage.total_tokens) == ("one two", 110)


async def test_a_model_is_offered_what_could_be_called(api: Any, worker: Making) -> None:
    """Only if that was asked for."""
    api.script = [api.text("done")]
    for narrow in (False, True):
        await run_once(OpenAIAgentsAdapter(worker(), narrow=narrow), "go", policy=NO_RM)

    assert [[tool["name"] for tool in body["tools"]] for body in api.bodies] == [["make", "rm"], ["make"]]


async def test_the_callers_hooks_still_hear_everything(api: Any, worker: Making) -> None:
    """After the supervisor."""
    heard: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            heard.append(f"start {tool.name}")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            heard.append(f"end {tool.name}")

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            heard.append("response")

    api.script = [api.calls(("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"})), api.text("done")]
    await run_once(OpenAIAgentsAdapter(worker(), hooks=Hooks()), "go", policy=NO_RM)

    assert heard == ["response", "start make", "end make", "response"]


@pytest.mark.trio
async def test_on_trio_it_says_that_it_cannot_run(worker: Making) -> None:
    """In one sentence, and nothing runs."""
    with pytest.raises(ProviderUnavailableError, match="runs on asyncio only"):
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)


async def test_what_makes_no_sense_is_said_at_once(api: Any, worker: Making) -> None:
    """Options that do not exist, and things that are no agents."""
    with pytest.raises(UsageError, match=r"`Runner\.run` takes no `no_such`"):
        OpenAIAgentsAdapter(worker(), no_such=1)
    with pytest.raises(UsageError, match="has no tools"):
        OpenAIAgentsAdapter(object())
