"""A held call: asked with its input, answered by whoever may, once, and judged again before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events import (
    Event,
    ToolApprovalDenied,
    ToolApprovalGranted,
    ToolApprovalRequested,
    ToolCallStarted,
)
from proctor.policies.events.calls import input_digest
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import (
    ApprovalAnswer,
    ApprovalError,
    ApprovalRequest,
    MemoryStore,
    RunResult,
    Supervisor,
    UsageError,
    cancel_for_approval,
    execute_run,
    run_once,
)
from proctor.supervisor.api.run_once import create_run
from proctor.supervisor.control import approval_inbox as inbox
from proctor.supervisor.ports.stored_types import Cancel
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover, Pause, Together
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
BASH = Ask(id="c1", name="bash", input={"command": "rm -rf /tmp/x"})


@pytest.fixture
def asking(denying: Callable[..., Policy]) -> Policy:
    """A policy under which `bash` needs a person."""
    return denying("request_approval")


def of_type(events: Any, kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def until_held(supervisor: Supervisor) -> Any:
    with anyio.fail_after(PATIENCE_S):
        while not supervisor.approvals():
            await anyio.lowlevel.checkpoint()
    return supervisor.approvals()[0]


async def test_a_granted_call_runs_with_the_input_that_was_shown(asking: Policy) -> None:
    """The request is an event with id, input and digest; the grant is recorded before the call starts."""
    approver = FakeApprover(True, by="ana")
    adapter = FakeAdapter([BASH])
    result = await run_once(adapter, "go", policies=[asking], approver=approver)
    (shown,) = of_type(result.events, ToolApprovalRequested)
    (granted,) = of_type(result.events, ToolApprovalGranted)
    (started,) = of_type(result.events, ToolCallStarted)

    assert (shown.held, shown.tool_input, shown.input_digest) == (True, BASH.input, input_digest(BASH.input))
    assert shown.expires_at is not None
    assert (granted.approval_id, granted.by, granted.input_digest) == (shown.approval_id, "ana", shown.input_digest)
    assert shown.seq < granted.seq < started.seq
    assert [request.call.input for request in approver.requests] == [BASH.input]
    assert result.policy.violations == ()


async def test_a_denied_call_is_refused_and_the_run_continues(asking: Policy) -> None:
    """The model is told no more than that the tool is not available."""
    adapter = FakeAdapter([BASH, Ask(name="read")])
    result = await run_once(adapter, "go", policies=[asking], approver=FakeApprover(False))

    assert [call.name for call in adapter.ran] == ["read"]
    assert adapter.answers["c1"].tell_model == "A person declined this call of tool 'bash'."
    assert not adapter.answers["c1"].stop
    assert len(of_type(result.events, ToolApprovalDenied)) == 1
    assert result.status == "completed"


async def test_an_approver_that_fails_has_not_said_yes(asking: Policy) -> None:
    """An approval that cannot be asked refuses the call."""
    adapter = FakeAdapter([BASH])
    await run_once(adapter, "go", policies=[asking], approver=FakeApprover(None, error=OSError("no display")))

    assert adapter.ran == []
    assert adapter.answers["c1"].tell_model == "Nobody could be asked to approve this call of tool 'bash'."


@pytest.mark.parametrize("answer", [True, "yes"])
async def test_what_is_no_answer_is_not_yes(asking: Policy, answer: Any) -> None:
    """An approver that answers with something else has failed: the call is refused, and the run goes on."""

    async def approver(request: ApprovalRequest) -> Any:
        return answer

    adapter = FakeAdapter([BASH])
    result = await run_once(adapter, "go", policies=[asking], approver=approver)

    assert adapter.ran == []
    (denied,) = of_type(result.events, ToolApprovalDenied)
    assert (denied.by, denied.reason) == ("supervisor", "the approver failed")
    assert result.status == "completed"


async def test_an_answer_for_another_input_is_an_error_and_answers_nothing(asking: Policy) -> None:
    """The approval is bound to the digest of the input it showed, and is somebody's."""
    adapter = FakeAdapter([BASH])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        request = await until_held(supervisor)
        with pytest.raises(UsageError, match="another input"):
            await supervisor.approve(request.approval_id, by="ana", input_digest=input_digest({"command": "ls"}))
        for nobody in ("", None):
            with pytest.raises(UsageError, match="`by` is"):
                await supervisor.approve(request.approval_id, by=nobody)  # type: ignore[arg-type]
        assert supervisor.approvals() == [request]
        await supervisor.approve(request.approval_id, by="ana", input_digest=request.input_digest)
        await handle.wait()

    assert len(adapter.ran) == 1


async def test_an_approval_is_used_once(asking: Policy) -> None:
    """A second answer is an error; the same input asked again needs another approval."""
    again = Ask(id="c2", name="bash", input=BASH.input)
    adapter = FakeAdapter([BASH, again])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        first = await until_held(supervisor)
        await supervisor.approve(first.approval_id, by="ana")
        second = await until_held(supervisor)
        with pytest.raises(UsageError, match="granted by `ana`"):
            await supervisor.approve(first.approval_id, by="bob")
        await supervisor.deny(second.approval_id, by="bob", reason="once is enough")
        result = await handle.wait()

    assert [call.id for call in adapter.ran] == ["c1"]
    assert [e.reason for e in of_type(result.events, ToolApprovalDenied)] == ["once is enough"]


async def test_a_granted_call_is_judged_again_on_the_state_of_that_moment() -> None:
    """What a sibling did while the call was held can still refuse it."""
    from proctor.policies.reading import parse_policies

    (policy,) = parse_policies(
        """
        name: p
        on_violation: deny
        tool_rules: [{deny: [bash], action: request_approval}]
        rules: [{type: never_after, trigger: lock, forbidden: bash}]
        """
    )
    was_requested, locked = anyio.Event(), anyio.Event()

    async def lock() -> None:
        locked.set()

    async def approver(request: Any) -> ApprovalAnswer:
        was_requested.set()
        await locked.wait()
        return ApprovalAnswer(granted=True, by="ana")

    adapter = FakeAdapter([Together((BASH, Ask(id="c2", name="lock", first=was_requested.wait, meanwhile=lock)))])
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(adapter, "go", policies=[policy], approver=approver)

    assert [call.name for call in adapter.ran] == ["lock"]
    assert len(of_type(result.events, ToolApprovalGranted)) == 1
    assert {v.action for v in result.policy.violations} == {"request_approval", "deny"}


async def test_another_process_answers_through_the_store(asking: Policy) -> None:
    """A second supervisor over the same store stands for the other process."""
    store = MemoryStore()
    adapter = FakeAdapter([BASH])
    async with Supervisor(store) as owner, Supervisor(store) as other:
        handle = await owner.start(adapter, "go", policies=[asking])
        await until_held(owner)
        (request,) = await inbox.pending(store)
        await other.approve(request.approval_id, by="ana", reason="fine")
        with anyio.fail_after(PATIENCE_S):
            result = await handle.wait()

    assert len(adapter.ran) == 1
    assert [e.by for e in of_type(result.events, ToolApprovalGranted)] == ["ana"]
    assert await inbox.pending(store) == []


async def test_the_inbox_has_what_waits_in_any_run_however_many_came_after(asking: Policy) -> None:
    """Runs that were stored since push nothing out of it."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([BASH]), "go", policies=[asking])
        request = await until_held(supervisor)
        for _ in range(1_200):
            await create_run(store, "later")
        found = await inbox.pending(store)
        await handle.cancel()

    assert [waiting.approval_id for waiting in found] == [request.approval_id]


async def test_a_held_call_of_a_cancelled_run_is_closed(asking: Policy) -> None:
    """Nothing stays in the inbox of a run that is over."""
    store = MemoryStore()
    adapter = FakeAdapter([BASH], deaf=1)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        request = await until_held(supervisor)
        await handle.cancel(reason="stop")
        result = await handle.wait()
        with pytest.raises(ApprovalError, match="withdrawn"):
            await supervisor.approve(request.approval_id, by="ana")

    assert result.status == "cancelled"
    assert not adapter.answers["c1"].allowed
    assert adapter.answers["c1"].stop


async def test_an_unknown_approval_is_one_clear_error() -> None:
    """Naming what does not exist answers nothing."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(UsageError, match="there is no approval `nothing`"):
            await supervisor.approve("nothing", by="ana")


@pytest.mark.parametrize("by_handle", [True, False])
async def test_cancel_for_approval_ends_the_run_and_a_later_run_may_make_the_call_once(
    by_handle: bool, asking: Policy, permissive: Policy
) -> None:
    """The run ends with both records; after the approval a replayed run uses it, once, for that input."""
    store = MemoryStore()
    fields = {"tool_name": "bash", "tool_call_id": "x", "tool_input": BASH.input, "policy_name": "p"}
    adapter = FakeAdapter([Pause()])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[permissive])
        with anyio.fail_after(PATIENCE_S):
            target: Any = handle if by_handle else adapter
            request = await cancel_for_approval(store, target, handle.run_id, fields)
            first = await handle.wait()
        assert [r.approval_id for r in await inbox.pending(store)] == [request.approval_id]
        await supervisor.approve(request.approval_id, by="ana")
    types = [event.type for event in first.events]
    assert first.status == "cancelled"
    assert types[-2:] == ["tool_approval_requested", "run_cancelled"]

    other = Ask(id="n2", name="bash", input={"command": "ls"})
    again = FakeAdapter(
        [Ask(id="n1", name="bash", input=BASH.input), Ask(id="n3", name="bash", input=BASH.input), other]
    )
    run_id = await create_run(store, "go on", session_id=handle.session_id)
    with anyio.fail_after(PATIENCE_S):
        second = await execute_run(
            store, again, run_id, policies=[asking], continuation="replay", approver=FakeApprover(False)
        )

    assert [call.id for call in again.ran] == ["n1"]
    assert [event.type for event in again.launches[0].transcript][:2] == ["session_created", "run_started"]
    assert [e.by for e in of_type(second.events, ToolApprovalGranted)] == ["ana"]
    third = FakeAdapter([Ask(id="m1", name="bash", input=BASH.input)])
    await run_once(
        third, "more", policies=[asking], store=store, session_id=handle.session_id, approver=FakeApprover(False)
    )
    assert third.ran == []


async def test_cancel_for_approval_of_what_does_not_run_is_an_error(permissive: Policy) -> None:
    """Neither an unknown run nor one that is over can be ended."""
    store = MemoryStore()
    result = await run_once(FakeAdapter(), "go", policies=[permissive], store=store)
    for run_id, message in (("nothing", "no run"), (result.run_id, "completed")):
        with pytest.raises(UsageError, match=message):
            await cancel_for_approval(store, FakeAdapter(), run_id, {"tool_name": "x", "tool_call_id": "y"})


@pytest.mark.parametrize(
    "wrong", [None, "bash", {"tool_name": "x"}, {"tool_call_id": "y", "tool_name": "x", "tool_input": 3}]
)
async def test_an_invalid_request_ends_no_run(permissive: Policy, wrong: Any) -> None:
    """What is to be approved is checked first."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[permissive])
        with pytest.raises(UsageError, match="the request for approval"):
            await cancel_for_approval(store, FakeAdapter(), handle.run_id, wrong)
        assert not handle.done
        await handle.cancel()


async def test_an_order_cancels_one_run_or_many(permissive: Policy) -> None:
    """By run, by session, by tenant, or all that had been created by then."""
    from proctor.policies.events.run_context import RunContext

    store = MemoryStore()
    results: dict[str, RunResult] = {}
    async with Supervisor(store) as supervisor:
        handles = {
            tenant: await supervisor.start(
                FakeAdapter([Pause()]), "go", policies=[permissive], context=RunContext(tenant=tenant)
            )
            for tenant in ("a", "b", "c")
        }
        await store.send_command(Cancel(scope="run", value=handles["a"].run_id, reason="one"))
        await store.send_command(Cancel(scope="tenant", value="b", reason="many"))
        with anyio.fail_after(PATIENCE_S):
            results["a"] = await handles["a"].wait()
            results["b"] = await handles["b"].wait()
            assert not handles["c"].done
            await store.send_command(Cancel(scope="all", reason="all"))
            results["c"] = await handles["c"].wait()

    assert {tenant: result.reason for tenant, result in results.items()} == {"a": "one", "b": "many", "c": "all"}


async def test_several_held_calls_are_answered_each_for_itself(asking: Policy) -> None:
    """Parallel calls are held at the same time."""
    asks = tuple(Ask(id=f"c{n}", name="bash", input={"n": n}) for n in range(4))
    adapter = FakeAdapter([Together(asks)])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[asking])
        with anyio.fail_after(PATIENCE_S):
            while len(supervisor.approvals()) < 4:
                await anyio.lowlevel.checkpoint()
        for request in supervisor.approvals():
            if request.call.input["n"] % 2:
                await supervisor.approve(request.approval_id, by="ana")
            else:
                await supervisor.deny(request.approval_id, by="ana")
        await handle.wait()

    assert sorted(call.id for call in adapter.ran) == ["c1", "c3"]


async def test_a_cancelling_rule_beside_an_approval_refuses_at_once() -> None:
    """The strictest action decides; nobody is asked for a call that cannot run."""
    policy = Policy(name="p", tool_rules=(Deny(("bash",), action="request_approval"), Deny(("b*",), action="cancel")))
    approver = FakeApprover(True)
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter([BASH]), "go", policies=[policy], approver=approver)

    assert approver.requests == []
