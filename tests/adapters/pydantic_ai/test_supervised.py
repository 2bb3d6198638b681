"""Real agents of pydantic-ai under the real supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import Deny, Limits, Policy, PolicyViolationError, parse_policies
from proctor.policies.events import (
    MessageStreamed,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnStarted,
)
from proctor.supervisor import Supervisor, run_once
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.memory_store import MemoryStore
from proctor.supervisor.ports import ApprovalAnswer, ApprovalRequest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install 'proctor[pydantic-ai]'")
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
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from proctor.adapters import PydanticAIAdapter

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Seen = list[list[ModelMessage]]


def model(*responses: Sequence[Any], seen: Seen | None = None, tokens: int = 10) -> FunctionModel:
    """A model that gives these responses, each as its parts, one after another in a conversation."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(messages)
        n = sum(isinstance(message, ModelResponse) for message in messages)
        parts = [TextPart(part) if isinstance(part, str) else part for part in responses[n]]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=tokens, output_tokens=1))

    return FunctionModel(respond)


def call(call_id: str, name: str, **arguments: Any) -> ToolCallPart:
    """A call the model asks for."""
    return ToolCallPart(name, arguments, tool_call_id=call_id)


def worker(directory: Path, *responses: Sequence[Any], **more: Any) -> Any:
    """An agent with tools that make and remove files."""
    agent = Agent(model(*responses, **more))

    @agent.tool_plain
    def make(path: str) -> str:
        (directory / path).touch()
        return path

    @agent.tool_plain
    def rm(path: str) -> str:
        (directory / path).unlink()
        return path

    @agent.tool_plain
    async def wait() -> None:
        (directory / "up").touch()
        await anyio.sleep_forever()

    return agent


def made(directory: Path) -> list[str]:
    """The files that are there."""
    return sorted(path.name for path in directory.iterdir())


async def test_a_refused_call_has_no_effect_and_the_model_is_told(tmp_path: Path) -> None:
    """Its siblings run; the conversation stays paired."""
    seen: Seen = []
    asked = [call("1", "make", path="a"), call("2", "rm", path="a"), call("3", "make", path="b")]
    agent = worker(tmp_path, asked, ["done"], seen=seen)

    result = await run_once(PydanticAIAdapter(agent), "go", policy=NO_RM)

    assert made(tmp_path) == ["a", "b"]
    returned = [part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in returned] == ["1", "2", "3"]
    assert returned[1].content == "Tool 'rm' is not available in this context."
    assert (result.status, result.output, result.usage.total_tokens) == ("completed", "done", 22)
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]


async def test_a_cancelling_refusal_ends_the_run(tmp_path: Path) -> None:
    """The model is not asked again."""
    seen: Seen = []
    agent = worker(tmp_path, [call("1", "rm", path="a")], [call("2", "make", path="b")], seen=seen)
    policy = Policy(name="p", tool_rules=(Deny(("rm",)),))

    with pytest.raises(PolicyViolationError):
        await run_once(PydanticAIAdapter(agent), "go", policy=policy)

    assert len(seen) == 1
    assert made(tmp_path) == []


@pytest.mark.parametrize("limit", ["max_total_tokens", "max_input_tokens"])
async def test_a_token_limit_stops_the_calls_of_the_response_that_exceeds_it(tmp_path: Path, limit: str) -> None:
    """What a response used is judged before its calls are."""
    asked = ([call("1", "make", path="a")], [call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(**{limit: 15}))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(worker(tmp_path, *asked)), "go", policy=policy)

    assert made(tmp_path) == ["a"]
    assert [v.kind for v in caught.value.violations] == [limit]
    assert caught.value.partial.usage.total_tokens == 22


async def test_a_limit_of_turns_is_the_policys_finding(tmp_path: Path) -> None:
    """The framework holds it too, and what it refused is judged."""
    asked = ([call("1", "make", path="a")], [call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(max_turns=2))
    seen: Seen = []

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(worker(tmp_path, *asked, seen=seen)), "go", policy=policy)

    assert [v.kind for v in caught.value.violations] == ["max_turns"]
    assert len(seen) == 2


async def test_a_policy_only_tightens_the_callers_limits(tmp_path: Path) -> None:
    """The caller's own limit holds when it is lower, and is the framework's error then."""
    asked = ([call("1", "make", path="a")], ["x"])
    own = UsageLimits(request_limit=1)
    adapter = PydanticAIAdapter(worker(tmp_path, *asked), usage_limits=own)

    with pytest.raises(ProviderError, match="request_limit of 1"):
        await run_once(adapter, "go", policy=Policy(name="p", limits=Limits(max_turns=5)))

    assert own.request_limit == 1
    assert adapter.compile(Policy(name="p", limits=Limits(max_turns=5))).expressed == ("max_turns",)
    warning = parse_policies({"name": "w", "on_violation": "warn", "limits": {"max_turns": 5}})[0]
    assert adapter.compile(warning).unexpressed == ("max_turns",)


async def test_a_cost_is_reported_where_the_framework_knows_the_price(tmp_path: Path) -> None:
    """A known model's cost counts; an unknown model's is unpriced."""

    def priced(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        used = RequestUsage(input_tokens=1_000_000, output_tokens=0)
        return ModelResponse(parts=[TextPart("x")], usage=used, model_name="gpt-4o", provider_name="openai")

    agent = Agent(FunctionModel(priced, model_name="gpt-4o"))
    known = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)
    unknown = await run_once(
        PydanticAIAdapter(worker(tmp_path, ["x"])), "go", policy=Policy(name="p", limits=Limits(max_cost_usd=1))
    )

    assert known.cost_usd > 1
    assert any(isinstance(e, TokenUsageUpdated) and e.cost_usd == known.cost_usd for e in known.events)
    assert unknown.cost_usd == 0
    assert "unpriced" in str(unknown.policy.metadata)


async def test_a_held_call_runs_once_it_is_approved(tmp_path: Path) -> None:
    """Not before."""
    policy = Policy(name="p", tool_rules=(Deny(("make",), action="request_approval"),))

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        assert made(tmp_path) == []
        return ApprovalAnswer(granted=request.call.input == {"path": "a"}, by="ana")

    agent = worker(tmp_path, [call("1", "make", path="a"), call("2", "make", path="b")], ["done"])
    result = await run_once(PydanticAIAdapter(agent), "go", policy=policy, approver=approver)

    assert made(tmp_path) == ["a"]
    assert result.output == "done"


@pytest.mark.parametrize("phase", ["model", "held", "tool"])
async def test_a_run_can_be_cancelled_at_any_phase(tmp_path: Path, phase: str) -> None:
    """In bounded time; a call that ran has failed, one that was held has not run."""
    reached = anyio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if phase == "model":
            reached.set()
            await anyio.sleep_forever()
        return ModelResponse(parts=[call("1", "wait")])

    async def approver(request: ApprovalRequest) -> None:
        reached.set()

    agent = Agent(FunctionModel(slow))

    @agent.tool_plain
    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    action: Any = "request_approval" if phase == "held" else "warn"
    policy = Policy(name="p", tool_rules=(Deny(("wait",), action=action),))
    with anyio.fail_after(10):
        async with Supervisor(MemoryStore(), approver=approver) as supervisor:
            handle = await supervisor.start(PydanticAIAdapter(agent), "go", policy=policy)
            await reached.wait()
            await handle.cancel()
            result = await handle.wait()

    outcomes = [event.type for event in result.events if event.type in ("tool_call_failed", "tool_call_denied")]
    assert result.status == "cancelled"
    assert outcomes == {"model": [], "held": ["tool_call_denied"], "tool": ["tool_call_failed"]}[phase]


async def test_a_framework_error_is_the_runs_error(tmp_path: Path) -> None:
    """With the report, and the exception as its cause."""
    agent = Agent(model([call("1", "broken")]))

    @agent.tool_plain
    def broken() -> None:
        raise KeyError("lost")

    with pytest.raises(ProviderError, match="the agent failed: KeyError: 'lost'") as caught:
        await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.policy.action == "allow"


async def test_a_retried_call_has_failed(tmp_path: Path) -> None:
    """Its retry is another call; each has one outcome."""
    agent = Agent(model([call("1", "picky", n=1)], [call("2", "picky", n=2)], ["done"]))

    @agent.tool_plain
    def picky(n: int) -> str:
        if n == 1:
            raise ModelRetry("another, please")
        return "fine"

    result = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    failed = [e.tool_call_id for e in result.events if isinstance(e, ToolCallFailed)]
    completed = [e.tool_call_id for e in result.events if isinstance(e, ToolCallCompleted)]
    assert (failed, completed) == (["1"], ["2"])


async def test_what_is_judged_is_what_runs(tmp_path: Path) -> None:
    """A capability of the agent's own that changes arguments comes before the gate, wherever it wants to be."""

    @dataclass
    class Changing(AbstractCapability[Any]):
        def get_ordering(self) -> CapabilityOrdering:
            return CapabilityOrdering(position="innermost")

        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {"path": "changed"}

    agent = worker(tmp_path, [call("1", "make", path="a")], ["x"])
    adapter = PydanticAIAdapter(agent, capabilities=[Changing()])
    result = await run_once(adapter, "go", policy=OPEN)

    started = [event.tool_input for event in result.events if isinstance(event, ToolCallStarted)]
    assert started == [{"path": "changed"}]
    assert made(tmp_path) == ["changed"]


async def test_arguments_that_are_objects_are_judged_as_json() -> None:
    """A model's fields can be named in a policy."""

    class Order(BaseModel):
        amount: int

    paid: list[Order] = []
    agent = Agent(model([call("1", "pay", amount=5, note="x"), call("2", "pay", amount=50, note="x")], ["done"]))

    @agent.tool_plain
    def pay(amount: int, note: str) -> None:
        paid.append(Order(amount=amount))

    rule = {"deny": [{"tool": "pay", "where": [{"path": "$.amount", "gt": 10}]}], "action": "deny"}
    (policy,) = parse_policies({"name": "p", "tool_rules": [rule]})
    await run_once(PydanticAIAdapter(agent), "go", policy=policy)

    assert paid == [Order(amount=5)]


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_session_goes_on_with_what_was_said(tmp_path: Path, same_process: bool) -> None:
    """From the framework's own messages, or from the record."""
    store, seen = MemoryStore(), []  # type: ignore[var-annotated]
    asked = ([call("1", "make", path="a"), call("2", "rm", path="a")], ["done"], ["again"])
    adapter = PydanticAIAdapter(worker(tmp_path, *asked, seen=seen))

    await run_once(adapter, "first", policy=NO_RM, store=store, session_id="s")
    if not same_process:
        adapter = PydanticAIAdapter(worker(tmp_path, *asked, seen=seen))
    result = await run_once(adapter, "second", policy=NO_RM, store=store, session_id="s")

    said = [part.content for part in _parts(seen[-1], UserPromptPart)]
    returned = {part.tool_call_id: part.content for part in _parts(seen[-1], ToolReturnPart)}
    assert result.output == "again"
    assert said == ["first", "second"]
    assert returned == {"1": "a", "2": "Tool 'rm' is not available in this context."}


async def test_text_can_be_reported_as_it_is_written(tmp_path: Path) -> None:
    """Deltas come before the message."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        yield "one "
        yield "two"

    agent = Agent(FunctionModel(stream_function=stream))
    result = await run_once(PydanticAIAdapter(agent, stream=True), "go", policy=OPEN)

    assert "".join(e.delta for e in result.events if isinstance(e, MessageStreamed)) == "one two"
    assert result.output == "one two"


async def test_a_model_is_offered_what_could_be_called(tmp_path: Path) -> None:
    """Only if that was asked for."""
    offered: list[list[str]] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append(sorted(tool.name for tool in info.function_tools))
        return ModelResponse(parts=[TextPart("x")])

    for narrow in (False, True):
        agent = worker(tmp_path, ["x"])
        await run_once(PydanticAIAdapter(agent, narrow=narrow, model=FunctionModel(respond)), "go", policy=NO_RM)

    assert offered == [["make", "rm", "wait"], ["make", "wait"]]


async def test_a_sub_agents_calls_count_and_its_usage_too(tmp_path: Path) -> None:
    """They are held, and named as inside the call that runs it; outside the run nothing has changed."""
    inner = worker(tmp_path, [call("1", "rm", path="a"), call("2", "make", path="b")], ["inner done"])
    outer = Agent(model([call("1", "delegate")], ["outer done"]))

    @outer.tool
    async def delegate(ctx: RunContext[object]) -> str:
        return str((await inner.run("sub", usage=ctx.usage)).output)

    result = await run_once(PydanticAIAdapter(outer, sub_agents=[inner]), "go", policy=NO_RM)

    started = [(e.tool_name, e.parent_tool_call_id) for e in result.events if isinstance(e, ToolCallStarted)]
    assert started == [("delegate", None), ("make", "1")]
    assert made(tmp_path) == ["b"]
    assert result.usage.total_tokens == 44
    assert [v.tool_call_id for v in result.policy.violations] == ["1.1"]
    assert result.output == "outer done"
    with pytest.raises(FileNotFoundError):
        await inner.run("alone")


async def test_tools_of_the_models_provider_make_the_gate_partial() -> None:
    """What nobody can hold is said to be so."""
    from pydantic_ai.capabilities import NativeTool
    from pydantic_ai.native_tools import WebSearchTool

    agent = Agent(model(["x"]), capabilities=[NativeTool(WebSearchTool())])

    assert PydanticAIAdapter(agent).capabilities.gate == "some"
    assert PydanticAIAdapter(Agent(model(["x"]))).capabilities.gate == "all"


async def test_a_caller_s_option_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="an agent's `run` takes no `no_such`"):
        PydanticAIAdapter(worker(tmp_path, ["x"]), no_such=1)
    with pytest.raises(UsageError, match="has no `run`"):
        PydanticAIAdapter(object())


@pytest.mark.trio
async def test_on_trio_it_says_that_it_cannot_run(tmp_path: Path) -> None:
    """In one sentence, and nothing runs."""
    with pytest.raises(ProviderUnavailableError, match="runs on asyncio only"):
        await run_once(PydanticAIAdapter(worker(tmp_path, ["x"])), "go", policy=OPEN)


async def test_turns_are_counted(tmp_path: Path) -> None:
    """From 1, a response each; calls carry theirs."""
    asked = ([call("1", "make", path="a")], [call("2", "make", path="b")], ["x"])
    result = await run_once(PydanticAIAdapter(worker(tmp_path, *asked)), "go", policy=OPEN)

    assert [e.turn for e in result.events if isinstance(e, TurnStarted)] == [1, 2, 3]
    assert [e.turn for e in result.events if isinstance(e, ToolCallStarted)] == [1, 2]


def _parts(messages: list[ModelMessage], kind: type[Any]) -> list[Any]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for message in requests for part in message.parts if isinstance(part, kind)]
