"""Who can answer a held call, what the record says it came to, and what the model is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
import trio.testing
from anyio.lowlevel import checkpoint

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events import Event, PolicyViolated, ToolApprovalGranted, ToolApprovalRequested, ToolCallDenied
from proctor.policies.events.calls import input_digest
from proctor.policies.policy import Approval, Deny, Policy
from proctor.supervisor import ApprovalAnswer, ApprovalError, MemoryStore, Supervisor, run_once
from proctor.supervisor.control.approval_inbox import answer, pending, wait_recorded
from proctor.supervisor.machine.event_factory import PriorSession
from proctor.supervisor.ports.stored_types import StoredApproval
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S


@pytest.fixture
def asking(denying: Callable[..., Policy]) -> Policy:
    """A policy under which `bash` needs a person."""
    return denying("request_approval")


def of_type(events: Any, kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.anyio
async def test_where_nobody_can_answer_the_call_is_refused_at_once(asking: Policy) -> None:
    """`run_once` without an approver and a store: no wait of a quarter of an hour, and preflight said so."""
    adapter = FakeAdapter([Ask(name="bash"), Ask(name="read")])
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(adapter, "go", policies=[asking])
    (finding,) = [line for line in result.policy.metadata["findings"] if "nobody can answer" in line]

    assert [call.name for call in adapter.ran] == ["read"]
    assert len(of_type(result.events, ToolApprovalRequested)) == 1
    assert [event.decision for event in of_type(result.events, ToolCallDenied)] == ["approval_unanswerable"]
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]
    assert "pass an `approver`" in finding


@pytest.mark.anyio
async def test_where_nobody_can_answer_and_an_expiry_would_cancel_the_run_is_cancelled() -> None:
    """What nobody can approve is what nobody approved."""
    policy = Policy(
        name="p",
        tool_rules=(Deny(("bash",), action="request_approval"),),
        approval=Approval(timeout_s=900, on_timeout="cancel"),
    )
    adapter = FakeAdapter([Ask(name="bash"), Pause()])
    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError, match="nobody can answer"):
        await run_once(adapter, "go", policies=[policy])

    assert adapter.ran == []


@pytest.mark.anyio
async def test_somebody_who_has_the_store_can_answer(asking: Policy) -> None:
    """Then the call is held."""
    store, adapter = MemoryStore(), FakeAdapter([Ask(name="bash")])

    async def grant() -> None:
        while not (waiting := await pending(store)):
            await checkpoint()
        await answer(store, waiting[0].approval_id, ApprovalAnswer(granted=True, by="ana"))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(grant)
            result = await run_once(adapter, "go", policies=[asking], store=store)

    assert [call.name for call in adapter.ran] == ["bash"]
    assert result.policy.violations == ()


@pytest.mark.anyio
@pytest.mark.parametrize(("granted", "came_to"), [(True, []), (False, ["prevented"])])
async def test_a_held_calls_violation_is_recorded_as_what_it_came_to(
    granted: bool, came_to: list[str], asking: Policy
) -> None:
    """Once, on the record as in the result; an approved call has what was asked for, and violates nothing."""
    store = MemoryStore()
    result = await run_once(
        FakeAdapter([Ask(name="bash")]), "go", policies=[asking], store=store, approver=FakeApprover(granted)
    )
    recorded = [event.enforcement for event in of_type(result.events, PolicyViolated)]
    (request,) = of_type(result.events, ToolApprovalRequested)

    assert recorded == [v.enforcement for v in result.policy.violations] == came_to
    assert result.policy.action == "request_approval"
    assert [rule.status for rule in result.policy.rules.values()] == ["held" if granted else "violated"]
    assert len(request.violations) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tell", "own", "words"),
    [
        (None, None, "A person declined this call of tool 'bash'."),
        (None, "Ask the owner first.", "Ask the owner first."),
        ("Use the staging host.", "Ask the owner first.", "Use the staging host."),
    ],
)
async def test_a_persons_words_reach_the_model(tell: str | None, own: str | None, words: str) -> None:
    """They come before the rule's text, and that before the sentence for a no."""
    policy = Policy(name="p", tool_rules=(Deny(("bash",), action="request_approval", tell_model=own),))
    adapter = FakeAdapter([Ask(name="bash", id="c1")])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[policy])
        await anyio.wait_all_tasks_blocked()
        (request,) = supervisor.approvals()
        await supervisor.deny(request.approval_id, by="ana", reason="never the model's to see", tell=tell)
        result = await handle.wait()

    assert adapter.answers["c1"].tell_model == words
    assert [event.tell_model for event in of_type(result.events, ToolCallDenied)] == [words]


@pytest.mark.anyio
async def test_a_persons_words_reach_the_model_from_another_process(asking: Policy) -> None:
    """By way of the store."""
    store, adapter = MemoryStore(), FakeAdapter([Ask(name="bash", id="c1")])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        await anyio.wait_all_tasks_blocked()
        (request,) = await pending(store)
        await answer(
            store, request.approval_id, ApprovalAnswer(granted=False, by="ana", tell_model="Use the staging host.")
        )
        await handle.wait()

    assert adapter.answers["c1"].tell_model == "Use the staging host."


@pytest.mark.trio
async def test_of_an_expired_approval_the_model_hears_that_nobody_gave_it(
    asking: Policy, autojump_clock: trio.testing.MockClock
) -> None:
    """And nothing else."""
    adapter = FakeAdapter([Ask(name="bash", id="c1")])
    await run_once(adapter, "go", policies=[asking], store=MemoryStore())

    assert adapter.answers["c1"].tell_model == "Nobody approved this call of tool 'bash' in time."


@pytest.mark.anyio
@pytest.mark.parametrize("over", [False, True], ids=["going on", "over"])
async def test_what_ran_unheld_can_be_answered_for_the_record(over: bool, asking: Policy) -> None:
    """The request has the input and its digest; a yes afterwards permits nothing later, and waits in no list."""
    store = MemoryStore()
    adapter = FakeAdapter([Ask(name="bash", input={"command": "ls"}), *(() if over else (Pause(),))], gate="none")
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        if over:
            await handle.wait()
        await anyio.wait_all_tasks_blocked()
        (request,) = of_type([e async for e in store.read(handle.session_id)], ToolApprovalRequested)
        waiting = await pending(store)
        await answer(store, request.approval_id, ApprovalAnswer(granted=True, by="ana"))
        await anyio.wait_all_tasks_blocked()
        while not of_type([e async for e in store.read(handle.session_id)], ToolApprovalGranted):
            await checkpoint()
        await handle.cancel()
    record = [event async for event in store.read(handle.session_id)]
    (granted,) = of_type(record, ToolApprovalGranted)

    assert (request.tool_input, request.input_digest) == ({"command": "ls"}, input_digest({"command": "ls"}))
    assert (request.held, request.ran, waiting) == (False, True, [])
    assert (granted.by, granted.input_digest) == ("ana", None)
    past = PriorSession()
    past.apply(granted)
    assert past.grants == []


@pytest.mark.trio
async def test_approvals_are_listed_oldest_first(asking: Policy, autojump_clock: trio.testing.MockClock) -> None:
    """Whichever run is older, and whoever asks the store."""
    store = MemoryStore()
    late = FakeAdapter([Pause(20), Ask(name="bash", input={"n": 2})])
    early = FakeAdapter([Pause(5), Ask(name="bash", input={"n": 1})])
    async with Supervisor(store) as supervisor:
        for adapter in (late, early):
            await supervisor.start(adapter, "go", policies=[asking])
        await anyio.sleep(30)
        here = [request.call.input["n"] for request in supervisor.approvals()]
        stored = [request.call.input["n"] for request in await pending(store)]
        await supervisor.cancel_all()

    assert (here, stored) == ([1, 2], [1, 2])


class Unrecorded(MemoryStore):
    """Its owners are lost before they act on an answer."""

    async def approval(self, approval_id: str) -> StoredApproval | None:
        approval = await super().approval(approval_id)
        return None if approval is None else msgspec.structs.replace(approval, recorded=False)


@pytest.mark.anyio
@pytest.mark.parametrize("recorded", [True, False])
async def test_an_answer_that_was_acted_on_counts_though_its_run_is_over_since(
    recorded: bool, asking: Policy
) -> None:
    """Whoever looks late finds the answer recorded and nobody owning the run; unrecorded, nobody will act on it."""
    store = MemoryStore() if recorded else Unrecorded()
    adapter = FakeAdapter([Ask(name="bash")])
    result = await run_once(adapter, "go", policies=[asking], store=store, approver=FakeApprover(True))
    (request,) = of_type(result.events, ToolApprovalRequested)
    approval = await store.approval(request.approval_id)
    assert approval is not None
    late = msgspec.structs.replace(approval, recorded=False)
    with anyio.fail_after(PATIENCE_S):
        if recorded:
            assert (await wait_recorded(store, late)).recorded
        else:
            with pytest.raises(ApprovalError, match="cannot be answered"):
                await wait_recorded(store, late)


@pytest.mark.anyio
@pytest.mark.parametrize("given", [True, False])
async def test_an_answer_is_no_success_where_the_owner_closed_the_approval_otherwise(
    given: bool, asking: Policy
) -> None:
    """Whoever answered learns what the record says."""
    store = MemoryStore()
    result = await run_once(
        FakeAdapter([Ask(name="bash")]), "go", policies=[asking], store=store, approver=FakeApprover(given)
    )
    (request,) = of_type(result.events, ToolApprovalRequested)
    approval = await store.approval(request.approval_id)
    assert approval is not None
    other = "declined" if approval.state == "granted" else "granted"
    mine = msgspec.structs.replace(approval, recorded=False, state=other)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ApprovalError, match="is closed") as raised:
        await wait_recorded(store, mine)

    assert raised.value.kind == "answered"
    assert raised.value.approval == approval
