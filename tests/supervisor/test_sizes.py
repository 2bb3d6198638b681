"""What an agent reports is held in bounded memory: queued, kept for the result, and in one event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import anyio
import pytest

from proctor.policies import decode_event, encode_event
from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    SessionStarted,
    ToolCallCompleted,
    ToolCallStarted,
    Unrecognized,
)
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, StoreError, Supervisor, run_once
from proctor.supervisor.launch import history
from proctor.supervisor.machine.run_state import MOST_BYTES, estimated_size, within_bounds
from proctor.supervisor.run.journal import CAPACITY_BYTES, KeptEvents
from proctor.supervisor.store import records
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S, Step

pytestmark = pytest.mark.anyio
HUGE = "x" * (3 * MOST_BYTES)
MB = "y" * 1_000_000


class Held(MemoryStore):
    """Answers no append until it is let go on, once a run has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = anyio.Event()

    async def append(self, events: Sequence[Event], *, epoch: int = 0) -> list[Event]:
        if any(isinstance(event, ToolCallCompleted) for event in events):
            await self.go_on.wait()
        return await super().append(events, epoch=epoch)


async def test_a_provider_is_read_no_faster_than_its_bytes_are_stored(permissive: Policy) -> None:
    """However few events they are; and it goes on when they are."""
    taken = 0

    class Steps:
        def __iter__(self) -> Iterator[Step]:
            nonlocal taken
            while taken < 70:
                taken += 1
                yield ToolCallCompleted(tool_call_id="c", tool_output=MB)

    adapter = FakeAdapter()
    adapter.steps = Steps()  # type: ignore[assignment]  # made as they are asked for
    store = Held()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[permissive])
        await anyio.wait_all_tasks_blocked()
        waiting = taken
        store.go_on.set()
        with anyio.fail_after(PATIENCE_S):
            result = await handle.wait()

    assert waiting <= CAPACITY_BYTES // len(MB) + 3
    assert sum(isinstance(event, ToolCallCompleted) for event in result.events) + result.events_before >= 60


async def test_an_event_carries_so_much_and_says_what_is_left_out(permissive: Policy) -> None:
    """The record and what is judged are the same, whatever is in it; the result's output is whole."""
    reported: list[Event] = [
        ToolCallStarted(tool_call_id="c", tool_name="read"),
        ToolCallCompleted(tool_call_id="c", tool_output=HUGE),
        MessageReceived(content=[{"type": "text", "text": HUGE}, {"type": "text", "text": "more"}]),
        RunCompleted(output=HUGE),
    ]
    store = MemoryStore()
    result = await run_once(FakeAdapter(reported), "go", policies=[permissive], store=store)
    cut = [event for event in result.events if event.omitted_chars]
    stored = [event async for event in store.read(result.session_id) if event.omitted_chars]

    assert [type(event) for event in cut] == [ToolCallCompleted, MessageReceived, RunCompleted]
    assert stored == cut
    for event in cut:
        assert estimated_size(event) <= MOST_BYTES
        assert event.omitted_chars >= len(HUGE) - MOST_BYTES
    assert cut[0].omitted_chars + len(cut[0].tool_output) == len(HUGE)  # type: ignore[attr-defined]
    assert len(cut[0].tool_output) > MOST_BYTES // 2  # type: ignore[attr-defined]
    assert result.output == HUGE


@pytest.mark.parametrize(
    "event",
    [
        MessageStreamed(delta=HUGE),
        ToolCallCompleted(tool_call_id="c", tool_output={"rows": [[HUGE]]}),
        ToolCallCompleted(tool_call_id="c", tool_output=list(range(3_000_000))),
        SessionStarted(provider_session_id="p", metadata={"model": "m", "blob": HUGE}),
        Unrecognized(raw={"type": "news", "blob": HUGE}),
        ToolCallStarted(tool_call_id="c", tool_name="write", tool_input={"content": HUGE}),
    ],
    ids=lambda event: event.type,
)
def test_what_is_cut_can_be_read_again(event: Event) -> None:
    """It has its type and its ids; a call's input is never cut."""
    cut = within_bounds(event)
    again = decode_event(encode_event(cut))

    assert encode_event(again) == encode_event(cut)
    assert again.type == event.type
    if isinstance(event, ToolCallStarted):
        assert cut == event
    else:
        assert estimated_size(cut) <= MOST_BYTES
        assert cut.omitted_chars > 0


def test_small_events_are_left_as_they_are() -> None:
    """Not even copied."""
    event = ToolCallCompleted(tool_call_id="c", tool_output={"a": ["b", 1, None, 2.5]})

    assert within_bounds(event) is event


def test_a_result_keeps_the_latest_events_within_a_bound_of_bytes() -> None:
    """And counts those before."""
    kept = KeptEvents()
    for n in range(300):
        event = MessageReceived(content=f"{n:04}{MB}")
        kept.add([event], estimated_size(event))
    latest = kept.latest()

    assert kept.before + len(latest) == 300
    assert latest[-1].content[:4] == "0299"  # type: ignore[attr-defined]
    assert sum(map(estimated_size, latest)) <= 64 * 1024 * 1024
    assert len(latest) > 50


async def test_a_record_no_store_can_keep_is_refused_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a bad record, not as a store that fails; what comes after it is stored."""
    monkeypatch.setattr(records, "MAX_BYTES", 1000)
    store = MemoryStore()
    with pytest.raises(StoreError, match="at most 1,000 can be stored") as refused:
        await store.append([MessageReceived(session_id="s", content="x" * 1000)])

    assert refused.value.kind == "bad_record"
    assert [event.seq for event in await store.append([MessageReceived(session_id="s", content="x")])] == [1]


async def test_a_conversation_is_replayed_as_far_as_there_is_room(
    permissive: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its latest part; what it was counts all the same."""
    monkeypatch.setattr(history, "TRANSCRIPT_BYTES", 10_000)
    store = MemoryStore()
    first = FakeAdapter([MessageReceived(content=f"{n:03}" + "x" * 1000) for n in range(50)])
    result = await run_once(first, "go", policies=[permissive], store=store)
    again = FakeAdapter([MessageReceived(content="c")])
    how = {"session_id": result.session_id, "continuation": "replay"}
    later = await run_once(again, "more", policies=[permissive], store=store, **how)  # type: ignore[arg-type]
    replayed = list(again.launches[0].transcript)

    assert replayed == list(result.events)[-len(replayed) :]
    assert 5 < len(replayed) < 15
    assert later.events[0].seq == len(result.events) + 1


@pytest.mark.parametrize(
    "event",
    [ErrorOccurred(code="c", message=HUGE), ErrorOccurred(code="c", message="m", provider_error={"body": HUGE})],
    ids=["message", "provider_error"],
)
def test_an_error_is_cut_too(event: Event) -> None:
    """Its code stays."""
    cut = within_bounds(event)

    assert estimated_size(cut) <= MOST_BYTES
    assert (cut.omitted_chars > 0, cut.code) == (True, "c")  # type: ignore[attr-defined]


def test_of_what_a_tool_returned_the_beginning_is_kept_as_text() -> None:
    """Keys weigh as values do."""
    values = within_bounds(ToolCallCompleted(tool_call_id="c", tool_output={"head": "begins", "rest": HUGE}))
    keys = within_bounds(ToolCallCompleted(tool_call_id="c", tool_output={HUGE: 1}))

    assert str(values.tool_output).startswith('{"head":"begins","rest":"')  # type: ignore[attr-defined]
    assert keys.omitted_chars > 0
