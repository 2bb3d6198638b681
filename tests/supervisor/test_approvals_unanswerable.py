"""Approvals that nobody can give, answers that are misspelt, and subscriptions to some types of events."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ToolApprovalExpired, ToolApprovalRequested, ToolCallDenied
from proctor.policies.events.calls import ToolCall
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, UsageError, pending, run_once
from proctor.supervisor.testing import Ask, FakeAdapter, FakePublisher

pytestmark = pytest.mark.anyio
ASKS = parse_policies("{name: p, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")
OPEN = Policy(name="open")


async def test_a_request_that_nobody_can_answer_is_told_and_the_call_refused() -> None:
    """Observers get it before the refusal, and nothing is left waiting."""
    publisher, agent = FakePublisher(), FakeAdapter([Ask(name="deploy", id="c1", input={"to": "prod"})])
    result = await run_once(agent, "go", policies=ASKS, publishers=[publisher])
    kinds = (ToolApprovalRequested, ToolApprovalExpired, ToolCallDenied)
    published = [event for event in publisher.events if isinstance(event, kinds)]

    assert [type(event) for event in published] == list(kinds)
    assert isinstance(published[0], ToolApprovalRequested)
    assert (published[0].tool_name, published[0].tool_input, published[0].tool_call_id) == (
        "deploy",
        {"to": "prod"},
        "c1",
    )
    assert isinstance(published[2], ToolCallDenied)
    assert published[2].decision == "approval_unanswerable"
    assert [event for event in result.events if isinstance(event, kinds)] == published
    assert agent.ran == []


async def test_subscribers_hear_of_it_too_and_no_approval_waits() -> None:
    """A supervisor that says that nobody can answer."""
    store = MemoryStore()
    async with Supervisor(store, answerable=False) as supervisor:
        agent = FakeAdapter([Ask(name="deploy", id="c1")])
        handle = await supervisor.start(agent, "go", policies=ASKS)
        types = ["tool_approval_requested", "run_completed"]
        async with supervisor.subscribe(run_id=handle.run_id, after="start", types=types) as events:
            seen = [event.type async for event in events]

    assert seen == types
    assert await pending(store) == []


@pytest.mark.parametrize("types", ["run_started", [], ["run_startd"], [7], 3])
async def test_types_that_are_none_are_one_clear_error(types: Any) -> None:
    """A misspelt one is told with the nearest."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(UsageError, match="types"):
            supervisor.subscribe(types=types)


async def test_a_run_is_followed_from_its_start() -> None:
    """`after="start"` is the place before its first event; another text is none."""
    store = MemoryStore()
    result = await run_once(FakeAdapter(), "go", policies=[OPEN], store=store)
    async with Supervisor(store) as supervisor:
        async with supervisor.subscribe(run_id=result.run_id, after="start") as events:
            assert [event.seq async for event in events] == [event.seq for event in result.events]
        with pytest.raises(UsageError, match="`after`"):
            async with supervisor.subscribe(run_id=result.run_id, after="begin"):
                pass


@pytest.mark.parametrize(
    "given", [{"group": ["ops"]}, {"granted": False}, {"tell": "no"}, {"scope": "forever"}, {"groups": 7}, {"by": 3}]
)
async def test_a_misspelt_answer_is_one_clear_error(given: dict[str, Any]) -> None:
    """A field that there is not, or one of the wrong type."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(UsageError):
            await supervisor.approve("r.1", **{"by": "ana", **given})


async def test_a_call_under_an_id_in_use_is_told_why() -> None:
    """The tool is available; the id is not."""

    async def again() -> None:
        answer = await agent.launches[0].gate(ToolCall(id="c1", name="read", input={"n": 2}))
        texts.append(answer.tell_model)

    texts: list[str | None] = []
    agent = FakeAdapter([Ask(name="read", id="c1", input={"n": 1}, meanwhile=again)])
    await run_once(agent, "go", policies=[OPEN])

    assert texts == ["This call of tool 'read' has the id of a call that has not ended. Use another id."]
