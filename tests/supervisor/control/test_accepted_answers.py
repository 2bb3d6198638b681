"""An answer that the store has accepted counts, even if the run's owner reads it late."""

import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from answering import answering_command, until_held
from anyio.lowlevel import checkpoint
from stored_rows import stored_events

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import Approval, Deny, Policy, ToolCall
from proctor.policies.events import ApprovalEvent, ToolApprovalDenied, ToolApprovalGranted
from proctor.supervisor import (
    ApprovalAnswer,
    ApprovalError,
    ApprovalRequest,
    MemoryStore,
    StoreError,
    Supervisor,
    run_once,
)
from proctor.supervisor.control.approval_inbox import answer, record_answer, wait_recorded
from proctor.supervisor.ports.store import Store
from proctor.supervisor.ports.stored_types import NOBODY_IN_TIME, Command, StoredApproval
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, FakeApprover, Pause

pytestmark = pytest.mark.anyio
CALL = Ask(id="c1", name="bash", input={"command": "make deploy"})
ANA: dict[str, Any] = {"by": "ana", "reason": "seen"}


def asking(timeout_s: float = 0.2, **approval: Any) -> Policy:
    """A policy under which `bash` needs approval within this time."""
    return Policy(
        name="p", on_violation="request_approval", tool_rules=[Deny(["bash"])],
        approval=Approval(timeout_s=timeout_s, **approval),
    )  # fmt: skip


def without_commands(kind: type[Store], *given: Any) -> Any:
    """A store whose owners get no commands: it has the answer, and the owner has not read it yet."""

    class Deaf(kind):  # type: ignore[valid-type,misc]
        async def commands(self, *, after: int = 0) -> list[Command]:
            return []

    return Deaf(*given)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose owners get no commands."""
    found = (
        without_commands(MemoryStore)
        if request.param == "memory"
        else without_commands(SQLiteStore, tmp_path / "p.db")
    )
    yield found
    await found.aclose()


async def until_pending(store: Store) -> ApprovalRequest:
    while not (found := await store.approvals()):
        await anyio.sleep(0.005)
    return found[0].request


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize("on_timeout", ["deny", "cancel"])
async def test_an_answer_accepted_in_time_counts_even_if_its_owner_sees_the_timeout_first(
    store: Store, granted: bool, on_timeout: Any
) -> None:
    """The event log names the person, the call does what they decided, and nothing has expired."""
    adapter = FakeAdapter([CALL])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking(on_timeout=on_timeout)])
        request = await until_pending(store)
        given = ApprovalAnswer(granted=granted, **ANA)
        await store.answer(request.approval_id, given, at=datetime.now(UTC))
        result = await handle.wait()
    _, *closed = [e for e in await stored_events(store, handle.session_id) if isinstance(e, ApprovalEvent)]
    approval = await store.approval(request.approval_id)

    assert [type(event) for event in closed] == [ToolApprovalGranted if granted else ToolApprovalDenied]
    assert (closed[0].by, closed[0].reason) == ("ana", "seen")
    assert [call.id for call in adapter.ran] == (["c1"] if granted else [])
    assert result.status == "completed"
    assert approval is not None
    assert (approval.answer, approval.recorded) == (given, True)


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
async def test_the_first_of_an_answer_in_the_store_and_an_approvers_counts(
    store: Store, first: bool, second: bool
) -> None:
    """When the approver answers, the store has accepted the other answer, and the owner has not read it."""
    given = ApprovalAnswer(granted=first, **ANA)

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        await store.answer(request.approval_id, given, at=datetime.now(UTC))
        return ApprovalAnswer(granted=second, by="bob")

    adapter = FakeAdapter([CALL])
    result = await run_once(adapter, "go", policies=[asking(60)], store=store, approver=approver)
    closed = [event for event in result.events if isinstance(event, ApprovalEvent)][1:]
    approval = await store.approval(closed[0].approval_id)

    assert [(event.type, event.by) for event in closed] == [
        ("tool_approval_granted" if first else "tool_approval_denied", "ana")
    ]
    assert [call.id for call in adapter.ran] == (["c1"] if first else [])
    assert approval is not None
    assert (approval.answer, approval.recorded) == (given, True)


async def test_a_stored_denial_counts_if_the_store_fails_at_the_approvers_answer(store: Store) -> None:
    """The store works again when the call would be recorded."""

    class Forgets(type(store)):  # type: ignore[misc]
        async def answer(self, id: str, given: ApprovalAnswer, **at: Any) -> StoredApproval:
            if given.by == "bob":
                raise StoreError("the connection was lost")
            return await super().answer(id, given, **at)  # type: ignore[no-any-return]

    store.__class__ = Forgets

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        await store.answer(request.approval_id, ApprovalAnswer(granted=False, **ANA), at=datetime.now(UTC))
        return ApprovalAnswer(granted=True, by="bob")

    adapter = FakeAdapter([CALL])
    result = await run_once(adapter, "go", policies=[asking(60)], store=store, approver=approver)
    (denied,) = [event for event in result.events if isinstance(event, ToolApprovalDenied)]
    approval = await store.approval(denied.approval_id)

    assert adapter.ran == []
    assert approval is not None
    assert (approval.state, approval.answer) == ("denied", ApprovalAnswer(granted=False, **ANA))


async def test_a_later_answer_does_not_override_an_approvers(store: Store) -> None:
    """The person who answers later gets the error that the approval is closed."""
    adapter = FakeAdapter([CALL, Pause(0.05)])
    async with Supervisor(store, approver=FakeApprover(True, by="bob")) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking(60)])
        await handle.wait()
    (requested, *_) = [e for e in await stored_events(store, handle.session_id) if isinstance(e, ApprovalEvent)]
    with pytest.raises(ApprovalError, match="approved by `bob`"):
        await answer(store, requested.approval_id, ApprovalAnswer(granted=False, **ANA))

    assert [call.id for call in adapter.ran] == ["c1"]


@pytest.mark.parametrize("by", ["cancel", "client"])
async def test_a_withdrawal_keeps_an_answer_that_was_accepted_before_it(
    store: Store, by: str, tmp_path: Path
) -> None:
    """The person learns at once that the answer had no effect. The approval still has it."""
    given = ApprovalAnswer(granted=True, **ANA)
    adapter = FakeAdapter([Pause()])
    async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:
        handle = await supervisor.start(adapter, "go", policies=[asking(60)])
        while not adapter.launches:
            await anyio.sleep(0.005)
        gate: Any = adapter.launches[0].gate
        tasks.start_soon(gate, ToolCall(id="c1", name="bash"))
        request = await until_pending(store)
        accepted = await record_answer(store, request.approval_id, given)
        if by == "cancel":
            await handle.cancel()
        else:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await handle.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(PATIENCE_S):
            with pytest.raises(ApprovalError, match=r"withdrawn.* took up that `ana` had approved it") as raised:
                await wait_recorded(store, accepted, wait_s=2 * PATIENCE_S)
            await handle.wait()
    approval = await store.approval(request.approval_id)

    assert raised.value.kind == "withdrawn"
    assert approval is not None
    assert (approval.state, approval.answer, approval.recorded) == ("withdrawn", given, True)
    assert adapter.ran == []
    if isinstance(store, SQLiteStore):
        assert audited(tmp_path / "p.db").findings == ()


async def test_a_person_cannot_pose_as_the_supervisors_timeout() -> None:
    """An answer with the supervisor's name and text is checked like any other, from the store and from an
    approver.
    """
    theirs = ApprovalAnswer(granted=False, by="supervisor", reason="nobody answered in time", expired=True)

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        return theirs

    adapter, store = FakeAdapter([CALL]), MemoryStore()
    async with Supervisor(store, approver=approver) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking(60, approvers=("ana",))])
        request = await until_pending(store)
        with pytest.raises(ApprovalError) as raised:
            await answer(store, request.approval_id, theirs)
        for _ in range(100):  # the approver has answered too
            await checkpoint()
        await supervisor.approve(request.approval_id, by="ana")
        await handle.wait()

    assert theirs == NOBODY_IN_TIME
    assert raised.value.kind == "not_allowed"
    assert [call.id for call in adapter.ran] == ["c1"]


def until_expired(request: ApprovalRequest) -> None:
    """Block the event loop until the time is up."""
    assert request.expires_at is not None
    while datetime.now(UTC) <= request.expires_at:
        pass


async def test_an_answer_after_the_time_is_up_is_late_although_the_owner_has_not_said_so(tmp_path: Path) -> None:
    """Its process may be suspended, or its event loop blocked, as here."""
    adapter = FakeAdapter([CALL])
    async with SQLiteStore(tmp_path / "store.db") as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking()])
        request = await until_held(supervisor)
        command = answering_command(store.path, request.approval_id, "ana")
        until_expired(request)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)  # noqa: ASYNC221 - to block it
        result = await handle.wait()
        approval = await store.approval(request.approval_id)

    assert done.stdout.strip() == "expired", done.stderr
    assert (adapter.ran, result.status) == ([], "completed")
    assert approval is not None
    assert approval.state == "expired"


async def test_an_approver_that_blocks_its_run_until_the_time_is_up_is_late_too() -> None:
    """It could answer before the run noticed."""

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        until_expired(request)
        return ApprovalAnswer(granted=True, by="ana")

    adapter = FakeAdapter([CALL])
    result = await run_once(adapter, "go", policies=[asking()], approver=approver)

    assert adapter.ran == []
    assert [event.type for event in result.events if isinstance(event, ApprovalEvent)] == [
        "tool_approval_requested",
        "tool_approval_expired",
    ]
