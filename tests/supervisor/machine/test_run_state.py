"""What an agent reports is kept in bounded memory: in the queue, in the result, and in each event."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from postgres_server import needs_postgres, new_schema
from supervised import OPEN, Before

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.policies import Policy, decode_event, encode_event, parse_policies
from proctor.policies import events as ev
from proctor.supervisor import EventError, MemoryStore, Store, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.launch import history
from proctor.supervisor.machine.run_state import MOST_BYTES, estimated_size, within_bounds
from proctor.supervisor.run.journal import CAPACITY_BYTES, KeptEvents
from proctor.supervisor.store import records
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, Step
from proctor.supervisor.watch.log_follower import KEPT_BYTES

pytestmark = pytest.mark.anyio
HUGE = "x" * (3 * MOST_BYTES)
MB = "y" * 1_000_000


async def test_a_provider_is_read_no_faster_than_its_bytes_are_stored() -> None:
    """However few events they are. Then reading continues."""
    taken = 0

    class Steps:
        def __iter__(self) -> Iterator[Step]:
            nonlocal taken
            while taken < 70:
                taken += 1
                yield ev.ToolCallCompleted(tool_call_id="c", tool_output=MB)

    adapter = FakeAdapter()
    adapter.steps = Steps()  # type: ignore[assignment]  # made as they are asked for
    go_on = anyio.Event()
    async with Supervisor(Before(ev.ToolCallCompleted, go_on.wait)) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await anyio.wait_all_tasks_blocked()
        waiting = taken
        go_on.set()
        result = await handle.wait()

    assert waiting <= CAPACITY_BYTES // len(MB) + 3
    assert sum(isinstance(event, ev.ToolCallCompleted) for event in result.events) + result.events_before >= 60


async def test_a_slow_subscriber_keeps_a_bounded_number_of_bytes() -> None:
    """It reads the rest from the store."""
    outputs = [ev.ToolCallCompleted(tool_call_id="c", tool_output=MB) for _ in range(70)]
    async with Supervisor(MemoryStore()) as supervisor, supervisor.subscribe() as events:
        handle = await supervisor.start(FakeAdapter(outputs), "go", policies=[OPEN])
        result = await handle.wait()
        kept = sum(map(estimated_size, supervisor._subscriptions.follower._own.values()))
        seen = [await anext(events) for _ in range(result.events_before + len(result.events))]

    assert len(MB) <= kept <= KEPT_BYTES + len(MB)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))


async def test_an_event_has_a_bounded_size_and_says_what_was_cut() -> None:
    """The stored and the evaluated event are the same. The result has the whole output."""
    reported: list[ev.Event] = [
        ev.ToolCallStarted(tool_call_id="c", tool_name="read"),
        ev.ToolCallCompleted(tool_call_id="c", tool_output=HUGE),
        ev.MessageReceived(content=[{"type": "text", "text": HUGE}, {"type": "text", "text": "more"}]),
        ev.RunCompleted(output=HUGE),
    ]
    store = MemoryStore()
    result = await run_once(FakeAdapter(reported), "go", policies=[OPEN], store=store)
    cut = [event for event in result.events if event.omitted_chars]
    stored = [event async for event in store.read(result.session_id) if event.omitted_chars]

    assert [type(event) for event in cut] == [ev.ToolCallCompleted, ev.MessageReceived, ev.RunCompleted]
    assert stored == cut
    for event in cut:
        assert estimated_size(event) <= MOST_BYTES
        assert event.omitted_chars >= len(HUGE) - MOST_BYTES
    assert cut[0].omitted_chars + len(cut[0].tool_output) == len(HUGE)  # type: ignore[attr-defined]
    assert len(cut[0].tool_output) > MOST_BYTES // 2  # type: ignore[attr-defined]
    assert result.output == HUGE


@pytest.mark.parametrize("event", [
    ev.MessageStreamed(delta=HUGE),
    ev.ToolCallCompleted(tool_call_id="c", tool_output={"rows": [[HUGE]]}),
    ev.ToolCallCompleted(tool_call_id="c", tool_output=list(range(3_000_000))),
    ev.SessionStarted(provider_session_id="p", metadata={"model": "m", "blob": HUGE}),
    ev.Unrecognized(raw={"type": "news", "blob": HUGE}),
    ev.ErrorOccurred(code="c", message=HUGE),
    ev.ErrorOccurred(code="c", message="m", provider_error={"body": HUGE}),
    ev.ToolCallStarted(tool_call_id="c", tool_name="write", tool_input={"content": HUGE}),
], ids=lambda event: event.type)  # fmt: skip
def test_a_cut_event_can_be_decoded(event: ev.Event) -> None:
    """It keeps its type, its ids and an error's code. The input of a call is never cut."""
    cut = within_bounds(event)
    again = decode_event(encode_event(cut))

    assert encode_event(again) == encode_event(cut)
    assert again.type == event.type
    if isinstance(event, ev.ToolCallStarted):
        assert cut == event
    else:
        assert estimated_size(cut) <= MOST_BYTES
        assert cut.omitted_chars > 0
        assert getattr(cut, "code", None) == getattr(event, "code", None)


def test_small_events_are_unchanged() -> None:
    """They are not even copied."""
    event = ev.ToolCallCompleted(tool_call_id="c", tool_output={"a": ["b", 1, None, 2.5]})

    assert within_bounds(event) is event


def test_a_result_keeps_the_latest_events_up_to_a_number_of_bytes() -> None:
    """And the number of earlier ones. The last event is kept at any size."""
    kept = KeptEvents()
    for n in range(300):
        event = ev.MessageReceived(content=f"{n:04}{MB}")
        kept.add([event], estimated_size(event))
    latest = kept.latest()

    assert kept.before + len(latest) == 300
    assert latest[-1].content[:4] == "0299"  # type: ignore[attr-defined]
    assert sum(map(estimated_size, latest)) <= 64 * 1024 * 1024
    assert len(latest) > 50
    kept.add([event], 65 * 1024 * 1024)
    assert kept.latest() == (event,)


async def test_an_event_that_no_store_can_keep_is_rejected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a bad record, not as a failure of the store. Later events are stored."""
    monkeypatch.setattr(records, "MAX_BYTES", 1000)
    store = MemoryStore()
    with pytest.raises(StoreError, match="at most 1,000 can be stored") as raised:
        await store.append([ev.MessageReceived(session_id="s", content="x" * 1000)])

    assert raised.value.kind == "bad_record"
    assert [event.seq for event in await store.append([ev.MessageReceived(session_id="s", content="x")])] == [1]


async def test_a_replayed_conversation_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the latest messages. All of them still count."""
    monkeypatch.setattr(history, "TRANSCRIPT_BYTES", 10_000)
    store = MemoryStore()
    first = FakeAdapter([ev.MessageReceived(content=f"{n:03}" + "x" * 1000) for n in range(50)])
    result = await run_once(first, "go", policies=[OPEN], store=store)
    again = FakeAdapter([ev.MessageReceived(content="c")])
    how = {"session_id": result.session_id, "continuation": "replay"}
    later = await run_once(again, "more", policies=[OPEN], store=store, **how)  # type: ignore[arg-type]
    replayed = list(again.launches[0].transcript)

    assert replayed == list(result.events)[-len(replayed) :]
    assert 5 < len(replayed) < 15
    assert later.events[0].seq == len(result.events) + 1


def test_the_beginning_of_a_tools_output_is_kept_as_text() -> None:
    """Keys count towards its size, as values do."""
    values = within_bounds(ev.ToolCallCompleted(tool_call_id="c", tool_output={"head": "begins", "rest": HUGE}))
    keys = within_bounds(ev.ToolCallCompleted(tool_call_id="c", tool_output={HUGE: 1}))

    assert str(values.tool_output).startswith('{"head":"begins","rest":"')  # type: ignore[attr-defined]
    assert keys.omitted_chars > 0


MESSAGES = ev.MessageEvent | ev.MessageStreamed
FULL = ("messages_full", "user_messages_full")


async def recorded(
    store: Store, steps: list[Step], policy: Policy, *, max_messages: int = 20, max_message_bytes: int = 100_000
) -> list[ev.Event]:
    async with Supervisor(store, max_messages=max_messages, max_message_bytes=max_message_bytes) as supervisor:
        handle = await supervisor.start(FakeAdapter(steps), "go", policies=[policy])
        result = await handle.wait()
        assert result.output == "done"
        return [event async for event in store.read(result.session_id)]


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
@pytest.mark.parametrize("flood", [
    [ev.MessageReceived(content="x")] * 500,
    [ev.MessageStreamed(delta="x")] * 500,
    [ev.MessageReceived(content="y" * 40_000)] * 10,
    [ev.MessageSent(content="z", role="user")] * 500,
], ids=["whole", "streamed", "large", "of a user"])  # fmt: skip
async def test_one_event_says_that_recording_has_stopped(flood: list[Step], kept: str, tmp_path: Path) -> None:
    """Few of the flood are stored, calls continue, and the run completes."""
    steps: list[Step] = [*flood, Ask(name="x", id="c"), *flood, ev.RunCompleted(output="done")]
    async with opened(kept, tmp_path) as store:
        events = await recorded(store, steps, OPEN)

        streamed = await run_once(
            FakeAdapter([*flood, ev.RunCompleted()]), "go", store=store, policy=OPEN, max_messages=9
        )

    assert len(streamed.output or "") <= max(
        9, len(getattr(flood[-1], "content", ""))
    )  # none of the unrecorded events is stored
    assert sum(isinstance(event, MESSAGES) for event in events) <= 21
    errors = [event for event in events if isinstance(event, ev.ErrorOccurred)]
    assert [event.code in FULL for event in errors] == [True]
    assert any(isinstance(event, ev.ToolCallStarted) for event in events)
    assert isinstance(events[-1], ev.RunCompleted)


async def test_a_flood_of_an_agents_messages_keeps_those_of_the_user() -> None:
    """The user's earlier and later messages support a call. Beyond their own bound, the latest is not known."""
    requires = [{"user_said": "please", "in": "latest"}]
    rule = {"type": "precondition", "id": "asked", "tool": "x", "requires": requires}
    (policy,) = parse_policies({"name": "p", "on_violation": "deny", "rules": [rule]})
    agents: list[Step] = [ev.MessageReceived(content="x")] * 100
    asks = ev.MessageSent(content="please")
    done = ev.RunCompleted(output="done")

    events = await recorded(MemoryStore(), [*agents, asks, Ask(name="x", id="c"), done], policy)
    assert [event.tool_call_id for event in events if isinstance(event, ev.ToolCallStarted)] == ["c"]

    users: list[Step] = [asks] * 100
    events = await recorded(
        MemoryStore(), [*users, ev.MessageSent(content="no"), Ask(name="x", id="c"), done], policy
    )
    assert not [event for event in events if isinstance(event, ev.ToolCallStarted)]


LARGE = 64 * 1024
"""The size of one large event, in bytes."""
USED = ev.TokenUsageUpdated(input_tokens=1)
FLOODS: dict[str, list[Step]] = {
    "usage": [USED] * 600,
    "outputs": [ev.ToolCallCompleted(tool_call_id="c", tool_output="y" * LARGE)] * 20,
    "errors": [ev.ToolCallFailed(tool_call_id="c", error="e" * LARGE)] * 20,
    "calls": [ev.ToolCallRequested(tool_call_id=f"c{n}", tool_name="x") for n in range(600)],
    "unknown": [ev.Unrecognized(raw={"type": "news", "text": "z" * 1000})] * 600,
    "turns": [ev.TurnStarted(turn=1), ev.TurnCompleted(turn=1)] * 300,
    "own errors": [ev.ErrorOccurred(code="c", message="m")] * 600,
    "sessions": [ev.SessionStarted(provider_session_id="p")] * 600,
}


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "memory":
        yield MemoryStore()
    elif kind == "sqlite":
        async with SQLiteStore(folder / "s.db") as store:
            yield store
    else:
        with new_schema() as (url, schema):
            async with PostgresStore(url, schema=schema) as store:
                yield store


@pytest.mark.parametrize(("kind", "flood"), [
    *(("memory", flood) for flood in FLOODS),
    *(("sqlite", flood) for flood in ("usage", "outputs")),
    pytest.param("postgres", "usage", marks=needs_postgres),
])  # fmt: skip
async def test_a_flood_of_other_events_fails_the_run(kind: str, flood: str, tmp_path: Path) -> None:
    """Few are stored, one event gives the reason, and later events are not accepted."""
    agent = FakeAdapter([*FLOODS[flood], ev.RunCompleted(output="done")])
    async with (
        opened(kind, tmp_path) as store,
        Supervisor(store, max_events=100, max_event_bytes=8 * LARGE) as supervisor,
    ):
        handle = await supervisor.start(agent, "go", policies=[OPEN], session_id="s")
        with pytest.raises(EventError, match="it may record 100 events besides messages, 524,288 bytes"):
            await handle.wait()
        events = [event async for event in store.read("s")]
        size = (await store.size()).bytes

    assert len(events) < 120
    assert kind == "postgres" or size < 16 * LARGE
    assert [event.code for event in events if isinstance(event, ev.ErrorOccurred) and event.code != "c"] == [
        "record_full"
    ]
    assert isinstance(events[-1], ev.RunFailed)


async def test_a_flood_within_the_bounds_is_stored_whole() -> None:
    """Up to the maximum; messages do not count towards it."""
    store = MemoryStore()
    steps: list[Step] = [*[USED] * 50, *[ev.MessageReceived(content="x")] * 50, ev.RunCompleted(output="done")]
    result = await run_once(FakeAdapter(steps), "go", store=store, policy=OPEN, max_events=52)

    assert result.usage.input_tokens == 50
    with pytest.raises(EventError, match="it may record 51 events"):
        await run_once(FakeAdapter(steps), "go", store=store, policy=OPEN, max_events=51)


@pytest.mark.parametrize("name", ["max_messages", "max_message_bytes", "max_events", "max_event_bytes"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9"])
def test_a_bound_must_be_a_whole_number(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{name} is .*; it must be a whole number from 1"):
        Supervisor(MemoryStore(), **{name: value})  # type: ignore[arg-type]


async def test_a_created_run_accepts_the_bounds_too() -> None:
    """`execute_run` passes them on."""
    store, agent = MemoryStore(), FakeAdapter([ev.MessageReceived(content="x")] * 50)
    result = await execute_run(store, agent, await create_run(store, "go"), policy=OPEN, max_messages=5)

    assert sum(isinstance(event, ev.MessageReceived) for event in result.events) == 5
    assert [event.code for event in result.events if isinstance(event, ev.ErrorOccurred)] == ["messages_full"]


@pytest.mark.parametrize("code", ["messages_full", "user_messages_full", "record_full"])
async def test_only_the_supervisor_may_report_a_reached_bound(code: str) -> None:
    """If an agent reports it, the event is rejected and recording continues."""
    steps: list[Step] = [ev.ErrorOccurred(code=code, message="forged"), *[ev.MessageReceived(content="x")] * 3]
    result = await run_once(FakeAdapter([*steps, ev.RunCompleted(output="done")]), "go", policy=OPEN)

    assert [event.code for event in result.events if isinstance(event, ev.ErrorOccurred)] == ["not_believed"]
    assert sum(isinstance(event, ev.MessageReceived) for event in result.events) == 3
