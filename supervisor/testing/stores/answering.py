"""Approvals and instructions: asked, answered once, withdrawn; orders kept in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from proctor.policies.stream.events import (
    RunCancelled,
    RunCompleted,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
)
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import ApprovalAnswer, RunInfo
from proctor.supervisor.ports.orders import AnswerGiven, Block, Cancel, Lift

from .checks import StoreChecks, at_once, kind_of_refusal, message, stored

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
YES = ApprovalAnswer(granted=True, by="ana", reason="fine", input_digest="d")


def requested(approval_id: str, *, run_id: str = "r", session_id: str = "s", **fields: Any) -> ToolApprovalRequested:
    """A request for approval as a run records it."""
    about: dict[str, Any] = {"tool_call_id": "c", "tool_name": "bash", "tool_input": {"command": "é"}}
    about |= {"input_digest": "d", "policy_name": "p", "violation_kind": "blocklist", "at": AT, **fields}
    return ToolApprovalRequested(approval_id=approval_id, run_id=run_id, session_id=session_id, **about)


async def state_of(store: Store, approval_id: str) -> tuple[str, str | None, bool]:
    """What became of an approval, by whom, and whether that is recorded."""
    approval = await store.approval(approval_id)
    assert approval is not None
    return approval.state, None if approval.answer is None else approval.answer.by, approval.recorded


class AnsweringChecks(StoreChecks):
    """Approvals and instructions: asked, answered once, withdrawn; orders kept in order."""

    async def test_an_order_is_given_the_number_it_is_listed_under(self) -> None:
        """Whoever gave it finds it, and what came after it."""
        async with self.open_store() as store:
            given = [await store.instruct(Cancel(scope="run", value=f"r{n}")) for n in range(3)]
            listed = await store.instructions()

            assert given == [order.number for order in listed]
            assert given == sorted({*given})
            assert await store.last_instruction() == given[-1]
            assert await store.instructions(after=given[1]) == listed[2:]

    async def test_what_is_asked_for_waits_in_the_order_it_was_asked(self) -> None:
        """Every field comes back; pages, runs and sessions can be asked for alone."""
        async with self.open_store() as store:
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

    async def test_one_of_many_answers_counts(self) -> None:
        """The others learn that they came too late; the one becomes an instruction to the run's owner."""
        async with self.open_store() as store:
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
            assert await store.instructions() == [
                AnswerGiven(run_id="r", approval_id="r.1", answer=given, at=AT, number=1)
            ]
            assert await store.approvals() == []

    async def test_an_answer_that_does_not_count_changes_nothing(self) -> None:
        """To what nobody asked, to another input, to what is closed."""
        async with self.open_store() as store:
            await store.append([requested("r.1"), requested("r.2"), requested("r.3")])
            await store.append([_closing(ToolApprovalExpired, "r.2"), _closing(ToolApprovalDenied, "r.3", by="bob")])
            other = ApprovalAnswer(granted=True, by="eve", input_digest="other")
            kinds = [
                await kind_of_refusal(store.answer(approval_id, given, at=AT))
                for approval_id, given in (("r.9", YES), ("r.1", other), ("r.2", YES), ("r.3", YES))
            ]

            assert kinds == ["no_approval", "other_input", "answered", "answered"]
            assert await state_of(store, "r.1") == ("requested", None, False)
            assert await state_of(store, "r.2") == ("expired", None, True)
            assert await state_of(store, "r.3") == ("denied", "bob", True)
            assert await store.instructions() == []

    async def test_the_record_says_what_became_of_an_answer(self) -> None:
        """Taken up it stands as it was given; closed otherwise by the owner it does not count."""
        async with self.open_store() as store:
            await store.append([requested("r.1"), requested("r.2")])
            taken = await store.answer("r.1", YES, at=AT)
            await store.answer("r.2", YES, at=AT)
            await store.append([_closing(ToolApprovalGranted, "r.1", by="ana"), _closing(ToolApprovalExpired, "r.2")])
            stored = await store.approval("r.1")

            assert (taken.state, taken.answer, taken.answered_at, taken.recorded) == ("granted", YES, AT, False)
            assert stored is not None
            assert (stored.state, stored.answer, stored.recorded) == ("granted", YES, True)
            assert await state_of(store, "r.2") == ("expired", None, True)

    async def test_an_answer_with_an_event_appends_it_or_does_neither(self) -> None:
        """The second one's event is not stored."""
        async with self.open_store() as store:
            await store.append([requested("r.1", held=False), RunCancelled(run_id="r", session_id="s")])
            grant = _closing(ToolApprovalGranted, "r.1", by="ana", run_id="")
            await store.answer("r.1", YES, at=AT, event=grant)
            again = await kind_of_refusal(store.answer("r.1", YES, at=AT, event=grant))

            assert again == "answered"
            assert await state_of(store, "r.1") == ("granted", "ana", True)
            assert [event.type for event in await stored(store, "s")] == [
                "tool_approval_requested",
                "run_cancelled",
                "tool_approval_granted",
            ]
            assert await store.instructions() == []

    async def test_the_end_of_a_run_withdraws_what_it_asked(self) -> None:
        """Not what a run that was cancelled has ended for, and not what is for the record only."""
        async with self.open_store() as store:
            for run_id, end in (("done", RunCompleted), ("cut", RunCancelled)):
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

    async def test_what_blocks_starts_is_kept_until_it_is_lifted(self) -> None:
        """By whom, when and why; a lift is for its very scope, or for all; both stay among the instructions."""
        tenant = Block(scope="tenant", value="acme", by="ana", reason="é", at=AT)
        async with self.open_store() as store:
            first = await store.instruct(tenant)
            second = await store.instruct(Block(scope="all", by="bo"))
            await store.instruct(Lift(scope="tenant", value="other"))
            both = await store.blocks()
            await store.instruct(Lift(scope="tenant", value="acme"))
            one = await store.blocks()
            await store.instruct(Block(scope="label", value="a=b"))
            await store.instruct(Lift(scope="all"))

            assert [(block.number, block.value, block.reason, block.at) for block in both] == [
                (first, "acme", "é", AT),
                (second, "", "", None),
            ]
            assert one == [Block(scope="all", by="bo", number=second)]
            assert await store.blocks() == []
            assert len(await store.instructions()) == 6

    async def test_orders_are_kept_in_order_with_rising_numbers(self) -> None:
        """Every field comes back, `after` leaves out what was read, and a run knows what came before it."""
        order = Cancel(scope="label", value="env=prod", by="ana", reason="é", at=AT)
        async with self.open_store() as store:
            before = await store.create_run(RunInfo(run_id="before", session_id="s"))
            first = await store.instruct(order)
            second = await store.instruct(Cancel(scope="all"))
            after = await store.create_run(RunInfo(run_id="after", session_id="s"))
            run = await store.run("after")

            assert second > first > 0
            assert await store.instructions(after=first) == [Cancel(scope="all", number=second)]
            assert (await store.instructions())[0] == Cancel(
                scope="label", value="env=prod", by="ana", reason="é", at=AT, number=first
            )
            assert await store.instructions(after=second) == []
            assert await store.last_instruction() == second
            assert (before.after, after.after, run and run.after) == (0, second, second)


def _closing(kind: Any, approval_id: str, *, run_id: str = "r", **fields: Any) -> Any:
    return kind(approval_id=approval_id, run_id=run_id, session_id="s", input_digest="d", at=AT, **fields)
