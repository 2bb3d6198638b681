"""Owners in their own processes: raced, suspended, killed, and reached by the kill switch.

`PROCTOR_KILLS=300` kills that many instead of a few; see docs/long-runs.md.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import anyio
import pytest
from owning_processes import Process, Workers, check_record, ended_by_another, process
from postgres_server import either_store
from stopping import stop_between_writes
from stored_rows import in_store, stored_events

from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.store_names import is_url
from proctor.policies.events import TERMINAL, Event, RunCompleted, RunFailed
from proctor.supervisor import KillOutcome, KillSwitch, Store, all_runs, create_run
from proctor.supervisor.testing.fakes import PATIENCE_S

KILLS = int(os.environ.get("PROCTOR_KILLS", "6"))
RACES = 5


name = either_store


def test_a_created_run_given_to_two_processes_runs_once(name: str) -> None:
    """Repeatedly: one executes it, the other learns so."""

    async def created(store: Store) -> None:
        for n in range(RACES):
            await create_run(store, "go", run_id=f"r{n}", session_id=f"s{n}")

    async def ends(store: Store) -> list[list[type[Event]]]:
        found = [await stored_events(store, f"s{n}") for n in range(RACES)]
        return [[type(event) for event in events if isinstance(event, TERMINAL)] for events in found]

    in_store(name, created)
    with process(name, "execute") as one, process(name, "execute") as other:
        for each in (one, other):
            each.until("ready")
        for n in range(RACES):
            for each in (one, other):
                each.go_on(f"r{n}")
            answers = sorted(each.until(("ended", "refused")) for each in (one, other))
            assert answers[0].startswith("ended")
            assert answers[1].startswith("refused bad_usage")
        for each in (one, other):
            each.end_input()
    ran = Counter(line for line in one.rest() + other.rest() if line.startswith("ran "))

    assert ran == {f"ran r{n} c{k}": 1 for n in range(RACES) for k in range(3)}
    assert in_store(name, ends) == [[RunCompleted]] * RACES


def test_an_owner_suspended_beyond_its_lease_is_fenced(name: str) -> None:
    """Its run was ended meanwhile, so a call that its agent proposes then does not run."""
    with process(name, "hold", "1") as owner:
        owner.until("ran held c0")
        if is_url(name):
            owner.process.send_signal(signal.SIGSTOP)
        else:
            stop_between_writes(owner.process, Path(name))
        before = in_store(name, ended_by_another)
        owner.process.send_signal(signal.SIGCONT)
        owner.go_on()
        lines = owner.rest()
    after = in_store(name, stored_events)

    assert [line for line in lines if line.startswith("ran")] == ["ran held c0"]
    assert lines[-1].startswith("refused fenced")
    assert after == before
    assert isinstance(after[-1], RunFailed)
    assert after[-1].error["code"] == "owner_lost"


@pytest.mark.parametrize("kills", [KILLS])
def test_killing_one_of_three_owners_at_random_moments_loses_nothing(name: str, kills: int) -> None:
    """No acknowledged event is lost, there is no gap, every run has one end, and no call ran twice or unrecorded."""
    with Workers(name, [name] * 3) as workers:
        for n in range(kills):
            workers.create()
            workers.kill(n % 3)

    anyio.run(check_record, name, workers.lines)
    assert audited(name).findings == ()


MANY = Path(__file__).parents[3] / "supervisor" / "control" / "many_runs.py"


@contextmanager
def many_runs(store: Path, count: int) -> Iterator[Process]:
    """A process with this many active runs."""
    with process(str(store), str(count), program=MANY) as many:
        many.until("going")
        yield many


def starts(many: Process) -> str:
    """Let it start one more: `started`, or the error's code."""
    many.go_on("one more")
    code: str = many.until("")
    return code


async def killed(store: Store) -> list[KillOutcome]:
    return await KillSwitch(store).kill(by="ana", everything=True, block_starts=True, wait_s=PATIENCE_S)


def test_500_runs_of_three_processes_are_killed_and_each_is_reported(tmp_path: Path) -> None:
    """After that, none of them starts a run until the freeze is lifted."""
    store = tmp_path / "runs.db"

    async def statuses_then_lift(opened: Store) -> Counter[str]:
        found: Counter[str] = Counter([run.status async for run in all_runs(opened)])
        refused.extend([starts(many) for many in three])
        await KillSwitch(opened).lift(by="ana", everything=True)
        return found

    refused: list[str] = []
    with ExitStack() as processes:
        three = [processes.enter_context(many_runs(store, count)) for count in (167, 167, 166)]
        outcomes = in_store(store, killed)
        after = in_store(store, statuses_then_lift)
        again = [starts(many) for many in three]

    assert len({outcome.run_id for outcome in outcomes}) == len(outcomes) == 500
    assert Counter((outcome.status, outcome.ended) for outcome in outcomes) == {("cancelled", True): 500}
    assert after == {"cancelled": 500}
    assert refused == ["starts_blocked"] * 3
    assert again == ["started"] * 3


def test_runs_whose_process_was_killed_are_ended_too(tmp_path: Path) -> None:
    """They have no owner, so the process that uses the kill switch ends them. The others get the command."""
    store = tmp_path / "runs.db"
    with many_runs(store, 5) as gone, many_runs(store, 5):
        gone.process.kill()
        gone.process.wait()
        outcomes = in_store(store, killed)

    found = Counter((outcome.status, outcome.ended) for outcome in outcomes)

    assert found.total() == 10
    assert set(found) == {("cancelled", True), ("failed", True)}


@pytest.mark.parametrize("moved", [timedelta(-365), timedelta(365)])
def test_a_wall_clock_set_back_or_ahead_does_not_affect_the_kill_switch(
    moved: timedelta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are ordered by the store's numbers, so the runs that existed end."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + moved

    store = tmp_path / "runs.db"
    with many_runs(store, 3) as many:
        monkeypatch.setattr("proctor.supervisor.control.kill_switch.datetime", Moved)
        outcomes = in_store(store, killed)
        rejected = starts(many)

    assert [(outcome.status, outcome.ended) for outcome in outcomes] == [("cancelled", True)] * 3
    assert rejected == "starts_blocked"
