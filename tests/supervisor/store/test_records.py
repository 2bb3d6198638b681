"""How some events change the stored row of their run."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.supervisor import RunInfo, StoreError
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
