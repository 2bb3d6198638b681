"""A short part of the long runs of faults, and what they would find."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from postgres_server import needs_own_server

from proctor.policies.events import Event, RunCompleted, RunStarted, ToolCallStarted
from proctor.supervisor import RunInfo

from . import cancels, chaos, load, power, signals
from .ledger import Share

ROOT = Path(__file__).parents[2]


def test_the_long_runs_start_as_their_page_says() -> None:
    """By `python -m`, where no test's folder is on the path."""
    listed = subprocess.run([sys.executable, "-m", "tests.fuzz", "--help"], capture_output=True, text=True, cwd=ROOT)

    assert listed.returncode == 0, listed.stderr
    assert "chaos-postgres" in listed.stdout


def test_a_log_that_is_cut_off_loses_nothing_that_fits_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes' places of a small store; the long run cuts larger ones at many."""
    monkeypatch.setattr(power, "BATCHES", 12)
    monkeypatch.setattr(power, "CUTS", 6)

    assert power.power(1, 0).found == []


def test_an_acknowledged_event_that_is_not_there_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So would one that is another than was written."""
    monkeypatch.setattr(power, "BATCHES", 12)
    written = anyio.run(power._write, tmp_path, random.Random(1))
    place = next(iter(written.records))
    promised = written._replace(acked=[(0, {"a": 10**6})])
    other = written._replace(records={**written.records, place: b"{}"})
    whole = 2**31

    assert power._cut(written, whole) == []
    assert power._cut(promised, whole) == ["acknowledged events are lost: {'a': 1000000}"]
    assert power._cut(other, whole) == [f"events are others than were written: {[place]}"]


def test_a_caller_that_goes_away_leaves_a_whole_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """On both event loops, after some checkpoints; the long run takes many."""
    monkeypatch.setattr(cancels, "RUNS", 40)
    share = cancels.cancels(1, 0)

    assert share.found == []
    assert share.counts["before their end"] > 5


@pytest.mark.parametrize("sent", signals.SIGNALS)
def test_a_signal_at_any_moment_leaves_no_unfinished_run(sent: signal.Signals) -> None:
    """At some moments; the long run takes many. What was killed is ended by the next who looks."""
    chance, latest = random.Random(sent), signals._latest()
    moments = [chance.randint(first, latest) for first in (1, latest - signals.AFTER_IMPORTS)]
    found = [signals.signalled(moment, sent, ends=False)[1] for moment in moments]

    assert found == [[], []]


def test_a_run_that_a_signal_left_behind_would_be_found() -> None:
    """Also one that ended in order, with another exit code."""
    left = signals.Ran(-15, "", "")

    assert signals._wrong(left, signal.SIGTERM, ["lost"], ends=False)[0] == "runs are ['lost']"
    assert signals._wrong(left, signal.SIGTERM, ["cancelled"], ends=True) == ["exit code -15, runs ['cancelled'], "]
    assert signals._wrong(left, signal.SIGTERM, [], ends=True) == []
    assert signals._wrong(left, signal.SIGKILL, ["running"], ends=False)[0] == "runs are ['running']"


@pytest.mark.parametrize(
    "run", [chaos.on_sqlite, pytest.param(chaos.on_postgres, marks=needs_own_server)], ids=["sqlite", "postgres"]
)
def test_trouble_breaks_no_record(run: Callable[[int, int], Share], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds of it; the long run makes trouble for minutes."""
    monkeypatch.setattr(chaos, "SECONDS", 6.0)
    share = run(1, 0)

    assert share.found == []
    assert share.counts["calls that ran"] > 0


def test_what_trouble_breaks_would_be_found() -> None:
    """Each thing that must not be in a record, in what the workers said of it, or in what a follower saw."""
    ids: dict[str, Any] = {"session_id": "s0", "run_id": "r0"}
    begun, call = RunStarted(seq=1, **ids), ToolCallStarted(seq=2, tool_call_id="c0", tool_name="read", **ids)
    again, end = msgspec.structs.replace(call, seq=3), RunCompleted(seq=4, **ids)
    run = RunInfo(run_id="r0", session_id="s0", status="completed", provider="fake")
    lines = ["ack s0 4 r0 run_completed", "ran r0 c0"]

    def wrong(*events: Event, lines_of: Sequence[str] = (), seen: Sequence[Event] = ()) -> list[str]:
        return list(chaos.wrong([run], {"s0": list(events)}, lines_of, seen))

    whole = (begun, call, msgspec.structs.replace(end, seq=3))
    ended_twice = msgspec.structs.replace(end, seq=5)
    most = [msgspec.structs.replace(call, seq=n + 2, tool_call_id=f"c{n}") for n in range(13)]
    assert wrong(*whole, lines_of=["ack s0 3 r0 run_completed", "ran r0 c0"], seen=whole) == []
    assert wrong(begun, call, again, end) == ["run r0 has calls twice: ['c0']"]
    assert "its last event is tool_call_started" in wrong(begun, call)[0]
    assert "has the ends ['run_completed', 'run_completed']" in wrong(begun, call, again, end, ended_twice)[0]
    assert wrong(begun, call, end)[0] == "session s0 has a gap"
    assert wrong(*whole, lines_of=lines) == ["acknowledged events are lost: ['s0 4 r0 run_completed']"]
    assert wrong(*whole, lines_of=["ran r0 c0"] * 2) == ["calls ran twice: [('r0', 'c0')]"]
    assert wrong(*whole, lines_of=["ran r0 c1"]) == ["calls ran unrecorded: [('r0', 'c1')]"]
    assert wrong(*whole, seen=[begun, begun]) == ["a follower saw twice: ['s0 1 r0 run_started']"]
    assert wrong(*whole, seen=[end]) == ["a follower saw what is not there: ['s0 4 r0 run_completed']"]
    assert wrong(begun, *most, msgspec.structs.replace(end, seq=15)) == ["t0 has 13 of 12 calls"]


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "trio"])
def test_many_sessions_leave_nothing_behind(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them, with all that goes on beside; the long run starts 2,000."""
    monkeypatch.setattr(load, "SESSIONS", 30)
    share = load.on_sqlite(1, number)

    assert share.found == []
    assert share.counts["sessions"] == 30
    assert min(share.counts[each] for each in ("answers", "events followed", "page requests")) > 0
