"""A short part of the long runs of faults, and what they would find."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import anyio
import pytest

from . import cancels, power, signals


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
    moments = [chance.randint(first, latest) for first in (1, *[latest - signals.AFTER_IMPORTS] * 2)]
    found = [signals.signalled(moment, sent, ends=False)[1] for moment in moments]

    assert found == [[], [], []]


def test_a_run_that_a_signal_left_behind_would_be_found() -> None:
    """Also one that ended in order, with another exit code."""
    left = signals.Ran(-15, "", "")

    assert signals._wrong(left, signal.SIGTERM, ["lost"], ends=False)[0] == "runs are ['lost']"
    assert signals._wrong(left, signal.SIGTERM, ["cancelled"], ends=True) == ["exit code -15, runs ['cancelled'], "]
    assert signals._wrong(left, signal.SIGTERM, [], ends=True) == []
    assert signals._wrong(left, signal.SIGKILL, ["running"], ends=False)[0] == "runs are ['running']"
