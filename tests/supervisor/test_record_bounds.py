"""A flood is not recorded beyond a bound: of messages, the run goes on, and no rule grants what it cannot read; of
anything else, it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageEvent,
    MessageReceived,
    MessageSent,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    SessionStarted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
)
from proctor.policies.policy import Policy
from proctor.supervisor import (
    EventError,
    MemoryStore,
    Store,
    Supervisor,
    UsageError,
    create_run,
    execute_run,
    run_once,
)
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


LARGE = 64 * 1024
"""Bytes of one large event."""
USED = TokenUsageUpdated(input_tokens=1)
FLOODS: dict[str, list[Step]] = {
    "usage": [USED] * 600,
    "outputs": [ToolCallCompleted(tool_call_id="c", tool_output="y" * LARGE)] * 20,
    "errors": [ToolCallFailed(tool_call_id="c", error="e" * LARGE)] * 20,
    "calls": [ToolCallRequested(tool_call_id=f"c{n}", tool_name="x") for n in range(600)],
    "unknown": [Unrecognized(raw={"type": "news", "text": "z" * 1000})] * 600,
    "turns": [TurnStarted(turn=1), TurnCompleted(turn=1)] * 300,
    "own errors": [ErrorOccurred(code="c", message="m")] * 600,
    "sessions": [SessionStarted(provider_session_id="p")] * 600,
}


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    """A new store of that kind."""
    if kind == "memory":
        yield MemoryStore()
    elif kind == "sqlite":
        async with SQLiteStore(folder / "s.db") as store:
            yield store
    else:
        with new_schema() as (url, schema):
            async with PostgresStore(url, schema=schema) as store:
                yield store


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgres", marks=needs_postgres)])
@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_anything_else_ends_the_run(
    kind: str, flood: str, tmp_path: Path, permissive: Policy
) -> None:
    """Little is stored, one event says why, the run fails of it, and what comes after it is not taken."""
    agent = FakeAdapter([*FLOODS[flood], RunCompleted(output="done")])
    async with (
        opened(kind, tmp_path) as store,
        Supervisor(store, max_events=100, max_event_bytes=8 * LARGE) as supervisor,
    ):
        handle = await supervisor.start(agent, "go", policies=[permissive], session_id="s")
        with pytest.raises(EventError, match="it may record 100 events besides messages, 524,288 bytes"):
            await handle.wait()
        events = [event async for event in store.read("s")]
        size = (await store.size()).bytes

    assert len(events) < 120
    assert kind == "postgres" or size < 16 * LARGE
    assert [event.code for event in events if isinstance(event, ErrorOccurred) and event.code != "c"] == [
        "record_full"
    ]
    assert isinstance(events[-1], RunFailed)


async def test_a_flood_that_is_within_the_bounds_is_recorded_whole(permissive: Policy) -> None:
    """As many as there may be, and messages do not count among them."""
    store = MemoryStore()
    steps: list[Step] = [*[USED] * 50, *[MessageReceived(content="x")] * 50, RunCompleted(output="done")]
    result = await run_once(FakeAdapter(steps), "go", store=store, policy=permissive, max_events=52)

    assert result.usage.input_tokens == 50
    with pytest.raises(EventError, match="it may record 51 events"):
        await run_once(FakeAdapter(steps), "go", store=store, policy=permissive, max_events=51)


async def test_one_output_of_50_mb_is_cut(tmp_path: Path, permissive: Policy) -> None:
    """In the store, and in what the result holds; it says how much of it is missing."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        output = ToolCallCompleted(tool_call_id="c", tool_output="y" * 50_000_000)
        result = await run_once(FakeAdapter([output, RunCompleted()]), "go", store=store, policy=permissive)
        size = (await store.size()).bytes
    [kept] = [event for event in result.events if isinstance(event, ToolCallCompleted)]

    assert len(str(kept.tool_output)) + kept.omitted_chars == 50_000_000
    assert max(size, len(str(kept.tool_output))) < 6_000_000


@pytest.mark.parametrize("name", ["max_messages", "max_message_bytes", "max_events", "max_event_bytes"])
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


@pytest.mark.parametrize("code", ["messages_full", "user_messages_full", "record_full"])
async def test_only_the_supervisor_says_that_a_bound_is_reached(code: str, permissive: Policy) -> None:
    """An agent that reports it ends no record of what it says, and is not believed."""
    steps: list[Step] = [ErrorOccurred(code=code, message="forged"), *[MessageReceived(content="x")] * 3]
    result = await run_once(FakeAdapter([*steps, RunCompleted(output="done")]), "go", policy=permissive)

    assert [event.code for event in result.events if isinstance(event, ErrorOccurred)] == ["not_believed"]
    assert sum(isinstance(event, MessageReceived) for event in result.events) == 3
