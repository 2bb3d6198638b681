"""Stores answer reservations of shared budgets as a naive reference does, for any sequence of operations."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reference.budgets import Ref

from proctor.adapters.stores import MemoryStore, SQLiteStore
from proctor.policies.events import RunCompleted, RunStarted
from proctor.policies.limits import BudgetAccount
from proctor.supervisor.ports.budget_ledger import Reservation
from proctor.supervisor.ports.stored_types import Owner, RunInfo

HOUR, DAY = 3_600_000, 86_400_000
START = 1_761_868_800_000  # the last day of a month, 2025-10-31
CLAIMS = {
    "all": BudgetAccount(budget="all", key="", counts="cost_usd", window="", max=20),
    "day": BudgetAccount(budget="day", key='$.user="u"', counts="total_tokens", window="day", max=12),
    "week": BudgetAccount(budget="week", key="", counts="total_tokens", window="week", max=13),
    "month": BudgetAccount(budget="month", key="", counts="cost_usd", window="month", max=15),
    "rolling": BudgetAccount(budget="rolling", key="", counts="cost_usd", window=str(6 * HOUR), max=6),
    "calls": BudgetAccount(budget="calls", key="", counts="tool_calls", window="day", max=5),
    "places": BudgetAccount(budget="places", key="", counts="running", window="", max=2),
}
NAMES = st.sampled_from(sorted(CLAIMS))
AMOUNTS = st.integers(0, 8).map(lambda n: n / 2)


class Ledgers(RuleBasedStateMachine):
    """Reservations in a memory store, a file store, and the reference."""

    @initialize()
    def begin(self) -> None:
        self.ref = Ref({n: (c.max, c.window, c.counts) for n, c in CLAIMS.items()})
        self.ref.now_ms = START
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        clock = lambda: self.ref.now_ms / 1000  # noqa: E731 - one line of three
        path = Path(self.folder.name) / "s.db"
        self.stores: list[Any] = [self.loop.run(made(MemoryStore, wall_clock=clock))]
        self.stores.append(self.loop.run(made(SQLiteStore, path, synchronous="OFF", wall_clock=clock)))
        self.used: dict[tuple[str, str], float] = {}
        self.owners: dict[str, list[int]] = {}
        for name in ("one", "two"):
            self.lets_in(name)
        self.runs: list[str] = []
        self.goes_on("one")

    def both(self, ask: Any) -> list[Any]:
        return [self.loop.run(ask(n, store)) for n, store in enumerate(self.stores)]

    def lets_in(self, name: str) -> None:
        self.owners[name] = [o.epoch for o in self.both(lambda n, s: s.register(Owner(owner_id=name), lease_s=3600))]

    def epochs(self, run: str) -> list[int]:
        return self.owners[self.ref.owner[run]]

    @rule(owner=st.sampled_from(["one", "two"]))
    def goes_on(self, owner: str) -> None:
        """A run starts."""
        if owner in self.ref.gone:
            return
        run = f"r{len(self.runs)}"
        self.runs.append(run)
        self.ref.owner[run] = owner
        epochs = self.owners[owner]
        info = RunInfo(run_id=run, session_id=f"s-{run}")
        self.both(lambda n, s: s.create_run(info, epoch=epochs[n]))
        self.both(lambda n, s: s.append([RunStarted(run_id=run, session_id=f"s-{run}")], epoch=epochs[n]))

    def live(self) -> list[str]:
        return [run for run in self.runs if run not in self.ref.over]

    @precondition(lambda self: self.live())
    @rule(data=st.data(), more=AMOUNTS, want=AMOUNTS, all_of_it=st.booleans(), names=st.sets(NAMES, min_size=1))
    def draws(self, data: Any, more: float, want: float, all_of_it: bool, names: set[str]) -> None:
        """A run has used more, and reserves more; a lost owner may not know about its loss."""
        run = data.draw(st.sampled_from(self.live()))
        draws, expected = [], []
        for name in sorted(names):
            whole = CLAIMS[name].counts in ("tool_calls", "running")
            much, wanted = (float(int(more)), float(int(want))) if whole else (more, want)
            total = self.used[name, run] = self.used.get((name, run), 0.0) + much
            least = wanted if all_of_it else 0.0
            draws.append(Reservation(claim=CLAIMS[name], used=total, want=wanted, least=least))
            answer = self.ref.draw(name, run, total, wanted, least)
            expected.append((*answer, self.ref.reserved(name)))
        epochs = self.epochs(run)
        answers = self.both(lambda n, s: s.reserve(run, draws, epoch=epochs[n]))

        for drawn in answers:
            assert [(a.granted, a.held, a.before, a.used, a.reserved) for a in drawn] == expected

    @precondition(lambda self: self.live())
    @rule(data=st.data(), more=AMOUNTS)
    def settles(self, data: Any, more: float) -> None:
        """A run settles."""
        run = data.draw(st.sampled_from(self.live()))
        reported = {name: used + more for (name, of), used in self.used.items() if of == run}
        by_kind: dict[str, float] = {}
        for name, used in reported.items():
            kind = CLAIMS[name].counts
            by_kind[kind] = max(used, by_kind.get(kind, 0.0))
        epochs = self.epochs(run)
        self.both(lambda n, s: s.settle(run, by_kind, epoch=epochs[n]))
        self.ref.settle(run, {name: by_kind.get(claim.counts, 0.0) for name, claim in CLAIMS.items()})
        for name, of in list(self.used):
            if of == run:
                del self.used[name, of]

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def ends(self, data: Any) -> None:
        """A run ends, and whoever ended it settled nothing."""
        run = data.draw(st.sampled_from(self.live()))
        if self.ref.owner[run] in self.ref.gone:
            return
        epochs = self.epochs(run)
        self.both(lambda n, s: s.append([RunCompleted(run_id=run, session_id=f"s-{run}")], epoch=epochs[n]))
        self.ref.over.add(run)

    @precondition(lambda self: "two" not in self.ref.gone)
    @rule()
    def dies(self) -> None:
        """The second owner is lost, with all reservations of its runs."""
        self.both(lambda n, s: s.release(self.owners["two"][n]))
        self.ref.gone.add("two")

    @rule(by=st.sampled_from([-2 * DAY, -HOUR, 6 * 60_000, HOUR, 5 * HOUR, 6 * HOUR, DAY, 3 * DAY, 31 * DAY]))
    def time_goes_by(self, by: int) -> None:
        """Or the clock is set back."""
        self.ref.now_ms += by

    @invariant()
    def the_list_says_the_same(self) -> None:
        if not hasattr(self, "ref"):
            return
        for listed in self.both(lambda n, s: s.budgets()):
            for budget in listed:
                name = budget.budget
                assert (budget.used, budget.reserved) == (self.ref.used(name), self.ref.reserved(name))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.both(lambda n, s: s.aclose())
            self.loop.close()
            self.folder.cleanup()


async def made(kind: Any, *args: Any, **options: Any) -> Any:
    """A store, created in its event loop."""
    return kind(*args, **options)


@pytest.mark.anyio
async def test_usage_counts_after_a_clock_that_was_long_ahead_is_set_back(tmp_path: Path) -> None:
    """All kept periods are in the future then, and the current usage is not dropped for them."""
    claim = BudgetAccount(budget="minute", key="", counts="tool_calls", window="60000", max=1000)
    now = START / 1000
    clock = lambda: now  # noqa: E731 - as above
    for store in (MemoryStore(wall_clock=clock), SQLiteStore(tmp_path / "s.db", synchronous="OFF", wall_clock=clock)):
        async with store:
            owner = await store.register(Owner(owner_id="one"), lease_s=3600)
            await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=owner.epoch)
            await store.append([RunStarted(run_id="r", session_id="s")], epoch=owner.epoch)
            for used in range(1, 421):
                now = START / 1000 + 3600 + used
                await store.reserve("r", [Reservation(claim=claim, used=used)], epoch=owner.epoch)
            now = START / 1000
            (back,) = await store.reserve("r", [Reservation(claim=claim, used=430)], epoch=owner.epoch)
            now += 7200
            (past,) = await store.reserve("r", [Reservation(claim=claim, used=431)], epoch=owner.epoch)

            assert (back.before, back.used, past.used) == (400, 410, 1)


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
