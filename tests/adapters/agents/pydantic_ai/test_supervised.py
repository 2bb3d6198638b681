"""Real agents of pydantic-ai under the real supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import Deny, Limits, Policy, PolicyViolationError, parse_policies
from proctor.policies.events import TokenUsageUpdated, ToolCallCompleted, ToolCallFailed, ToolCallStarted, TurnStarted
from proctor.supervisor import Supervisor, run_once
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.store.memory_store import MemoryStore
from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from proctor.adapters import PydanticAIAdapter

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))
Seen = list[list[ModelMessage]]


async def test_a_refused_call_has_no_effect_and_the_model_is_told(tmp_path: Path, kit: Any) -> None:
    """Its siblings run; the conversation stays paired."""
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
    assert [e.turn for e in result.events if isinstance(e, TurnStarted | ToolCallStarted)] == [1, 1, 1, 2]


async def test_a_token_limit_stops_the_calls_of_the_response_that_exceeds_it(tmp_path: Path, kit: Any) -> None:
    """What a response used is judged before its calls are."""
    script = ([kit.call("1", "make", path="a")], [kit.call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(max_input_tokens=15))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(kit.worker(tmp_path, *script)), "go", policy=policy)

    assert kit.made(tmp_path) == ["a"]
    assert [v.kind for v in caught.value.violations] == ["max_input_tokens"]
    assert caught.value.partial.usage.total_tokens == 22


async def test_a_limit_of_turns_is_the_policys_finding(tmp_path: Path, kit: Any) -> None:
    """The framework holds it too, and what it refused is judged."""
    script = ([kit.call("1", "make", path="a")], [kit.call("2", "make", path="b")], ["x"])
    policy = Policy(name="p", limits=Limits(max_turns=2))
    seen: Seen = []

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(PydanticAIAdapter(kit.worker(tmp_path, *script, seen=seen)), "go", policy=policy)

    assert [v.kind for v in caught.value.violations] == ["max_turns"]
    assert len(seen) == 2


async def test_a_policy_only_tightens_the_callers_limits(tmp_path: Path, kit: Any) -> None:
    """The caller's own limit holds when it is lower, and is the framework's error then."""
    script = ([kit.call("1", "make", path="a")], ["x"])
    own = UsageLimits(request_limit=1)
    adapter = PydanticAIAdapter(kit.worker(tmp_path, *script), usage_limits=own)

    with pytest.raises(ProviderError, match="request_limit of 1"):
        await run_once(adapter, "go", policy=Policy(name="p", limits=Limits(max_turns=5)))

    assert own.request_limit == 1
    assert adapter.compile(Policy(name="p", limits=Limits(max_turns=5))).expressed == ("max_turns",)
    warning = parse_policies({"name": "w", "on_violation": "warn", "limits": {"max_turns": 5}})[0]
    assert adapter.compile(warning).unexpressed == ("max_turns",)


async def test_a_cost_is_reported_where_the_framework_knows_the_price(tmp_path: Path, kit: Any) -> None:
    """A known model's cost counts; an unknown model's is unpriced."""

    def priced(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        used = RequestUsage(input_tokens=1_000_000, output_tokens=0)
        return ModelResponse(parts=[TextPart("x")], usage=used, model_name="gpt-4o", provider_name="openai")

    agent = Agent(FunctionModel(priced, model_name="gpt-4o"))
    with_price = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)
    unknown = await run_once(
        PydanticAIAdapter(kit.worker(tmp_path, ["x"])), "go", policy=Policy(name="p", limits=Limits(max_cost_usd=1))
    )

    assert with_price.cost_usd > 1
    assert any(isinstance(e, TokenUsageUpdated) and e.cost_usd == with_price.cost_usd for e in with_price.events)
    assert unknown.cost_usd == 0
    assert "unpriced" in str(unknown.policy.metadata)


async def test_a_framework_error_is_the_runs_error(tmp_path: Path, kit: Any) -> None:
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
    """Its retry is another call; each has one outcome."""
    agent = Agent(kit.model([kit.call("1", "picky", n=1)], [kit.call("2", "picky", n=2)], ["done"]))

    @agent.tool_plain
    def picky(n: int) -> str:
        if n == 1:
            raise ModelRetry("another, please")
        return "fine"

    result = await run_once(PydanticAIAdapter(agent), "go", policy=OPEN)

    failed = [e.tool_call_id for e in result.events if isinstance(e, ToolCallFailed)]
    completed = [e.tool_call_id for e in result.events if isinstance(e, ToolCallCompleted)]
    assert (failed, completed) == (["1"], ["2"])


async def test_a_run_is_cancelled_while_a_tool_runs(kit: Any) -> None:
    """In bounded time; the call has failed."""
    reached = anyio.Event()
    agent = Agent(kit.model([kit.call("1", "wait")]))

    @agent.tool_plain
    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(PydanticAIAdapter(agent), "go", policy=OPEN)
            await reached.wait()
            await handle.cancel()
            result = await handle.wait()

    assert result.status == "cancelled"
    assert [event.tool_call_id for event in result.events if isinstance(event, ToolCallFailed)] == ["1"]
