"""Real agents of the OpenAI Agents SDK: limits, handoffs, agents as tools, sessions, hooks, options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import OpenAIAgentsAdapter
from proctor.policies import Deny, Limits, Policy, PolicyViolationError, parse_policies
from proctor.policies.events import MessageStreamed, ToolCallCompleted, ToolCallFailed, ToolCallStarted, TurnStarted
from proctor.supervisor import MemoryStore, ProviderError, ProviderUnavailableError, Supervisor, UsageError, run_once

pytest.importorskip("openai", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
import openai
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelProvider,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    Tool,
    WebSearchTool,
    function_tool,
    handoff,
)

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Making = Callable[..., Agent[Any]]


def made(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("kind", ["agent", "handoff", "circle"])
async def test_the_tools_of_an_agent_behind_a_handoff_are_gated(
    tmp_path: Path, api: Any, worker: Making, kind: str
) -> None:
    """Through any kind of handoff, and in cycles."""
    helper = worker("helper", instructions="help")
    front = worker("front", handoffs=[handoff(helper) if kind == "handoff" else helper])
    if kind == "circle":
        helper.handoffs.append(front)
    api.script = [api.calls(("t", "transfer_to_helper", {}))]
    calls = api.calls(("1", "rm", {"path": "a"}), ("2", "make", {"path": "b"}))
    api.scripts["help"] = [calls, api.text("helped")]
    adapter = OpenAIAgentsAdapter(front)

    result = await run_once(adapter, "go", policy=NO_RM)

    assert adapter.capabilities.gate == "all"
    assert made(tmp_path) == ["b"]
    assert result.output == "helped"
    assert [v.tool_name for v in result.policy.violations] == ["rm"]


async def test_the_calls_of_an_agent_used_as_a_tool_are_gated_and_name_their_parent(
    tmp_path: Path, api: Any, worker: Making
) -> None:
    """Its usage counts, and its turns are the parent's. Outside a supervised run nothing has changed. A tool that the
    provider runs may have the id of the parent's call.
    """
    helper = worker("helper", instructions="help")
    front = worker("front", tools=[helper.as_tool("ask_helper", "asks the helper")])
    api.script = [api.calls(("t", "ask_helper", {"input": "help me"})), api.text("done")]
    calls = api.calls(("1", "rm", {"path": "a"}), ("2", "make", {"path": "b"}))
    searched = {"type": "web_search_call", "id": "t", "call_id": "t", "status": "failed"}
    calls.append({**searched, "action": {"type": "search", "query": "x"}})
    api.scripts["help"] = [calls, api.text("helped")]

    result = await run_once(OpenAIAgentsAdapter(front), "go", policy=NO_RM)

    started = [e for e in result.events if isinstance(e, ToolCallStarted)]
    assert [(e.tool_call_id, e.tool_name, e.parent_tool_call_id, e.turn) for e in started] == [
        ("t", "ask_helper", None, 1),
        ("t.t", "web_search", "t", 1),
        ("t.2", "make", "t", 1),
    ]
    assert made(tmp_path) == ["b"]
    assert [v.tool_call_id for v in result.policy.violations] == ["t.1"]
    assert result.usage.total_tokens == 440
    assert [e.turn for e in result.events if isinstance(e, TurnStarted)] == [1, 2]
    assert [e.tool_call_id for e in result.events if isinstance(e, ToolCallCompleted)] == ["t.2", "t"]
    assert [e.tool_call_id for e in result.events if isinstance(e, ToolCallFailed)] == ["t.t"]


async def test_an_agent_run_by_a_tool_in_another_thread_runs_nothing(
    tmp_path: Path, api: Any, worker: Making
) -> None:
    """Its calls could not be held, so the tool fails."""
    helper = worker("helper", instructions="help")

    def ask_helper() -> str:
        return str(Runner.run_sync(helper, "help me").final_output)

    api.script = [api.calls(("t", "ask_helper", {})), api.text("all done")]
    api.scripts["help"] = [api.calls(("2", "make", {"path": "b"})), api.text("helped")]
    result = await run_once(
        OpenAIAgentsAdapter(worker("front", tools=[function_tool(ask_helper)])), "go", policy=OPEN
    )

    assert made(tmp_path) == []
    assert [e.error for e in result.events if isinstance(e, ToolCallFailed)] == [
        "UsageError: calls and reports of a supervised run must be awaited on the run's own event loop"
    ]


SEARCHED = {
    "type": "web_search_call",
    "id": "h_1",
    "call_id": "h_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
PUSHED = {
    "type": "mcp_call",
    "id": "h_1",
    "call_id": "h_1",
    "server_label": "git",
    "name": "push",
    "arguments": '{"branch": "main"}',
    "error": {"type": "http_error", "code": 500, "message": "no"},
}


@pytest.mark.parametrize(("item", "name", "where", "outcome"), [
    (SEARCHED, "web_search", ("$.query", "x"), "completed"),
    (PUSHED, "mcp__git__push", ("$.branch", "main"), "failed"),
], ids=["web_search", "mcp"])  # fmt: skip
async def test_hosted_tools_make_the_gate_partial_and_are_observed(
    api: Any, worker: Making, item: Any, name: str, where: tuple[str, str], outcome: str
) -> None:
    """A hosted call can't be held. It is evaluated when it is observed, and ends the run."""
    api.script = [[item, *api.text("found")]]
    adapter = OpenAIAgentsAdapter(worker(tools=[WebSearchTool()]))
    [policy] = parse_policies({
        "name": "p",
        "tool_rules": [
            {"deny": [{"tool": name, "where": [{"path": where[0], "equals": where[1]}]}], "action": "deny"}
        ],
    })  # fmt: skip

    assert adapter.capabilities.gate == "some"
    with pytest.raises(PolicyViolationError) as caught:
        await run_once(adapter, "go", policy=policy)
    assert [(v.tool_name, v.enforcement) for v in caught.value.violations] == [(name, "interrupted")]
    api.script = [[item, *api.text("found")]]
    ran = await run_once(adapter, "go", policy=OPEN)
    ended = [event.type for event in ran.events if isinstance(event, (ToolCallCompleted, ToolCallFailed))]
    assert ended == [f"tool_call_{outcome}"]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_session_continues_with_its_conversation(api: Any, worker: Making, same_process: bool) -> None:
    """From the SDK's own items, or from the event log."""
    store = MemoryStore()
    calls = api.calls(("1", "make", {"path": "a"}), ("2", "rm", {"path": "a"}))
    api.script = [calls, api.text("first done"), api.text("second done")]
    adapter = OpenAIAgentsAdapter(worker())

    await run_once(adapter, "first", policy=NO_RM, store=store, session_id="s")
    if not same_process:
        adapter = OpenAIAgentsAdapter(worker())
    result = await run_once(adapter, "second", policy=NO_RM, store=store, session_id="s")

    user_messages = [item["content"] for item in api.bodies[-1]["input"] if item.get("role") == "user"]
    assert result.output == "second done"
    assert user_messages == ["first", "second"]


async def test_text_can_be_reported_as_it_is_streamed(api: Any, worker: Making) -> None:
    """Deltas come before the end; usage is reported as usual."""
    api.script = [api.text("one two")]

    result = await run_once(OpenAIAgentsAdapter(worker(), stream=True), "go", policy=OPEN)

    assert [e.delta for e in result.events if isinstance(e, MessageStreamed)] == ["one two"]
    assert (result.output, result.usage.total_tokens) == ("one two", 110)


async def test_a_model_is_offered_only_callable_tools(api: Any, worker: Making) -> None:
    """Unless all were requested, or a tool must be called; wherever the model is configured."""
    api.script = [api.text("done")]
    given = worker()
    model, named = given.model, given.clone(model="gpt-5.5")

    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            assert model_name == "gpt-5.5"
            assert isinstance(model, Model)
            return model

    forced = RunConfig(model_settings=ModelSettings(tool_choice="required"))
    await run_once(OpenAIAgentsAdapter(given, narrow=False), "go", policy=NO_RM)
    await run_once(OpenAIAgentsAdapter(given, run_config=forced), "go", policy=NO_RM)
    await run_once(OpenAIAgentsAdapter(given), "go", policy=NO_RM)
    await run_once(OpenAIAgentsAdapter(given, stream=True), "go", policy=NO_RM)
    await run_once(OpenAIAgentsAdapter(named, run_config=RunConfig(model=model)), "go", policy=NO_RM)
    await run_once(OpenAIAgentsAdapter(named, run_config=RunConfig(model_provider=Provider())), "go", policy=NO_RM)

    offered = [[tool["name"] for tool in body["tools"]] for body in api.bodies]
    assert offered == [["make", "rm"], ["make", "rm"], *[["make"]] * 4]
    assert given.model is model


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_tool_that_was_not_offered_is_evaluated(api: Any, worker: Making, stream: bool) -> None:
    """The gate denies it, and the run continues."""
    api.script = [api.calls(("1", "rm", {"path": "a"})), api.calls(("2", "rm", {"path": "a"})), api.text("done")]

    result = await run_once(OpenAIAgentsAdapter(worker(), stream=stream), "go", policy=NO_RM)

    assert [[tool["name"] for tool in body["tools"]] for body in api.bodies] == [["make"]] * 3
    calls = [event.type for event in result.events if "tool_call" in event.type]
    assert calls == ["tool_call_requested", "tool_call_denied"] * 2
    assert ([v.tool_name for v in result.policy.violations], result.output) == (["rm", "rm"], "done")


async def test_the_callers_hooks_are_still_called(api: Any, worker: Making) -> None:
    """After the supervisor's."""
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
async def test_on_trio_the_error_says_that_it_cannot_run(worker: Making) -> None:
    """Nothing runs."""
    with pytest.raises(ProviderUnavailableError, match="runs on asyncio only"):
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)


async def test_invalid_arguments_are_rejected_at_once(api: Any, worker: Making) -> None:
    """Unknown options, and objects that are no agents."""
    with pytest.raises(UsageError, match=r"`Runner\.run` takes no `no_such`"):
        OpenAIAgentsAdapter(worker(), no_such=1)
    with pytest.raises(UsageError, match="has no tools"):
        OpenAIAgentsAdapter(object())


async def test_a_denied_call_has_no_effect_and_the_model_gets_the_reason(
    tmp_path: Path, api: Any, worker: Making
) -> None:
    """Parallel calls run, the conversation stays paired, and the caller's agent is unchanged. Each response is a
    turn.
    """
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
    """The usage of a response is evaluated before its calls."""
    api.script = [api.calls((name, "make", {"path": name})) for name in ("a", "b")]
    policy = Policy(name="p", limits=Limits(max_total_tokens=150))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=policy)

    assert made(tmp_path) == ["a"]
    assert [v.kind for v in caught.value.violations] == ["max_total_tokens"]
    assert caught.value.partial.usage.total_tokens == 220


async def test_a_turn_limit_is_a_violation_of_the_policy(api: Any, worker: Making) -> None:
    """The SDK enforces it too. The caller's lower limit stays an error of the SDK."""
    api.script = [api.calls((name, "make", {"path": name})) for name in ("a", "b", "c")]
    policy = Policy(name="p", limits=Limits(max_turns=2))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=policy)
    assert [v.kind for v in caught.value.violations] == ["max_turns"]
    assert len(api.bodies) == 2

    with pytest.raises(ProviderError, match="MaxTurnsExceeded"):
        await run_once(OpenAIAgentsAdapter(worker(), max_turns=1), "go", policy=policy)


async def test_a_tool_that_raises_has_failed_even_if_the_model_gets_a_text(api: Any, worker: Making) -> None:
    """The SDK's text, the caller's, and after a timeout."""

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


async def test_an_api_failure_is_the_runs_error(api: Any, worker: Making) -> None:
    """With the report, and the SDK's exception as its cause."""
    api.script = [500]

    with pytest.raises(ProviderError, match="InternalServerError") as caught:
        await run_once(OpenAIAgentsAdapter(worker()), "go", policy=OPEN)

    assert isinstance(caught.value.__cause__, openai.APIStatusError)
    assert caught.value.policy.action == "allow"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_is_cancelled_while_a_tool_runs(api: Any, worker: Making, stream: bool) -> None:
    """In bounded time. The call has failed."""
    reached = anyio.Event()
    api.script = [api.calls(("1", "wait", {}))]

    @function_tool
    async def wait() -> str:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with Supervisor(MemoryStore()) as supervisor:
        adapter = OpenAIAgentsAdapter(worker(tools=[wait]), stream=stream)
        handle = await supervisor.start(adapter, "go", policy=OPEN)
        await reached.wait()
        await handle.cancel()
        result = await handle.wait()

    assert result.status == "cancelled"
    assert [event.tool_call_id for event in result.events if isinstance(event, ToolCallFailed)] == ["1"]
