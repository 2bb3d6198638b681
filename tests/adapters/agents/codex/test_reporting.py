"""Tokens are counted once, over responses, resumes and forks; what runs unasked is seen all the same."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies.events import (
    Event,
    MessageReceived,
    MessageStreamed,
    SessionStarted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
)
from proctor.supervisor.errors import ProviderError

pytestmark = [pytest.mark.anyio, pytest.mark.codex]


def used(events: list[Event]) -> list[tuple[int, int]]:
    """Input and output tokens of each report."""
    reports = [event for event in events if isinstance(event, TokenUsageUpdated)]
    return [(report.input_tokens, report.output_tokens) for report in reports]


def thread(events: list[Event]) -> str:
    """The client's id of the session."""
    started = events[0]
    assert isinstance(started, SessionStarted)
    assert started.provider_session_id is not None
    return started.provider_session_id


async def test_each_model_response_is_a_turn_with_its_tokens(bench: Any) -> None:
    """Turns are numbered from 1; what is said belongs to its turn. Input includes what was cached, output what was
    thought; the client knows no prices.
    """
    api = bench.api
    api.reply(api.text("first"), api.shell("c1", "true"), used=(1000, 50), cached=400, reasoning=10)
    api.reply(api.text("second"), used=(1200, 7), cached=1000)
    events = await bench.run()

    assert [event for event in events if isinstance(event, TokenUsageUpdated)] == [
        TokenUsageUpdated(
            input_tokens=1000, output_tokens=50, cache_read_tokens=400, reasoning_tokens=10, model="gpt-5.5"
        ),
        TokenUsageUpdated(input_tokens=1200, output_tokens=7, cache_read_tokens=1000, model="gpt-5.5"),
    ]
    kinds = (TurnStarted, TurnCompleted, MessageStreamed, MessageReceived)
    turns = [("first", 1), ("second", 2)]
    assert [event for event in events if isinstance(event, kinds)] == [
        event
        for text, turn in turns
        for event in (
            TurnStarted(turn=turn),
            MessageStreamed(delta=text),
            MessageReceived(content=text),
            TurnCompleted(turn=turn),
        )
    ]


async def test_a_resumed_session_does_not_count_its_past_again(bench: Any, gate_that: Any) -> None:
    """The client repeats the old total when it takes a thread up, and counts on from it; it asks for every call, and
    it is known of each whether it would leave the sandbox. A fork is a new session that counts for itself, though the
    client carries the total over without saying so.
    """
    api, adapter, gate = bench.api, bench.adapter(sandbox="workspace-write"), gate_that()
    api.reply(api.text("one"), used=(1000, 50))
    first = await bench.run(adapter=adapter)
    escalated = api.shell("c2", "touch out", sandbox_permissions="require_escalated")
    api.reply(api.text("two"), api.shell("c1", "touch in"), escalated, used=(2000, 60))
    api.reply(api.text("three"), used=(2100, 5))
    second = await bench.run(gate, adapter=adapter, resume=thread(first), transcript=tuple(first))

    assert [used(first), used(second)] == [[(1000, 50)], [(2000, 60), (2100, 5)]]
    assert thread(second) == thread(first)
    assert [event.turn for event in second if isinstance(event, TurnStarted)] == [1, 2]  # the session counts them on
    assert "one" in str(api.requests[-1]["input"])
    assert {call.id: call.input.get("escalated") for call in gate.calls} == {"c1": None, "c2": True}
    assert bench.made() == ["in"]

    api.reply(api.shell("c3", "true"), used=(3000, 60))
    api.reply(api.text("four"), used=(3100, 5))
    forked = await bench.run(adapter=adapter, resume=thread(first), fork=True)

    assert used(forked) == [(3000, 60), (3100, 5)]
    assert thread(forked) != thread(first)


async def test_a_command_the_clients_own_rules_let_through_is_reported_as_started(bench: Any, gate_that: Any) -> None:
    """Nobody is asked then, so the adapter says that it does not gate everything."""
    rules = bench.home / "rules" / "default.rules"
    rules.parent.mkdir()
    rules.write_text('prefix_rule(pattern=["ls"], decision="allow")\n')
    bench.api.reply(bench.api.shell("c1", "ls"))
    gate, adapter = gate_that(), bench.adapter()
    events = await bench.run(gate, adapter=adapter)

    assert gate.calls == []
    assert (
        ToolCallStarted(
            tool_call_id="c1", tool_name="shell", tool_input={"command": "ls", "cwd": str(bench.cwd)}, turn=1
        )
        in events
    )
    assert [event.tool_call_id for event in events if isinstance(event, ToolCallCompleted)] == ["c1"]
    assert adapter.capabilities.gate == "some"
    assert adapter.ungated == [f"`{rules}` lets commands run without asking"]


async def test_a_client_that_does_not_take_the_terms_gets_no_prompt(bench: Any) -> None:
    """Configuration may say otherwise; what is in force counts."""
    with pytest.raises(ProviderError, match=r"feature `goals` stays on \(goals start turns by themselves\)"):
        await bench.run(adapter=bench.adapter(config={"features.goals": True}))

    assert bench.api.requests == []
