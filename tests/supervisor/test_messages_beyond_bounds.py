"""A flood of messages is not recorded beyond a bound; the run goes on, and no rule grants what it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageEvent,
    MessageReceived,
    MessageSent,
    MessageStreamed,
    RunCompleted,
    ToolCallStarted,
)
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Store, Supervisor, UsageError, create_run, execute_run, run_once
from proctor.supervisor.machine.message_bounds import MessageBounds, MessageCounts
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import Ask, Step

pytestmark = pytest.mark.anyio

MESSAGES = MessageEvent | MessageStreamed
FULL = ("messages_full", "user_messages_full")


async def recorded(
    store: Store, steps: list[Step], policy: Policy, *, max_messages: int = 20, max_message_bytes: int = 100_000
) -> list[Event]:
    async with Supervisor(store, max_messages=max_messages, max_message_bytes=max_message_bytes) as supervisor:
        handle = await supervisor.start(FakeAdapter(steps), "go", policies=[policy])
        result = await handle.wait()
        assert result.output == "done"
        return [event async for event in store.read(result.session_id)]


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "flood",
    [
        [MessageReceived(content="x")] * 500,
        [MessageStreamed(delta="x")] * 500,
        [MessageReceived(content="y" * 40_000)] * 10,
        [MessageSent(content="z", role="user")] * 500,
    ],
    ids=["whole", "streamed", "large", "of a user"],
)
async def test_one_event_says_that_no_more_is_recorded(
    flood: list[Step], kept: str, tmp_path: Path, permissive: Policy
) -> None:
    """Few are stored, calls go on, and the run completes."""
    call = Ask(name="x", id="c")
    if kept == "memory":
        events = await recorded(MemoryStore(), [*flood, call, *flood, RunCompleted(output="done")], permissive)
    else:
        async with SQLiteStore(tmp_path / "s.db") as store:
            events = await recorded(store, [*flood, call, *flood, RunCompleted(output="done")], permissive)

    assert sum(isinstance(event, MESSAGES) for event in events) <= 21
    errors = [event for event in events if isinstance(event, ErrorOccurred)]
    assert [event.code in FULL for event in errors] == [True]
    assert any(isinstance(event, ToolCallStarted) for event in events)
    assert isinstance(events[-1], RunCompleted)


async def test_a_flood_of_the_agent_leaves_what_users_write() -> None:
    """What they wrote before and after it supports a call; past their own bound the latest message is not known."""
    requires = [{"user_said": "please", "in": "latest"}]
    rule = {"type": "precondition", "id": "asked", "tool": "x", "requires": requires}
    (policy,) = parse_policies({"name": "p", "on_violation": "deny", "rules": [rule]})
    agents: list[Step] = [MessageReceived(content="x")] * 100
    asks = MessageSent(content="please")
    done = RunCompleted(output="done")

    events = await recorded(MemoryStore(), [*agents, asks, Ask(name="x", id="c"), done], policy)
    assert [event.tool_call_id for event in events if isinstance(event, ToolCallStarted)] == ["c"]

    users: list[Step] = [asks] * 100
    events = await recorded(MemoryStore(), [*users, MessageSent(content="no"), Ask(name="x", id="c"), done], policy)
    assert not [event for event in events if isinstance(event, ToolCallStarted)]


@pytest.mark.parametrize("name", ["max_messages", "max_message_bytes"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9"])
def test_a_bound_is_a_whole_number(name: str, value: object) -> None:
    """Anything else is one clear error."""
    with pytest.raises(UsageError, match=f"{name} is .*; it must be a whole number from 1"):
        Supervisor(MemoryStore(), **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["once", "execute"])
async def test_one_run_takes_the_bounds_too(way: str, permissive: Policy) -> None:
    """`run_once` and `execute_run` hand them on."""
    store, agent = MemoryStore(), FakeAdapter([*[MessageReceived(content="x")] * 50, RunCompleted(output="done")])
    if way == "once":
        result = await run_once(agent, "go", store=store, policy=permissive, max_messages=5)
    else:
        run_id = await create_run(store, "go")
        result = await execute_run(store, agent, run_id, policy=permissive, max_messages=5)

    assert sum(isinstance(event, MessageReceived) for event in result.events) == 5
    assert [event.code for event in result.events if isinstance(event, ErrorOccurred)] == ["messages_full"]


@pytest.mark.parametrize("stored", range(6))
def test_a_run_taken_up_from_its_record_counts_on(stored: int) -> None:
    """Wherever it was left: what it records in all is what one that lived on does, and the word is said once."""
    messages = [MessageReceived(content="x")] * 6
    bounds = MessageBounds(messages=3)
    lived = MessageCounts(bounds)
    record = [event for event in map(lived.recorded_for, messages) if event is not None]
    before, again = MessageCounts(bounds), MessageCounts(bounds)
    first = [event for event in map(before.recorded_for, messages[:stored]) if event is not None]
    for event in first:
        again.recall(event)
    rest = [event for event in map(again.recorded_for, messages[stored:]) if event is not None]

    assert [type(event) for event in first + rest] == [type(event) for event in record]
    assert [isinstance(event, ErrorOccurred) for event in record] == [False, False, False, True]
