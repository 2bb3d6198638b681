"""Real agents of pydantic-ai: limits, subagents, sessions, streaming, and the adapter's options."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import PydanticAIAdapter
from proctor.policies import Deny, Limits, Policy, PolicyViolationError, parse_policies
from proctor.policies import events as ev
from proctor.supervisor import MemoryStore, ProviderError, ProviderUnavailableError, Supervisor, UsageError, run_once

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.settings import ToolOrOutput
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Seen = list[list[ModelMessage]]


async def test_the_evaluated_arguments_are_those_that_run(tmp_path: Path, kit: Any) -> None:
    """If a capability of the agent changes arguments, it runs before the gate, whatever its ordering."""

    @dataclass
    class Changing(AbstractCapability[Any]):
        def get_ordering(self) -> CapabilityOrdering:
            return CapabilityOrdering(position="innermost")

        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {"path": "changed"}

    agent = kit.worker(tmp_path, [kit.call("1", "make", path="a")], ["x"])
    adapter = PydanticAIAdapter(agent, capabilities=[Changing()])
    result = await run_once(adapter, "go", policy=OPEN)

    started = [event.tool_input for event in result.events if isinstance(event, ev.ToolCallStarted)]
    assert started == [{"path": "changed"}]
    assert kit.made(tmp_path) == ["changed"]


async def test_arguments_that_are_objects_are_evaluated_as_json(kit: Any) -> None:
    """A policy can name a model's fields."""

    class Order(BaseModel):
        amount: int

    paid: list[Order] = []
    agent = Agent(
        kit.model([kit.call("1", "pay", amount=5, note="x"), kit.call("2", "pay", amount=50, note="x")], ["done"])
    )

    @agent.tool_plain
    def pay(amount: int, note: str) -> None:
        paid.append(Order(amount=amount))

    rule = {"deny": [{"tool": "pay", "where": [{"path": "$.amount", "gt": 10}]}], "action": "deny"}
    (policy,) = parse_policies({"name": "p", "tool_rules": [rule]})
    await run_once(PydanticAIAdapter(agent), "go", policy=policy)

    assert paid == [Order(amount=5)]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_session_continues_with_its_conversation(tmp_path: Path, same_process: bool, kit: Any) -> None:
    """From the framework's own messages, or from the event log."""
    store, seen = MemoryStore(), []  # type: ignore[var-annotated]
    script = ([kit.call("1", "make", path="a"), kit.call("2", "rm", path="a")], ["done"], ["again"])
    adapter = PydanticAIAdapter(kit.worker(tmp_path, *script, seen=seen))

    await run_once(adapter, "first", policy=NO_RM, store=store, session_id="s")
    if not same_process:
        adapter = PydanticAIAdapter(kit.worker(tmp_path, *script, seen=seen))
    result = await run_once(adapter, "second", policy=NO_RM, store=store, session_id="s")

    prompts = [part.content for part in _parts(seen[-1], UserPromptPart)]
    returned = {part.tool_call_id: part.content for part in _parts(seen[-1], ToolReturnPart)}
    assert result.output == "again"
    assert prompts == ["first", "second"]
    assert returned == {"1": "a", "2": "Tool 'rm' is not available in this context."}


async def test_text_can_be_reported_as_it_is_streamed(tmp_path: Path) -> None:
    """Deltas come before the message."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        yield "one "
        yield "two"

    agent = Agent(FunctionModel(stream_function=stream))
    result = await run_once(PydanticAIAdapter(agent, stream=True), "go", policy=OPEN)

    assert "".join(e.delta for e in result.events if isinstance(e, ev.MessageStreamed)) == "one two"
    assert result.output == "one two"


async def test_a_model_is_offered_only_callable_tools(tmp_path: Path, kit: Any) -> None:
    """Unless all were requested, or a tool must be called."""
    offered: list[list[str]] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(sorted(tool.name for tool in info.function_tools))
        return ModelResponse(parts=[TextPart("x")])

    forced: dict[str, Any] = {"model_settings": {"tool_choice": ToolOrOutput(function_tools=["rm"])}}
    for options in ({"narrow": False}, {}, forced):
        adapter = PydanticAIAdapter(kit.worker(tmp_path, ["x"]), model=FunctionModel(respond), **options)
        await run_once(adapter, "go", policy=NO_RM)

    assert offered == [["make", "rm", "wait"], ["make", "wait"], ["make", "rm", "wait"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_tool_that_was_not_offered_is_evaluated(tmp_path: Path, stream: bool) -> None:
    """The gate denies it each time, and the run continues."""
    agent, requests = Agent(retries=0), 0

    @agent.tool_plain
    def rm(path: str) -> str:
        (tmp_path / path).touch()
        return path

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal requests
        requests += 1
        assert info.function_tools == []
        return ModelResponse(parts=[ToolCallPart("rm", {"path": "a"}) if requests < 4 else TextPart("done")])

    async def streamed(messages: list[ModelMessage], info: AgentInfo) -> Any:
        [part] = respond(messages, info).parts
        yield part.content if isinstance(part, TextPart) else {0: DeltaToolCall(name="rm", json_args='{"path": "a"}')}

    model = FunctionModel(respond, stream_function=streamed)
    result = await run_once(PydanticAIAdapter(agent, model=model, stream=stream), "go", policy=NO_RM)

    calls = [event.type for event in result.events if "tool_call" in event.type]
    assert calls == ["tool_call_requested", "tool_call_denied"] * 3
    assert [v.tool_name for v in result.policy.violations] == ["rm"] * 3
    assert (result.output, list(tmp_path.iterdir())) == ("done", [])  # noqa: ASYNC240


async def test_a_subagents_calls_and_usage_count(tmp_path: Path, kit: Any) -> None:
    """Its calls can be held, and name the call that runs it. Outside the run nothing has changed."""
    inner = kit.worker(tmp_path, [kit.call("1", "rm", path="a"), kit.call("2", "make", path="b")], ["inner done"])
    outer = Agent(kit.model([kit.call("1", "delegate")], ["outer done"]))

    @outer.tool
    async def delegate(ctx: RunContext[object]) -> str:
        return str((await inner.run("sub", usage=ctx.usage)).output)

    result = await run_once(PydanticAIAdapter(outer, sub_agents=[inner]), "go", policy=NO_RM)

    started = [(e.tool_name, e.parent_tool_call_id) for e in result.events if isinstance(e, ev.ToolCallStarted)]
    assert started == [("delegate", None), ("make", "1")]
    assert kit.made(tmp_path) == ["b"]
    assert result.usage.total_tokens == 44
    assert [v.tool_call_id for v in result.policy.violations] == ["1.1"]
    assert result.output == "outer done"
    with pytest.raises(FileNotFoundError):
        await inner.run("alone")


async def test_a_subagent_in_another_thread_runs_no_tool(tmp_path: Path, kit: Any) -> None:
    """Its calls could not be held."""
    inner = kit.worker(tmp_path, [kit.call("1", "make", path="a")], ["inner done"])
    outer = Agent(kit.model([kit.call("1", "delegate")], ["outer done"]))

    @outer.tool_plain
    def delegate() -> str:
        return str(asyncio.run(inner.run("sub")).output)

    with pytest.raises(ProviderError, match="must be awaited on the run's own event loop"):
        await run_once(PydanticAIAdapter(outer, sub_agents=[inner]), "go", policy=OPEN)

    assert kit.made(tmp_path) == []


async def test_tools_of_the_model_provider_make_the_gate_partial(kit: Any) -> None:
    from pydantic_ai.capabilities import NativeTool
    from pydantic_ai.native_tools import WebSearchTool

    agent = Agent(kit.model(["x"]), capabilities=[NativeTool(WebSearchTool())])

    assert PydanticAIAdapter(agent).capabilities.gate == "some"
    assert PydanticAIAdapter(Agent(kit.model(["x"]))).capabilities.gate == "all"


async def test_calls_of_mcp_servers_by_the_model_provider_have_the_names_of_policies(kit: Any) -> None:
    """With the tools' own inputs, as the framework parses them from the response. A failed call has failed."""
    from openai.types.responses.response_output_item import McpCall

    native = pytest.importorskip("pydantic_ai.models.openai._native_tools", reason="pip install -U pydantic-ai-slim")
    item = McpCall(id="m1", type="mcp_call", server_label="git", name="push", arguments='{"branch": "main"}')
    called, returned = native.map_mcp_call(item, "openai")
    agent = Agent(kit.model([called, replace(returned, outcome="failed"), "done"]))
    result = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    assert [(call.name, call.input) for call in result.calls] == [("mcp__git__push", {"branch": "main"})]
    assert [event.tool_name for event in result.events if isinstance(event, ev.ToolCallFailed)] == ["mcp__git__push"]


async def test_an_unknown_option_of_the_caller_is_an_error(tmp_path: Path, kit: Any) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="an agent's `run` takes no `no_such`"):
        PydanticAIAdapter(kit.worker(tmp_path, ["x"]), no_such=1)
    with pytest.raises(UsageError, match="has no `run`"):
        PydanticAIAdapter(object())


@pytest.mark.trio
async def test_on_trio_the_error_says_that_it_cannot_run(tmp_path: Path, kit: Any) -> None:
    """Nothing runs."""
    with pytest.raises(ProviderUnavailableError, match="runs on asyncio only"):
        await run_once(PydanticAIAdapter(kit.worker(tmp_path, ["x"])), "go", policy=OPEN)


def _parts(messages: list[ModelMessage], kind: type[Any]) -> list[Any]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for message in requests for part in message.parts if isinstance(part, kind)]


async def test_a_run_that_a_tool_starts_is_a_separate_run(tmp_path: Path, kit: Any) -> None:
    """Its turns and calls are its own, not a subagent's of the outer run."""
    inner: list[Any] = []
    worker = kit.worker(tmp_path, [kit.call("2", "make", path="a")], ["inner done"])
    agent: Agent[Any, Any] = Agent(kit.model([kit.call("1", "start")], ["done"]))

    @agent.tool_plain
    async def start() -> str:
        result = await run_once(PydanticAIAdapter(worker), "go", policies=[OPEN])
        inner.extend(result.events)
        return "started"

    outer = await run_once(PydanticAIAdapter(agent), "go", policies=[OPEN])

    assert kit.made(tmp_path) == ["a"]
    assert [event.turn for event in inner if isinstance(event, ev.TurnStarted)] == [1, 2]
    assert [event.parent_tool_call_id for event in inner if isinstance(event, ev.ToolCallStarted)] == [None]
    assert [event.turn for event in outer.events if isinstance(event, ev.TurnStarted)] == [1, 2]


async def test_a_denied_call_has_no_effect_and_the_model_gets_the_reason(tmp_path: Path, kit: Any) -> None:
    """Parallel calls run, and the conversation stays paired."""
    seen: Seen = []
    script = [kit.call("1", "make", path="a"), kit.call("2", "rm", path="a"), kit.call("3", "make", path="b")]
    agent = kit.worker(tmp_path, script, ["done"], seen=seen)

    result = await run_once(PydanticAIAdapter(agent), "go", policy=NO_RM)

    assert kit.made(tmp_path) == ["a", "b"]
    returned = [part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in returned] == ["1", "2", "3"]
    assert returned[1].content == "Tool 'rm' is not available in this context."
    assert (result.status, result.output, result.usage.total_tokens) == ("completed", "done", 22)
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]
    assert [e.turn for e in result.events if isinstance(e, ev.TurnStarted | ev.ToolCallStarted)] == [1, 1, 1, 2]


async def test_a_token_limit_stops_the_calls_of_the_response_that_exceeds_it(tmp_path: Path, kit: Any) -> None:
    """The usage of a response is evaluated before its calls."""
    script = ([kit.call("1", "make", path="a")], [kit.call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(max_input_tokens=15))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(kit.worker(tmp_path, *script)), "go", policy=policy)

    assert kit.made(tmp_path) == ["a"]
    assert [v.kind for v in caught.value.violations] == ["max_input_tokens"]
    assert caught.value.partial.usage.total_tokens == 22


async def test_a_turn_limit_is_a_violation_of_the_policy(tmp_path: Path, kit: Any) -> None:
    """The framework enforces it too, and its error becomes a violation."""
    script = ([kit.call("1", "make", path="a")], [kit.call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(max_turns=2))
    seen: Seen = []

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(kit.worker(tmp_path, *script, seen=seen)), "go", policy=policy)

    assert [v.kind for v in caught.value.violations] == ["max_turns"]
    assert len(seen) == 2


async def test_a_policy_only_tightens_the_callers_limits(tmp_path: Path, kit: Any) -> None:
    """The caller's lower limit applies, as an error of the framework."""
    script = ([kit.call("1", "make", path="a")], ["x"])
    own = UsageLimits(request_limit=1)
    adapter = PydanticAIAdapter(kit.worker(tmp_path, *script), usage_limits=own)

    with pytest.raises(ProviderError, match="request_limit of 1"):
        await run_once(adapter, "go", policy=Policy(name="p", limits=Limits(max_turns=5)))

    assert own.request_limit == 1
    assert adapter.compile(Policy(name="p", limits=Limits(max_turns=5))).expressed == ("max_turns",)
    warning = parse_policies({"name": "w", "on_violation": "warn", "limits": {"max_turns": 5}})[0]
    assert adapter.compile(warning).unexpressed == ("max_turns",)


async def test_a_cost_is_reported_if_the_framework_knows_the_price(tmp_path: Path, kit: Any) -> None:
    """An unknown model is unpriced."""

    def priced(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        used = RequestUsage(input_tokens=1_000_000, output_tokens=0)
        return ModelResponse(parts=[TextPart("x")], usage=used, model_name="gpt-4o", provider_name="openai")

    agent = Agent(FunctionModel(priced, model_name="gpt-4o"))
    with_price = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)
    unknown = await run_once(
        PydanticAIAdapter(kit.worker(tmp_path, ["x"])), "go", policy=Policy(name="p", limits=Limits(max_cost_usd=1))
    )

    assert with_price.cost_usd > 1
    assert any(isinstance(e, ev.TokenUsageUpdated) and e.cost_usd == with_price.cost_usd for e in with_price.events)
    assert unknown.cost_usd == 0
    assert "unpriced" in str(unknown.policy.metadata)


async def test_usage_already_in_the_callers_counter_is_not_this_runs(tmp_path: Path, kit: Any) -> None:
    """A caller may use one counter for several runs; a limit is for one."""
    total = RunUsage(input_tokens=1000, requests=7)
    adapter = PydanticAIAdapter(kit.worker(tmp_path, ["x"], tokens=10), usage=total)
    policy = Policy(name="p", limits=Limits(max_total_tokens=500, max_turns=5))
    used = [(await run_once(adapter, "go", policy=policy)).usage.input_tokens for _ in range(2)]

    assert (used, total.input_tokens) == ([10, 10], 1020)


async def test_an_error_of_the_framework_is_the_runs_error(tmp_path: Path, kit: Any) -> None:
    """With the report, and the exception as its cause."""
    agent = Agent(kit.model([kit.call("1", "broken")]))

    @agent.tool_plain
    def broken() -> None:
        raise KeyError("lost")

    with pytest.raises(ProviderError, match="the agent failed: KeyError: 'lost'") as caught:
        await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.policy.action == "allow"


async def test_a_retried_call_has_failed(tmp_path: Path, kit: Any) -> None:
    """Its retry is another call, and each has one outcome."""
    agent = Agent(kit.model([kit.call("1", "picky", n=1)], [kit.call("2", "picky", n=2)], ["done"]))

    @agent.tool_plain
    def picky(n: int) -> str:
        if n == 1:
            raise ModelRetry("another, please")
        return "fine"

    result = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    failed = [e.tool_call_id for e in result.events if isinstance(e, ev.ToolCallFailed)]
    completed = [e.tool_call_id for e in result.events if isinstance(e, ev.ToolCallCompleted)]
    assert (failed, completed) == (["1"], ["2"])


async def test_a_run_is_cancelled_while_a_tool_runs(kit: Any) -> None:
    """In bounded time. The call has failed."""
    reached = anyio.Event()
    agent = Agent(kit.model([kit.call("1", "wait")]))

    @agent.tool_plain
    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(PydanticAIAdapter(agent), "go", policy=OPEN)
        await reached.wait()
        await handle.cancel()
        result = await handle.wait()

    assert result.status == "cancelled"
    assert [event.tool_call_id for event in result.events if isinstance(event, ev.ToolCallFailed)] == ["1"]
