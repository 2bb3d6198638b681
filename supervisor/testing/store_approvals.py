"""Approvals and commands: asked, answered once, withdrawn; orders kept in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio

from proctor.policies import events as ev
from proctor.policies.limits import BudgetAccount

from ..ports.budget_ledger import Reservation, ReservationResult
from ..ports.store import BudgetLedger, Store
from ..ports.stored_types import NOBODY_IN_TIME, AnswerGiven, ApprovalAnswer, Block, Cancel, RunInfo, UnblockStarts
from .store_fixture import StoreChecks, at_once, kind_of_refusal, message, stored
from .store_runs import LONG_S, begun, owner, owner_of

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
YES = ApprovalAnswer(granted=True, by="ana", reason="fine", input_digest="d")


def requested(
    approval_id: str, *, run_id: str = "r", session_id: str = "s", **fields: Any
) -> ev.ToolApprovalRequested:
    """A request for approval as a run records it."""
    about: dict[str, Any] = {"tool_call_id": "c", "tool_name": "bash", "tool_input": {"command": "é"}}
    about |= {"input_digest": "d", "policy_name": "p", "violation_kind": "blocklist", "at": AT, **fields}
    return ev.ToolApprovalRequested(approval_id=approval_id, run_id=run_id, session_id=session_id, **about)


async def state_of(store: Store, approval_id: str) -> tuple[str, str | None, bool]:
    """The state of an approval, who answered it, and whether that is recorded."""
    approval = await store.approval(approval_id)
    assert approval is not None
    return approval.state, None if approval.answer is None else approval.answer.by, approval.recorded


class AnsweringChecks(StoreChecks):
    """Approvals and commands: asked, answered once, withdrawn; orders kept in order."""

    async def test_what_is_asked_for_waits_in_the_order_it_was_asked(self, store: Store) -> None:
        """Every field comes back; pages, runs and sessions can be asked for alone."""
        await store.append([requested("r.1", expires_at=AT, reason="why"), message("s", "x", run_id="r")])
        await store.append([requested("q.1", run_id="q", session_id="t"), requested("r.2")])
        await store.append([requested("r.3", input_digest=None), requested("r.4", ran=True, held=False)])
        waiting = await store.approvals()
        first = waiting[0].request

        assert [approval.request.approval_id for approval in waiting] == ["r.1", "q.1", "r.2"]
        assert (first.call.name, first.call.input, first.input_digest) == ("bash", {"command": "é"}, "d")
        assert (first.requested_at, first.expires_at, first.reason, first.held) == (AT, AT, "why", True)
        assert waiting[1:] == await store.approvals(after=waiting[0].number)
        assert waiting[:2] == await store.approvals(limit=2)
        assert [waiting[1]] == await store.approvals(session_id="t")
        assert [waiting[0], waiting[2]] == await store.approvals(run_id="r")
        assert waiting[2] == await store.approval("r.2")
        assert [*waiting, await store.approval("r.4")] == await store.approvals(waiting=False)

    async def test_one_of_many_answers_counts(self, store: Store) -> None:
        """The others learn that they came too late; the one becomes a command to the run's owner."""
        await store.append([requested("r.1")])
        refusals: dict[str, str | None] = {}

        async def answer(by: str) -> None:
            given = ApprovalAnswer(granted=by != "n0", by=by)
            refusals[by] = await kind_of_refusal(store.answer("r.1", given, at=AT))

        await at_once(answer, [f"n{n}" for n in range(10)])
        (winner,) = [by for by, refusal in refusals.items() if refusal is None]
        given = ApprovalAnswer(granted=winner != "n0", by=winner)

        assert set(refusals.values()) == {None, "answered"}
        assert await state_of(store, "r.1") == ("granted" if given.granted else "denied", winner, False)
        assert await store.commands() == [AnswerGiven(run_id="r", approval_id="r.1", answer=given, at=AT, number=1)]
        assert await store.approvals() == []

    async def test_an_answer_that_does_not_count_changes_nothing(self, store: Store) -> None:
        """To what nobody asked, to another input, to what is closed; by who may not answer, or for too much."""
        await store.append([requested("r.1"), requested("r.2"), requested("r.3")])
        await store.append([requested("r.4", approvers=("ana", "@ops"), started_by="bob")])
        await store.append([requested("r.5", started_by="")])
        await store.append(
            [_closing(ev.ToolApprovalExpired, "r.2"), _closing(ev.ToolApprovalDenied, "r.3", by="bob")]
        )
        other = ApprovalAnswer(granted=True, by="eve", input_digest="other")
        kinds = [
            await kind_of_refusal(store.answer(approval_id, given, at=AT))
            for approval_id, given in (("r.9", YES), ("r.1", other), ("r.2", YES), ("r.3", YES))
        ]

        denied = [
            await kind_of_refusal(store.answer(approval_id, ApprovalAnswer(granted=True, by=by, **more), at=AT))
            for approval_id, by, more in (
                ("r.1", "ana", {"scope": "run"}),
                ("r.4", "eve", {"groups": ("dev",)}),
                ("r.4", "bob", {"groups": ("ops",)}),
                ("r.5", "ana", {}),
            )
        ]

        assert kinds == ["no_approval", "other_input", "answered", "answered"]
        assert denied == ["not_allowed"] * 4
        assert await state_of(store, "r.1") == ("requested", None, False)
        assert await state_of(store, "r.2") == ("expired", None, True)
        assert await state_of(store, "r.3") == ("denied", "bob", True)
        assert await store.commands() == []
        await store.answer("r.4", ApprovalAnswer(granted=True, by="eve", groups=("dev", "ops")), at=AT)
        assert await state_of(store, "r.4") == ("granted", "eve", False)

    async def test_the_record_says_what_became_of_an_answer(self, store: Store) -> None:
        """Taken up it stands as it was given, also if requested again; closed otherwise by the owner it does not
        count; a request withdrawn after it keeps it.
        """
        await store.append([requested(f"r.{n}") for n in range(1, 6)])
        taken = await store.answer("r.1", YES, at=AT)
        for approval_id in ("r.2", "r.3", "r.4"):
            await store.answer(approval_id, YES, at=AT)
        await store.append(
            [_closing(ev.ToolApprovalGranted, "r.1", by="ana"), _closing(ev.ToolApprovalExpired, "r.2")]
        )
        await store.append([_closing(ev.ToolApprovalDenied, "r.4", by="bob"), requested("r.1")])
        await store.answer("r.5", NOBODY_IN_TIME, at=AT)
        await store.append([_closing(ev.ToolApprovalExpired, id, withdrawn=True) for id in ("r.3", "r.5")])
        stored = await store.approval("r.1")
        withdrawn = await store.approval("r.3")

        assert (taken.state, taken.answer, taken.answered_at, taken.recorded) == ("granted", YES, AT, False)
        assert stored is not None
        assert (stored.state, stored.answer, stored.recorded) == ("granted", YES, True)
        assert await state_of(store, "r.2") == ("expired", None, True)
        assert await state_of(store, "r.4") == ("denied", "bob", True)
        assert withdrawn is not None
        assert (withdrawn.state, withdrawn.answer, withdrawn.recorded) == ("withdrawn", YES, True)
        assert await state_of(store, "r.5") == ("withdrawn", None, True)

    async def test_the_owner_closes_what_nobody_answered_in_time(self, store: Store) -> None:
        """Whoever may answer; of an answer and the end of its time, the first counts."""
        await store.append([requested("r.1", approvers=("ana",)), requested("r.2")])
        closed = await store.answer("r.1", NOBODY_IN_TIME, at=AT)
        await store.answer("r.2", YES, at=AT)
        late = await kind_of_refusal(store.answer("r.1", YES, at=AT))
        too_late = await kind_of_refusal(store.answer("r.2", NOBODY_IN_TIME, at=AT))
        await store.append([_closing(ev.ToolApprovalExpired, "r.1")])

        assert (closed.state, closed.recorded, late, too_late) == ("denied", False, "answered", "answered")
        assert await state_of(store, "r.1") == ("expired", None, True)

    async def test_an_answer_with_an_event_appends_it_or_does_neither(self, store: Store) -> None:
        await store.append([requested("r.1", held=False), ev.RunCancelled(run_id="r", session_id="s")])
        grant = _closing(ev.ToolApprovalGranted, "r.1", by="ana", run_id="")
        await store.answer("r.1", YES, at=AT, event=grant)
        again = await kind_of_refusal(store.answer("r.1", YES, at=AT, event=grant))

        assert again == "answered"
        assert await state_of(store, "r.1") == ("granted", "ana", True)
        assert [event.type for event in await stored(store, "s")] == [
            "tool_approval_requested",
            "run_cancelled",
            "tool_approval_granted",
        ]
        assert await store.commands() == []

    async def test_the_end_of_a_run_withdraws_what_it_asked(self, store: Store) -> None:
        """Not what a run that was cancelled has ended for, and not what is for the record only."""
        for run_id, end in (("done", ev.RunCompleted), ("cut", ev.RunCancelled)):
            await store.append(
                [
                    requested(f"{run_id}.1", run_id=run_id),
                    requested(f"{run_id}.2", run_id=run_id, held=False),
                    requested(f"{run_id}.3", run_id=run_id, held=False, ran=True),
                    end(run_id=run_id, session_id="s"),
                ]
            )
        ids = [f"{run_id}.{n}" for run_id in ("done", "cut") for n in (1, 2, 3)]
        states = [(await state_of(store, approval_id))[0] for approval_id in ids]

        assert states == ["withdrawn", "withdrawn", "requested", "withdrawn", "requested", "requested"]
        assert [approval.request.approval_id for approval in await store.approvals()] == ["cut.2"]

    async def test_what_blocks_starts_is_kept_until_it_is_lifted(self, store: Store) -> None:
        """By whom, when and why; a lift is for its very scope, or for all; both stay among the commands."""
        tenant = Block(scope="tenant", value="acme", by="ana", reason="é", at=AT)
        first = await store.send_command(tenant)
        second = await store.send_command(Block(scope="all", by="bo"))
        await store.send_command(UnblockStarts(scope="tenant", value="other"))
        both = await store.blocks()
        await store.send_command(UnblockStarts(scope="tenant", value="acme"))
        one = await store.blocks()
        await store.send_command(Block(scope="label", value="a=b"))
        await store.send_command(UnblockStarts(scope="all"))

        assert [(block.number, block.value, block.reason, block.at) for block in both] == [
            (first, "acme", "é", AT),
            (second, "", "", None),
        ]
        assert one == [Block(scope="all", by="bo", number=second)]
        assert await store.blocks() == []
        assert len(await store.commands()) == 6

    async def test_orders_are_kept_in_order_with_rising_numbers(self, store: Store) -> None:
        """Every field comes back, `after` leaves out what was read, and a run knows what came before it."""
        order = Cancel(scope="label", value="env=prod", by="ana", reason="é", at=AT)
        before = await store.create_run(RunInfo(run_id="before", session_id="s"))
        first = await store.send_command(order)
        second = await store.send_command(Cancel(scope="all"))
        after = await store.create_run(RunInfo(run_id="after", session_id="s"))
        run = await store.run("after")

        assert second > first > 0
        assert await store.commands(after=first) == [Cancel(scope="all", number=second)]
        assert (await store.commands())[0] == Cancel(
            scope="label", value="env=prod", by="ana", reason="é", at=AT, number=first
        )
        assert await store.commands(after=second) == []
        assert await store.last_command() == second
        assert (before.after, after.after, run and run.after) == (0, second, second)


def _closing(kind: Any, approval_id: str, *, run_id: str = "r", **fields: Any) -> Any:
    return kind(approval_id=approval_id, run_id=run_id, session_id="s", input_digest="d", at=AT, **fields)


def money(most: float = 10, *, key: str = "", window: str = "") -> BudgetAccount:
    """A budget in USD."""
    return BudgetAccount(budget="org/money", key=key, counts="cost_usd", window=window, max=most)


async def draw(
    store: BudgetLedger,
    epoch: int,
    run_id: str,
    claim: BudgetAccount,
    *,
    used: float = 0,
    want: float = 0,
    least: float = 0,
) -> ReservationResult:
    """The answer to one reservation."""
    (answer,) = await store.reserve(
        run_id, [Reservation(claim=claim, used=used, want=want, least=least)], epoch=epoch
    )
    return answer


class BudgetingChecks(StoreChecks):
    """Budgets that runs share: reserved, and settled though their owner is gone."""

    async def test_what_one_run_has_set_aside_another_cannot_have(self, store: Store) -> None:
        """The second gets what is left, a third nothing; what is used counts for all."""
        epoch = await owner_of(store, *"abc")
        first = await draw(store, epoch, "a", money(), want=6)
        second = await draw(store, epoch, "b", money(), want=6)
        third = await draw(store, epoch, "c", money(), want=6)
        later = await draw(store, epoch, "a", money(), used=5, want=1)

        assert [(d.granted, d.held) for d in (first, second, third)] == [(True, 6), (True, 4), (False, 0)]
        assert (first.reserved, second.reserved, third.reserved) == (6, 10, 10)
        assert (later.granted, later.before, later.used, later.held, later.reserved) == (True, 0, 5, 1, 5)

    async def test_with_less_left_than_it_needs_a_run_gets_nothing(self, store: Store) -> None:
        epoch = await owner_of(store, "a", "b")
        await draw(store, epoch, "a", money(), used=8)
        short = await draw(store, epoch, "b", money(), want=3, least=3)
        enough = await draw(store, epoch, "b", money(), want=2, least=2)

        assert [(d.granted, d.held) for d in (short, enough)] == [(False, 0), (True, 2)]

    async def test_a_draw_made_twice_counts_once(self, store: Store) -> None:
        """It states totals: an answer that was lost can be asked for again; a lower total takes nothing back."""
        epoch = await owner_of(store, "a")
        answers = [await draw(store, epoch, "a", money(), used=used, want=1) for used in (3, 3, 2, 4)]

        assert [answer.used for answer in answers] == [3, 3, 3, 4]
        assert [answer.reserved for answer in answers] == [1, 1, 1, 1]

    async def test_more_is_used_than_there_is(self, store: Store) -> None:
        """It is counted all the same, and refused; what was used up exactly is not refused until more is wanted."""
        epoch = await owner_of(store, "a")
        whole = await draw(store, epoch, "a", money(), used=10)
        none = await draw(store, epoch, "a", money(), used=10, want=1)
        beyond = await draw(store, epoch, "a", money(), used=12)

        assert [d.granted for d in (whole, none, beyond)] == [True, False, False]
        assert beyond.used == 12

    async def test_keys_windows_and_what_is_counted_are_kept_apart(self, store: Store) -> None:
        """So are budgets of other names; the list shows each."""
        epoch = await owner_of(store, "a")
        tokens = BudgetAccount(budget="org/money", key="", counts="total_tokens", window="", max=100)
        windows = ("day", "week", "3600000")
        claims = [money(), money(key='$.tenant="t"'), *(money(window=each) for each in windows), tokens]
        reservations = [Reservation(claim=claim, used=n + 1.0, want=0.5) for n, claim in enumerate(claims)]
        answers = await store.reserve("a", reservations, epoch=epoch)
        listed = {(b.key, b.counts, b.window): b for b in await store.budgets()}

        assert [answer.used for answer in answers] == [1, 2, 3, 4, 5, 6]
        assert [listed[c.key, c.counts, c.window].used for c in claims] == [1, 2, 3, 4, 5, 6]
        assert all((b.reserved, b.runs, b.budget) == (0.5, 1, "org/money") for b in listed.values())
        ends = [listed["", "cost_usd", window].resets_at for window in ("", *windows)]
        assert ends[0] is None
        assert None not in ends[1:]

    async def test_calls_and_places_are_whole(self, store: Store) -> None:
        epoch = await owner_of(store, "a")
        calls = BudgetAccount(budget="org/calls", key="", counts="tool_calls", window="", max=2.5)
        two = await draw(store, epoch, "a", calls, want=3, least=1)
        none = await draw(store, epoch, "a", calls, used=2, want=1, least=1)

        assert [(d.granted, d.held) for d in (two, none)] == [(True, 2), (False, 0)]

    async def test_a_place_is_kept_to_the_end_though_others_may_have_more(self, store: Store) -> None:
        """Runs under a larger amount take more places than the first may have; it goes on, and its place counts."""
        epoch = await owner_of(store, *"abcd")
        few, many = [
            BudgetAccount(budget="org/places", key="", counts="running", window="", max=most) for most in (1, 3)
        ]
        for run_id, claim in (("a", few), ("b", many), ("c", many)):
            await draw(store, epoch, run_id, claim, want=1, least=1)
        again = await draw(store, epoch, "a", few, want=1, least=1)
        full = await draw(store, epoch, "d", many, want=1, least=1)

        assert (again.granted, again.held, again.reserved) == (True, 1, 3)
        assert (full.granted, full.held) == (False, 0)

    async def test_what_a_run_holds_returns_when_it_settles(self, store: Store) -> None:
        """The amount used stays; settling again changes nothing."""
        epoch = await owner_of(store, "a")
        await draw(store, epoch, "a", money(), used=1, want=5)
        (settled,) = await store.settle("a", {"cost_usd": 3, "total_tokens": 99}, epoch=epoch)
        again = await store.settle("a", {"cost_usd": 3}, epoch=epoch)
        (budget,) = await store.budgets()

        assert (settled.before, settled.used, settled.reserved, settled.granted) == (1, 3, 0, True)
        assert again == []
        assert (budget.used, budget.reserved, budget.left, budget.runs) == (3, 0, 7, 0)

    async def test_what_a_run_holds_returns_with_its_end(self, store: Store) -> None:
        epoch = await owner_of(store, "a", "b")
        await draw(store, epoch, "a", money(), want=10)
        before = await draw(store, epoch, "b", money(), want=1)
        await store.append([ev.RunCompleted(run_id="a", session_id="s-a")], epoch=epoch)
        after = await draw(store, epoch, "b", money(), want=1)

        assert (before.granted, after.granted) == (False, True)
        assert await kind_of_refusal(draw(store, epoch, "a", money(), want=1)) == "run_over"

    async def test_what_a_gone_owner_holds_counts_until_its_run_is_settled(self, store: Store) -> None:
        """When it left, and when its lease ran out; while another takes its run over, and until that settles it."""
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

    async def test_what_a_gone_owner_holds_for_a_run_that_never_started_returns(self, store: Store) -> None:
        """Nothing was permitted in it, and nobody ends it; not even another owner that claims it has it then."""
        gone, there = await owner(store, "gone"), await owner(store, "there")
        await store.create_run(RunInfo(run_id="a", session_id="s-a"), epoch=gone)
        await begun(store, there, "b", "s-b")
        await draw(store, gone, "a", money(), want=10)
        full = await draw(store, there, "b", money(), want=1)
        await store.release(gone)
        free = await draw(store, there, "b", money(), want=10)
        await store.claim_run("a", epoch=there)
        (budget,) = await store.budgets()

        assert (full.granted, free.held, budget.reserved) == (False, 10, 10)

    async def test_who_lost_a_run_can_neither_draw_nor_settle(self, store: Store) -> None:
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

    async def test_a_run_without_an_owner_is_counted_and_holds_nothing(self, store: Store) -> None:
        epoch = await owner(store)
        await store.append([ev.RunStarted(run_id="a", session_id="s-a")])
        await begun(store, epoch, "b", "s-b")
        alone = await draw(store, 0, "a", money(), used=1, want=9)
        other = await draw(store, epoch, "b", money(), want=9)

        assert (alone.granted, alone.used, alone.reserved) == (True, 1, 0)
        assert (other.granted, other.held) == (True, 9)

    async def test_reservations_at_once_get_no_more_than_there_is(self) -> None:
        """Whoever comes first; two stores on one record, where there can be."""
        async with self.open_store() as one, self.open_store() as other:
            stores = (one, other if self.durable else one)
            epoch = await owner_of(one, *(f"r{n}" for n in range(20)))
            answers: list[ReservationResult] = []

            async def reserve(n: int) -> None:
                answers.append(await draw(stores[n % 2], epoch, f"r{n}", money(), want=1, least=1))

            await at_once(reserve, range(20))

            assert sum(answer.held for answer in answers) == 10
            assert sum(answer.granted for answer in answers) == 10

    async def test_budgets_outlive_the_store_object(self) -> None:
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
