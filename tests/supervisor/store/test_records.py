"""How some events change the stored row of their run."""

import random
import sys
import threading
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.supervisor import MemoryStore, RunInfo, StoreError
from proctor.supervisor.store import records
from proctor.supervisor.store.records import CallsInFlight, RunDelta

RUN = RunInfo(run_id="r", session_id="s")


def after(run: RunInfo, *events: ev.Event) -> RunInfo:
    """The row of a run after these events, with consecutive seqs."""
    delta = RunDelta()
    for seq, event in enumerate(events, 1):
        delta.count(replace(event, seq=seq))
    return delta.applied(run)


def test_a_row_with_an_end_keeps_its_end_and_usage() -> None:
    """Whatever is reported later."""
    over = after(RUN, ev.RunCompleted(usage={"input_tokens": 5}))

    assert after(over, ev.TokenUsageUpdated(input_tokens=7), ev.RunCompleted(usage={"input_tokens": 9})) == over
    assert after(over, ev.RunStarted(), ev.RunCompleted()).ended_seq == 1


@pytest.mark.parametrize("usage", [{"input_tokens": 5}, {"input_tokens": 5, "cost_usd": 0.5}, {}])
@pytest.mark.parametrize("cut", range(6))
def test_events_counted_in_parts_change_the_row_as_they_do_together(usage: Any, cut: int) -> None:
    """However a store divides them: the calls, the usage, and the outcome."""
    used = [ev.TokenUsageUpdated(input_tokens=3), ev.TokenUsageUpdated(scope="cumulative", output_tokens=4)]
    every = [ev.RunStarted(), *used, ev.RunCompleted(usage=usage), ev.TokenUsageUpdated(input_tokens=9)]
    parts = RunDelta(), RunDelta()
    for seq, event in enumerate(every, 1):
        parts[seq > cut].count(replace(event, seq=seq))

    assert parts[0].then(parts[1]).applied(RUN) == after(RUN, *every)


@pytest.mark.parametrize("seed", range(20))
def test_calls_in_flight_are_the_same_after_one_append_and_after_many(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are the rejected calls, and those dropped beyond the bound."""
    monkeypatch.setattr(records, "_MOST_IN_FLIGHT", 3)
    drawn, whole, text = random.Random(seed), CallsInFlight(), ""
    for _ in range(60):
        call: Any = {"tool_call_id": drawn.choice("abcde"), "tool_name": "t"}
        start = ev.ToolCallStarted(**call, tool_input={"n": drawn.choice([1, 2])})
        event = drawn.choice([start, start, ev.ToolCallCompleted(**call)])
        each = CallsInFlight(text)
        assert _refusal(whole, event) == _refusal(each, event)
        text = each.text

        assert whole.text == text


def _refusal(calls: CallsInFlight, event: ev.Event) -> str | None:
    try:
        calls.observe(event)
    except StoreError as error:
        return error.kind
    return None


def test_threads_that_read_a_store_in_memory_at_once_get_the_same_digests() -> None:
    """Subscribers of several event loops follow one store; another digest tells them that an older copy took its
    place.
    """
    store, at_once, read = MemoryStore(), threading.Barrier(4, timeout=10), list[dict[tuple[str, int], bytes]]()

    async def write() -> None:
        for session in range(50):
            await store.append([ev.MessageSent(session_id=f"s{session}") for _ in range(200)])

    async def digests() -> None:
        found: dict[tuple[str, int], bytes] = {}
        at_once.wait()
        async for entry in store.log(newest_first=True):
            found[entry.session_id, entry.seq] = entry.digest
            if entry.seq == 1:  # what is read next is the first of its session to be digested
                at_once.wait()
        read.append(found)

    anyio.run(write)
    switching = sys.getswitchinterval()
    threads = [threading.Thread(target=anyio.run, args=(digests,)) for _ in range(4)]
    try:
        sys.setswitchinterval(1e-6)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    expected: dict[tuple[str, int], bytes] = {}
    for session_id in {session_id for session_id, _ in read[0]}:
        data = [records.to_record(ev.MessageSent(session_id=session_id), seq)[1] for seq in range(1, 201)]
        links = records.links(records.root(session_id), data)
        expected |= {(session_id, seq): digest for seq, digest in enumerate(links, 1)}

    assert [found == expected for found in read] == [True] * 4
