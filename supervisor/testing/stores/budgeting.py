"""Budgets that runs share: reserved, and settled though their owner is gone."""

from __future__ import annotations

import anyio

from proctor.policies.budget import BudgetClaim
from proctor.policies.stream.events import RunCompleted, RunStarted
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import RunInfo
from proctor.supervisor.ports.ledger import Draw, Drawn

from .checks import StoreChecks, at_once, kind_of_refusal
from .claiming import LONG_S, begun, owner


def money(most: float = 10, *, key: str = "", window: str = "") -> BudgetClaim:
    """A budget in USD."""
    return BudgetClaim(budget="org/money", key=key, counts="cost_usd", window=window, max=most)


async def owner_of(store: Store, *run_ids: str) -> int:
    """An owner with runs that go on; its epoch."""
    epoch = await owner(store)
    for run_id in run_ids:
        await begun(store, epoch, run_id, f"s-{run_id}")
    return epoch


async def draw(
    store: Store, epoch: int, run_id: str, claim: BudgetClaim, *, used: float = 0, want: float = 0, least: float = 0
) -> Drawn:
    """The answer to one draw."""
    (answer,) = await store.reserve(run_id, [Draw(claim=claim, used=used, want=want, least=least)], epoch=epoch)
    return answer


class BudgetingChecks(StoreChecks):
    """Budgets that runs share: reserved, and settled though their owner is gone."""

    async def test_what_one_run_has_set_aside_another_cannot_have(self) -> None:
        """The second gets what is left, a third nothing; what is used counts for all."""
        async with self.open_store() as store:
            epoch = await owner_of(store, *"abc")
            first = await draw(store, epoch, "a", money(), want=6)
            second = await draw(store, epoch, "b", money(), want=6)
            third = await draw(store, epoch, "c", money(), want=6)
            later = await draw(store, epoch, "a", money(), used=5, want=1)

            assert [(d.granted, d.held) for d in (first, second, third)] == [(True, 6), (True, 4), (False, 0)]
            assert (first.reserved, second.reserved, third.reserved) == (6, 10, 10)
            assert (later.granted, later.before, later.used, later.held, later.reserved) == (True, 0, 5, 1, 5)

    async def test_with_less_left_than_it_needs_a_run_gets_nothing(self) -> None:
        """`least` is all or nothing."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a", "b")
            await draw(store, epoch, "a", money(), used=8)
            short = await draw(store, epoch, "b", money(), want=3, least=3)
            enough = await draw(store, epoch, "b", money(), want=2, least=2)

            assert [(d.granted, d.held) for d in (short, enough)] == [(False, 0), (True, 2)]

    async def test_a_draw_made_twice_counts_once(self) -> None:
        """It states totals: an answer that was lost can be asked for again; a lower total takes nothing back."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            answers = [await draw(store, epoch, "a", money(), used=used, want=1) for used in (3, 3, 2, 4)]

            assert [answer.used for answer in answers] == [3, 3, 3, 4]
            assert [answer.reserved for answer in answers] == [1, 1, 1, 1]

    async def test_more_is_used_than_there_is(self) -> None:
        """It is counted all the same, and refused; what was used up exactly is not refused until more is wanted."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            whole = await draw(store, epoch, "a", money(), used=10)
            none = await draw(store, epoch, "a", money(), used=10, want=1)
            beyond = await draw(store, epoch, "a", money(), used=12)

            assert [d.granted for d in (whole, none, beyond)] == [True, False, False]
            assert beyond.used == 12

    async def test_keys_windows_and_what_is_counted_are_kept_apart(self) -> None:
        """So are budgets of other names; the list shows each."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            tokens = BudgetClaim(budget="org/money", key="", counts="total_tokens", window="", max=100)
            claims = [money(), money(key='$.tenant="t"'), money(window="day"), money(window="3600000"), tokens]
            draws = [Draw(claim=claim, used=n + 1.0, want=0.5) for n, claim in enumerate(claims)]
            answers = await store.reserve("a", draws, epoch=epoch)
            listed = {(b.key, b.counts, b.window): b for b in await store.budgets()}

            assert [answer.used for answer in answers] == [1, 2, 3, 4, 5]
            assert [listed[c.key, c.counts, c.window].used for c in claims] == [1, 2, 3, 4, 5]
            assert all((b.reserved, b.runs, b.budget) == (0.5, 1, "org/money") for b in listed.values())
            ends = [listed["", "cost_usd", window].resets_at for window in ("", "day", "3600000")]
            assert ends[0] is None
            assert None not in ends[1:]

    async def test_calls_and_places_are_whole(self) -> None:
        """Half a call is none."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            calls = BudgetClaim(budget="org/calls", key="", counts="tool_calls", window="", max=2.5)
            two = await draw(store, epoch, "a", calls, want=3, least=1)
            none = await draw(store, epoch, "a", calls, used=2, want=1, least=1)

            assert [(d.granted, d.held) for d in (two, none)] == [(True, 2), (False, 0)]

    async def test_what_a_run_holds_returns_when_it_settles(self) -> None:
        """What it used stays; done again, settling changes nothing."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            await draw(store, epoch, "a", money(), used=1, want=5)
            (settled,) = await store.settle("a", {"cost_usd": 3, "total_tokens": 99}, epoch=epoch)
            again = await store.settle("a", {"cost_usd": 3}, epoch=epoch)
            (budget,) = await store.budgets()

            assert (settled.before, settled.used, settled.reserved, settled.granted) == (1, 3, 0, True)
            assert again == []
            assert (budget.used, budget.reserved, budget.left, budget.runs) == (3, 0, 7, 0)

    async def test_what_a_run_holds_returns_with_its_end(self) -> None:
        """Also where nobody settled."""
        async with self.open_store() as store:
            epoch = await owner_of(store, "a", "b")
            await draw(store, epoch, "a", money(), want=10)
            before = await draw(store, epoch, "b", money(), want=1)
            await store.append([RunCompleted(run_id="a", session_id="s-a")], epoch=epoch)
            after = await draw(store, epoch, "b", money(), want=1)

            assert (before.granted, after.granted) == (False, True)
            assert await kind_of_refusal(draw(store, epoch, "a", money(), want=1)) == "run_over"

    async def test_what_a_gone_owner_holds_counts_until_its_run_is_settled(self) -> None:
        """When it left, and when its lease ran out; while another takes its run over, and until that settles it."""
        async with self.open_store() as store:
            left, late, there = [await owner(store, name, lease_s=LONG_S) for name in ("left", "late", "there")]
            for epoch, name in ((left, "a"), (late, "b"), (there, "c")):
                await begun(store, epoch, name, f"s-{name}")
            await draw(store, left, "a", money(), used=1, want=4)
            await draw(store, late, "b", money(), want=5)
            seen = [await draw(store, there, "c", money(), want=9)]
            await store.release(left)
            seen.append(await draw(store, there, "c", money(), want=9))
            await store.renew(late, lease_s=0)
            await anyio.sleep(0.001)
            seen.append(await draw(store, there, "c", money(), want=9))
            await store.claim_run("a", epoch=there, lost=True)
            seen.append(await draw(store, there, "c", money(), want=9))
            (before,) = await store.budgets()
            await store.settle("a", {"cost_usd": 3}, epoch=there)
            after = await draw(store, there, "c", money(), want=9)

            assert [(d.granted, d.held) for d in seen] == [(False, 0)] * 4
            assert (before.used, before.reserved, before.left, before.runs) == (1, 9, 0, 3)
            assert (after.used, after.held, after.reserved) == (3, 2, 7)

    async def test_what_a_gone_owner_holds_for_a_run_that_never_started_returns(self) -> None:
        """Nothing was permitted in it, and nobody ends it."""
        async with self.open_store() as store:
            gone, there = await owner(store, "gone"), await owner(store, "there")
            await store.create_run(RunInfo(run_id="a", session_id="s-a"), epoch=gone)
            await begun(store, there, "b", "s-b")
            await draw(store, gone, "a", money(), want=10)
            full = await draw(store, there, "b", money(), want=1)
            await store.release(gone)
            free = await draw(store, there, "b", money(), want=10)

            assert (full.granted, free.held) == (False, 10)

    async def test_who_lost_a_run_can_neither_draw_nor_settle(self) -> None:
        """Nor can anybody for a run there is not."""
        async with self.open_store() as store:
            old, new = await owner(store, "old"), await owner(store, "new")
            await begun(store, old, "a", "s-a")
            await draw(store, old, "a", money(), used=2, want=1)
            await store.release(old)
            await store.claim_run("a", epoch=new, lost=True)
            (taken,) = await store.budgets()
            refused = [
                await kind_of_refusal(draw(store, old, "a", money(), used=9)),
                await kind_of_refusal(store.settle("a", {"cost_usd": 9}, epoch=old)),
                await kind_of_refusal(draw(store, new, "nobody", money())),
            ]
            (settled,) = await store.settle("a", {"cost_usd": 4}, epoch=new)

            assert (taken.reserved, taken.runs) == (1, 1)
            assert refused == ["fenced", "fenced", "no_run"]
            assert settled.used == 4

    async def test_a_run_without_an_owner_is_counted_and_holds_nothing(self) -> None:
        """Nobody would know when it is gone."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await store.append([RunStarted(run_id="a", session_id="s-a")])
            await begun(store, epoch, "b", "s-b")
            alone = await draw(store, 0, "a", money(), used=1, want=9)
            other = await draw(store, epoch, "b", money(), want=9)

            assert (alone.granted, alone.used, alone.reserved) == (True, 1, 0)
            assert (other.granted, other.held) == (True, 9)

    async def test_many_who_ask_at_once_get_no_more_than_there_is(self) -> None:
        """Whoever comes first; two stores on one record, where there can be."""
        async with self.open_store() as one, self.open_store() as other:
            stores = (one, other if self.durable else one)
            epoch = await owner_of(one, *(f"r{n}" for n in range(20)))
            answers: list[Drawn] = []

            async def ask(n: int) -> None:
                answers.append(await draw(stores[n % 2], epoch, f"r{n}", money(), want=1, least=1))

            await at_once(ask, range(20))

            assert sum(answer.held for answer in answers) == 10
            assert sum(answer.granted for answer in answers) == 10

    async def test_budgets_outlive_the_store_object(self) -> None:
        """Opened again, it knows what is used and by whom."""
        if not self.durable:
            return
        async with self.open_store() as store:
            epoch = await owner_of(store, "a")
            await draw(store, epoch, "a", money(), used=2.5, want=1)
        async with self.open_store() as store:
            (budget,) = await store.budgets()
            repeated = await draw(store, epoch, "a", money(), used=2.5, want=1)

            assert (budget.used, budget.reserved, budget.max) == (2.5, 1, 10)
            assert (repeated.before, repeated.used) == (2.5, 2.5)
