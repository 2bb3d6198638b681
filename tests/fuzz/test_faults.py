"""A short part of the long runs on faults."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from postgres_server import needs_own_server

from . import chaos, load, power, signals
from .ledger import Share

ROOT = Path(__file__).parents[2]


def test_the_long_runs_start_as_documented() -> None:
    """With `python -m`, with no test's folder on the path."""
    listed = subprocess.run([sys.executable, "-m", "tests.fuzz", "--help"], capture_output=True, text=True, cwd=ROOT)

    assert listed.returncode == 0, listed.stderr
    assert "chaos-postgres" in listed.stdout


def test_a_truncated_log_loses_nothing_before_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a few bytes of a small store; the long run truncates larger ones at many."""
    monkeypatch.setattr(power, "BATCHES", 12)
    monkeypatch.setattr(power, "CUTS", 6)

    assert power.power(1, 0).found == []


@pytest.mark.parametrize("sent", signals.SIGNALS)
def test_a_signal_at_any_moment_leaves_no_unfinished_run(sent: signal.Signals) -> None:
    """At some moments; the long run uses many. Leftovers of a kill are ended by the next process that
    uses the store.
    """
    chance, latest = random.Random(sent), signals._latest()
    moments = [chance.randint(first, latest) for first in (1, latest - signals.AFTER_IMPORTS)]
    found = [signals.signalled(moment, sent, ends=False)[1] for moment in moments]

    assert found == [[], []]


@pytest.mark.parametrize(
    "run", [chaos.on_sqlite, pytest.param(chaos.on_postgres, marks=needs_own_server)], ids=["sqlite", "postgres"]
)
def test_disturbances_corrupt_no_log(run: Callable[[int, int], Share], monkeypatch: pytest.MonkeyPatch) -> None:
    """For some seconds; the long run takes minutes."""
    monkeypatch.setattr(chaos, "SECONDS", 6.0)
    share = run(1, 0)

    assert share.found == []
    assert share.counts["calls that ran"] > 0


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "trio"])
def test_many_sessions_leave_nothing_behind(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few, with all other activity; the long run starts 2,000."""
    monkeypatch.setattr(load, "SESSIONS", 30)
    share = load.on_sqlite(1, number)

    assert share.found == []
    assert share.counts["sessions"] == 30
    assert min(share.counts[each] for each in ("answers", "events followed", "page requests")) > 0
