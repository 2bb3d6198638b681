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

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.codex,
    pytest.mark.parametrize("anyio_backend", ["trio"]),
]


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


async def test_tokens_are_reported_after_each_response(bench: Any) -> None:
    """Input includes what was cached, output what was thought; the client knows no prices."""
    bench.api.reply(bench.api.shell("c1", "true"), used=(1000, 50), cached=400, reasoning=10)
    bench.api.reply(bench.api.text("done"), used=(1200, 7), cached=1000)
    events = await bench.run()

    assert [event for event in events if isinstance(event, TokenUsageUpdated)] == [
        TokenUsageUpdated(
            input_tokens=1000, output_tokens=50, cache_read_tokens=400, reasoning_tokens=10, model="gpt-5.5"
        ),
        TokenUsageUpdated(input_tokens=1200, output_tokens=7, cache_read_tokens=1000, model="gpt-5.5"),
    ]


async def test_each_model_response_is_a_turn(bench: Any) -> None:
    """Turns are numbered from 1; what is said belongs to its turn."""
    bench.api.reply(bench.api.text("first"), bench.api.shell("c1", "true"))
    bench.api.reply(bench.api.text("second"))
    events = await bench.run()

    kinds = (TurnStarted, TurnCompleted, MessageStreamed, MessageReceived)
    assert [event for event in events if isinstance(event, kinds)] == [
        TurnStarted(turn=1),
        MessageStreamed(delta="first"),
        MessageReceived(content="first"),
        TurnCompleted(turn=1),
        TurnStarted(turn=2),
        MessageStreamed(delta="second"),
        MessageReceived(content="second"),
        TurnCompleted(turn=2),
    ]


async def test_a_resumed_session_does_not_count_its_past_again(bench: Any) -> None:
    """The client repeats the old total when it takes a thread up, and counts on from it."""
    bench.api.reply(bench.api.text("one"), used=(1000, 50))
    first = await bench.run()
    bench.api.reply(bench.api.text("two"), used=(2000, 60))
    second = await bench.run(resume=thread(first), transcript=tuple(first))

    assert [used(first), used(second)] == [[(1000, 50)], [(2000, 60)]]
    assert thread(second) == thread(first)
    assert [event.turn for event in second if isinstance(event, TurnStarted)] == [1]  # the session counts them on
    assert "one" in str(bench.api.requests[-1]["input"])


async def test_a_fork_is_a_new_session_that_counts_for_itself(bench: Any) -> None:
    """The client carries the total over without saying so."""
    bench.api.reply(bench.api.text("one"), used=(1000, 50))
    first = await bench.run()
    bench.api.reply(bench.api.shell("c1", "true"), used=(2000, 60))
    bench.api.reply(bench.api.text("two"), used=(2100, 5))
    second = await bench.run(resume=thread(first), fork=True)

    assert used(second) == [(2000, 60), (2100, 5)]
    assert thread(second) != thread(first)


async def test_a_resumed_session_asks_for_every_call(bench: Any, gate_that: Any) -> None:
    """And it is known of each whether it would leave the sandbox."""
    adapter = bench.adapter(sandbox="workspace-write")
    first = await bench.run(adapter=adapter)
    bench.api.reply(
        bench.api.shell("c1", "touch in"),
        bench.api.shell("c2", "touch out", sandbox_permissions="require_escalated"),
    )
    gate = gate_that()
    await bench.run(gate, adapter=adapter, resume=thread(first))

    assert {call.id: call.input.get("escalated") for call in gate.calls} == {"c1": None, "c2": True}
    assert bench.made() == ["in"]


async def test_a_session_the_client_does_not_know_is_an_error(bench: Any) -> None:
    """The client's own words say which."""
    with pytest.raises(ProviderError, match="no rollout found"):
        await bench.run(resume="01a1fd13-cfa6-74e0-b52b-fae6965988d4")


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


async def test_a_patch_that_does_not_apply_fails(bench: Any) -> None:
    """A change of a file that is not there."""
    lines = ("*** Update File: absent.txt", "@@", "-old", "+new")
    bench.api.reply(bench.api.patch("c1", *lines))
    events = await bench.run()

    assert [event.type for event in events if "tool_call" in event.type] == []
    assert "absent.txt" in bench.api.result_of("c1")
    assert bench.made() == []


async def test_a_client_that_does_not_take_the_terms_gets_no_prompt(bench: Any) -> None:
    """Configuration may say otherwise; what is in force counts."""
    with pytest.raises(ProviderError, match=r"feature `goals` stays on \(goals start turns by themselves\)"):
        await bench.run(adapter=bench.adapter(config={"features.goals": True}))

    assert bench.api.requests == []
