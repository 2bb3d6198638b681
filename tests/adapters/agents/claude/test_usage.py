"""The real client: what a run used, sub-agents included, earlier runs of the session not."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies.events import RunFailed, SessionStarted, TokenUsageUpdated, TurnStarted
from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy

pytestmark = [pytest.mark.claude, pytest.mark.anyio]

SONNET_IN, SONNET_OUT = 3e-6, 15e-6
"""The client's own prices of the model, USD a token."""


def usage(events: list[Any]) -> list[TokenUsageUpdated]:
    """The usage events."""
    return [event for event in events if isinstance(event, TokenUsageUpdated)]


def totals(events: list[Any]) -> tuple[int, int, float]:
    """Input and output tokens and USD, summed over the usage events."""
    found = usage(events)
    cost = sum(event.cost_usd or 0 for event in found)
    return sum(e.input_tokens for e in found), sum(e.output_tokens for e in found), round(cost, 9)


def session_of(events: list[Any]) -> str:
    """The client's own id of the session."""
    [started] = [event for event in events if isinstance(event, SessionStarted)]
    return str(started.provider_session_id)


async def test_usage_is_reported_for_each_response_with_its_cost(bench: Any) -> None:
    """Cached input counts as input, and no response counts twice."""
    api = bench.api
    api.say(
        api.reply(api.text("I will"), api.bash("echo a"), cache_read=50, cache_write=7, output_tokens=30),
        api.reply(api.text("done"), input_tokens=200),
    )

    events = await bench.run(bench.adapter())

    first, second = usage(events)
    assert (first.input_tokens, first.output_tokens) == (157, 30)
    assert (first.cache_read_tokens, first.cache_write_tokens) == (50, 7)
    assert first.model == "claude-sonnet-4-5"
    assert (second.input_tokens, second.output_tokens) == (200, 20)
    assert second.cost_usd == pytest.approx(200 * SONNET_IN + 20 * SONNET_OUT)
    assert events[-1].usage["input_tokens"] == 357


async def test_a_sub_agents_usage_counts_while_it_still_works(bench: Any) -> None:
    """Its first response is known before its last call is allowed, not only with the result."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.tool("Agent", run_in_background=False, **start)),
        api.reply(api.text("main done")),
    )
    api.say(
        api.reply(api.bash("echo 1"), input_tokens=5000, output_tokens=33),
        api.reply(api.bash("echo 2"), input_tokens=600, output_tokens=44),
        api.reply(api.text("sub done"), input_tokens=700, output_tokens=5),
        sub=True,
    )

    events = await bench.run(bench.adapter("Bash", "Agent"))

    second_main_turn = next(n for n, e in enumerate(events) if isinstance(e, TurnStarted) and e.turn == 2)
    assert totals(events[:second_main_turn])[0] >= 5000 + 600
    tokens = (2 * 100 + 5000 + 600 + 700, 2 * 20 + 33 + 44 + 5)
    assert totals(events) == (*tokens, round(tokens[0] * SONNET_IN + tokens[1] * SONNET_OUT, 9))


async def test_a_resumed_and_a_forked_session_count_from_zero(bench: Any) -> None:
    """The client's totals go on over the session, with what its sub-agents spent; a run counts what came on top. A
    fork has a new id.
    """
    api, adapter = bench.api, bench.adapter("Bash", "Agent")
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(api.reply(api.tool("Agent", run_in_background=False, **start)), api.reply(api.text("main done")))
    api.say(*(api.reply(api.text("ok"), input_tokens=1000, output_tokens=100) for _ in range(2)))
    api.say(api.reply(api.text("sub done"), input_tokens=5000, output_tokens=33), sub=True)

    first = await bench.run(adapter, prompt="remember 7")
    session = session_of(first)
    resumed = await bench.run(adapter, prompt="which?", resume=session)
    forked = await bench.run(adapter, prompt="which?", resume=session, fork=True)

    assert totals(first)[:2] == (2 * 100 + 5000, 2 * 20 + 33)
    alone = (1000, 100, round(1000 * SONNET_IN + 100 * SONNET_OUT, 9))
    assert [totals(run) for run in (resumed, forked)] == [alone] * 2
    assert session_of(resumed) == session
    assert session_of(forked) != session
    assert "remember 7" in str(api.requests[-1]["messages"])


async def test_an_unpriced_model_has_no_cost(bench: Any) -> None:
    """Tokens are reported; the client's guess at a price is not."""
    bench.api.say(bench.api.reply(bench.api.text("ok")))

    events = await bench.run(bench.adapter(model="house-model-1"))

    assert [event.cost_usd for event in usage(events)] == [None]


async def test_the_client_itself_stops_at_the_policys_turns(bench: Any) -> None:
    """The response past the limit is never requested, and the end says that the model wanted it."""
    api, adapter = bench.api, bench.adapter()
    api.say(*(api.reply(api.bash(f"echo {n}")) for n in range(5)))
    options = adapter.compile(Policy(name="p", limits=Limits(max_turns=2)))

    events = await bench.run(adapter, options=options)

    assert len(api.requests) == 2
    assert [event.turn for event in events if isinstance(event, TurnStarted)] == [1, 2, 3]
    assert isinstance(events[-1], RunFailed)
    assert events[-1].error["code"] == "max_turns"


async def test_a_denied_tool_is_not_even_offered(bench: Any) -> None:
    """The model's request lacks it, whatever the case the policy wrote it in; caps go along."""
    api, adapter = bench.api, bench.adapter("Bash", "Read")
    api.say(api.reply(api.text("fine")))
    policy = Policy(name="p", tool_rules=(Deny(("bash",)),), limits=Limits(max_output_tokens=777))

    await bench.run(adapter, options=adapter.compile(policy))

    [request] = api.requests
    assert [tool["name"] for tool in request["tools"]] == ["Read"]
    assert request["max_tokens"] == 777
