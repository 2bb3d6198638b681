"""A call that needs approval: shown with its input, answered once by an approver, evaluated again, and recorded."""

from typing import Any

import anyio
import msgspec
import pytest
from answering import kind, until_held
from anyio.lowlevel import checkpoint
from supervised import OPEN, around, denying

from proctor.policies import Approval, Deny, Policy, PolicyViolationError
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.supervisor import MemoryStore, Supervisor, cancel_for_approval, execute_run, run_once
from proctor.supervisor.api.run_once import create_run
from proctor.supervisor.control import approval_inbox as inbox
from proctor.supervisor.control.approval_inbox import answer, pending, wait_recorded
from proctor.supervisor.errors import ApprovalError, UsageError
from proctor.supervisor.machine.event_factory import PriorSession
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover, FakePublisher, Pause, Together

pytestmark = pytest.mark.anyio
ASKING = denying("request_approval")
BASH = Ask(id="c1", name="bash", input={"command": "rm -rf /tmp/x"})


def of_type(events: Any, kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_an_approved_call_runs_with_the_input_that_was_shown() -> None:
    """The request event has the id, the input and its digest. The approval is recorded before the call starts."""
    approver = FakeApprover(True, by="ana")
    adapter = FakeAdapter([BASH])
    result = await run_once(adapter, "go", policies=[ASKING], approver=approver)
    (shown,) = of_type(result.events, ev.ToolApprovalRequested)
    (granted,) = of_type(result.events, ev.ToolApprovalGranted)
    (started,) = of_type(result.events, ev.ToolCallStarted)

    assert (shown.held, shown.tool_input, shown.input_digest) == (True, BASH.input, input_digest(BASH.input))
    assert shown.expires_at is not None
    assert (granted.approval_id, granted.by, granted.input_digest) == (shown.approval_id, "ana", shown.input_digest)
    assert shown.seq < granted.seq < started.seq
    assert [request.call.input for request in approver.requests] == [BASH.input]
    assert result.policy.violations == ()


def not_awaited(request: ApprovalRequest) -> ApprovalAnswer:
    return ApprovalAnswer(granted=True, by="ana")


@pytest.mark.parametrize(("answer", "why"), [
    (not_awaited, "TypeError: it returned a value of type `ApprovalAnswer`: write it as an `async def`"),
    (True, "UsageError: expected an `ApprovalAnswer`, got a value of type `bool`"),
    ("yes", "UsageError: expected an `ApprovalAnswer`, got a value of type `str`"),
    (OSError("no display"), "OSError: no display"),
    (ApprovalAnswer(granted="no", by="ana"), "expected true or false, got text at `$.granted`"),  # type: ignore[arg-type]
    (ApprovalAnswer(granted=True, by=None), "expected text, got null at `$.by`"),  # type: ignore[arg-type]
    (ApprovalAnswer(granted=True, by="ana", reason=5), "got a whole number at `$.reason`"),  # type: ignore[arg-type]
    (ApprovalAnswer(granted=True, by="ana", like={"a": {1j}}), "encoding objects of type complex is unsupported"),
    (ApprovalAnswer(granted=True, by="ana", reason="\udcff"), "surrogates not allowed"),
], ids=lambda each: getattr(each, "__name__", str(each)))  # fmt: skip
async def test_an_invalid_answer_of_an_approver_is_not_an_approval(answer: Any, why: str) -> None:
    """If an approver raises, returns something else or is a plain function, it has failed: the call is denied, the
    run continues, and the log has the reason.
    """

    async def approver(request: ApprovalRequest) -> Any:
        return answer

    failing: Any = FakeApprover(None, error=answer) if isinstance(answer, Exception) else approver
    failing = answer if answer is not_awaited else failing
    adapter = FakeAdapter([BASH, Ask(name="read")])
    result = await run_once(adapter, "go", policies=[ASKING], approver=failing)

    assert [call.name for call in adapter.ran] == ["read"]
    assert adapter.answers["c1"].tell_model == "Nobody could be asked to approve this call of tool 'bash'."
    (denied,) = of_type(result.events, ev.ToolApprovalDenied)
    assert denied.by == "supervisor"
    assert denied.reason.startswith("the approver failed: ")
    assert denied.reason.endswith(why)
    assert result.status == "completed"


async def test_an_answer_for_another_input_is_an_error_without_effect() -> None:
    """An answer needs the digest of the shown input, an author, and an existing request."""
    adapter = FakeAdapter([BASH])
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[ASKING])
        request = await until_held(supervisor)
        assert await kind(store, request.approval_id, input_digest="0" * 64) == "other_input"
        assert [await kind(store, f"{of}.2") for of in (request.run_id, "nothing")] == ["unknown", "unknown"]
        with pytest.raises(UsageError, match="another input"):
            await supervisor.approve(request.approval_id, by="ana", input_digest=input_digest({"command": "ls"}))
        for nobody in ("", None):
            with pytest.raises(UsageError, match="`by` is"):
                await supervisor.approve(request.approval_id, by=nobody)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="there is no approval `nothing`"):
            await supervisor.approve("nothing", by="ana")
        with pytest.raises(UsageError, match="expected an `ApprovalAnswer`"):
            await answer(MemoryStore(), request.approval_id, "granted")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="`store` is None, not a store"):
            await pending(None)  # type: ignore[arg-type]
        wrong: list[Any] = [
            {"group": ["ops"]},
            {"granted": False},
            {"tell": "no"},
            {"scope": "forever"},
            {"groups": 7},
        ]
        for given in (*wrong, {"by": 3}):
            with pytest.raises(UsageError):
                await supervisor.approve(request.approval_id, **{"by": "ana", **given})
        assert supervisor.approvals() == [request]
        await supervisor.approve(request.approval_id, by="ana", input_digest=request.input_digest)
        await handle.wait()

    assert len(adapter.ran) == 1


async def test_an_approval_is_used_once() -> None:
    """A second answer is an error, and the same input needs another approval."""
    again = Ask(id="c2", name="bash", input=BASH.input)
    adapter = FakeAdapter([BASH, again])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[ASKING])
        first = await until_held(supervisor)
        await supervisor.approve(first.approval_id, by="ana")
        second = await until_held(supervisor)
        with pytest.raises(UsageError, match="approved by `ana`"):
            await supervisor.approve(first.approval_id, by="bob")
        await supervisor.deny(second.approval_id, by="bob", reason="once is enough")
        result = await handle.wait()

    assert [call.id for call in adapter.ran] == ["c1"]
    assert [e.reason for e in of_type(result.events, ev.ToolApprovalDenied)] == ["once is enough"]


async def test_an_approved_call_is_evaluated_again_in_the_current_state() -> None:
    """A parallel call may have changed the state so that it is denied."""
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
    result = await run_once(adapter, "go", policies=[policy], approver=approver)

    assert [call.name for call in adapter.ran] == ["lock"]
    assert len(of_type(result.events, ev.ToolApprovalGranted)) == 1
    assert {v.action for v in result.policy.violations} == {"request_approval", "deny"}


@pytest.mark.parametrize("granted", [True, False])
async def test_another_process_answers_through_the_store(granted: bool) -> None:
    """A second supervisor with the same store plays the other process. Its reason reaches the model."""
    store = MemoryStore()
    adapter = FakeAdapter([BASH])
    async with Supervisor(store) as owner, Supervisor(store) as other:
        handle = await owner.start(adapter, "go", policies=[ASKING])
        await until_held(owner)
        (request,) = await inbox.pending(store)
        if granted:
            await other.approve(request.approval_id, by="ana", reason="fine")
        else:
            await other.deny(request.approval_id, by="ana", tell="Use the staging host.")
        result = await handle.wait()

    assert len(adapter.ran) == granted
    assert [e.by for e in of_type(result.events, ev.ToolApprovalGranted)] == ["ana"] * granted
    assert adapter.answers["c1"].tell_model == (None if granted else "Use the staging host.")
    assert await inbox.pending(store) == []


async def test_the_inbox_lists_pending_approvals_of_all_runs() -> None:
    """However many runs were stored since."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([BASH]), "go", policies=[ASKING])
        request = await until_held(supervisor)
        for _ in range(1_200):
            await create_run(store, "later")
        found = await inbox.pending(store)
        await handle.cancel()

    assert [waiting.approval_id for waiting in found] == [request.approval_id]


async def test_a_pending_approval_of_a_cancelled_run_is_closed() -> None:
    """The inbox has no approvals of ended runs."""
    store = MemoryStore()
    adapter = FakeAdapter([BASH], deaf=1)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[ASKING])
        request = await until_held(supervisor)
        await handle.cancel(reason="stop")
        result = await handle.wait()
        with pytest.raises(ApprovalError, match="withdrawn") as raised:
            await supervisor.approve(request.approval_id, by="ana")

    assert raised.value.kind == "withdrawn"
    assert result.status == "cancelled"
    assert not adapter.answers["c1"].allowed
    assert adapter.answers["c1"].stop


async def test_a_pending_approval_whose_caller_has_left_is_withdrawn() -> None:
    """The call can't run any more. It is recorded as denied, and the run continues."""
    adapter = FakeAdapter([Pause()])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[ASKING])
        while not adapter.launches:
            await checkpoint()
        gate: Any = adapter.launches[0].gate
        async with anyio.create_task_group() as client:
            client.start_soon(gate, ToolCall(id="c1", name="bash"))
            request = await until_held(supervisor)
            client.cancel_scope.cancel()
        while supervisor.approvals():
            await checkpoint()
        with pytest.raises(ApprovalError, match="withdrawn"):
            await supervisor.approve(request.approval_id, by="ana")
        assert not handle.done
        await handle.cancel()
        result = await handle.wait()
    types = [event.type for event in result.events if getattr(event, "tool_call_id", "") == "c1"]

    assert types[-3:] == ["tool_approval_expired", "policy_violation", "tool_call_denied"]


@pytest.mark.parametrize("by_handle", [True, False])
async def test_cancel_for_approval_ends_the_run_and_a_later_run_may_make_the_call_once(by_handle: bool) -> None:
    """Both events end the run. Once approved, a replayed run uses the approval once, for that input."""
    store = MemoryStore()
    fields = {"tool_name": "bash", "tool_call_id": "x", "tool_input": BASH.input, "policy_name": "p"}
    adapter = FakeAdapter([Pause()])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
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
    second = await execute_run(
        store, again, run_id, policies=[ASKING], continuation="replay", approver=FakeApprover(False)
    )

    assert [call.id for call in again.ran] == ["n1"]
    assert [event.type for event in again.launches[0].transcript][:2] == ["session_created", "run_started"]
    assert [e.by for e in of_type(second.events, ev.ToolApprovalGranted)] == ["ana"]
    third = FakeAdapter([Ask(id="m1", name="bash", input=BASH.input)])
    await run_once(
        third, "more", policies=[ASKING], store=store, session_id=handle.session_id, approver=FakeApprover(False)
    )
    assert third.ran == []


async def test_cancel_for_approval_of_an_impossible_call_is_an_error() -> None:
    """The run is unknown or has ended. The call is checked first."""
    store = MemoryStore()
    result = await run_once(FakeAdapter(), "go", policies=[OPEN], store=store)
    for run_id, message in (("nothing", "no run"), (result.run_id, "completed")):
        with pytest.raises(UsageError, match=message):
            await cancel_for_approval(store, FakeAdapter(), run_id, {"tool_name": "x", "tool_call_id": "y"})
    wrong: list[Any] = [None, "bash", {"tool_name": "x"}, {"tool_call_id": "y", "tool_name": "x", "tool_input": 3}]
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        for about in wrong:
            with pytest.raises(UsageError, match="the request for approval"):
                await cancel_for_approval(store, FakeAdapter(), handle.run_id, about)
        assert not handle.done
        await handle.cancel()


async def test_parallel_pending_calls_are_answered_separately() -> None:
    asks = tuple(Ask(id=f"c{n}", name="bash", input={"n": n}) for n in range(4))
    adapter = FakeAdapter([Together(asks)])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[ASKING])
        while len(supervisor.approvals()) < 4:
            await anyio.lowlevel.checkpoint()
        for request in supervisor.approvals():
            if request.call.input["n"] % 2:
                await supervisor.approve(request.approval_id, by="ana")
            else:
                await supervisor.deny(request.approval_id, by="ana")
        await handle.wait()

    assert sorted(call.id for call in adapter.ran) == ["c1", "c3"]


async def test_a_cancelling_rule_beside_an_approval_denies_at_once() -> None:
    """The strictest action decides, and nobody is asked about a call that can't run."""
    policy = Policy(name="p", tool_rules=(Deny(("bash",), action="request_approval"), Deny(("b*",), action="cancel")))
    approver = FakeApprover(True)
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter([BASH]), "go", policies=[policy], approver=approver)

    assert approver.requests == []


async def test_without_an_approver_the_call_is_denied_at_once() -> None:
    """`run_once` without an approver and a store. Preflight warned, and observers get a request before the denial."""
    adapter, publisher = FakeAdapter([Ask(name="bash", input={"to": "prod"}), Ask(name="read")]), FakePublisher()
    result = await run_once(adapter, "go", policies=[ASKING], publishers=[publisher])
    (finding,) = [line for line in result.policy.metadata["findings"] if "nobody can answer" in line]
    kinds = (ev.ToolApprovalRequested, ev.ToolApprovalExpired, ev.ToolCallDenied)
    published: list[Any] = [event for event in publisher.events if isinstance(event, kinds)]

    assert [call.name for call in adapter.ran] == ["read"]
    assert [type(event) for event in published] == list(kinds)
    assert (published[0].tool_name, published[0].tool_input) == ("bash", {"to": "prod"})
    assert published[2].decision == "approval_unanswerable"
    assert [event for event in result.events if isinstance(event, kinds)] == published
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]
    assert "pass an `approver`" in finding


async def test_without_an_approver_and_with_cancel_on_timeout_the_run_is_cancelled() -> None:
    """A request that nobody can answer counts as expired."""
    policy = Policy(
        name="p",
        tool_rules=(Deny(("bash",), action="request_approval"),),
        approval=Approval(timeout_s=900, on_timeout="cancel"),
    )
    adapter = FakeAdapter([Ask(name="bash"), Pause()])
    with pytest.raises(PolicyViolationError, match="nobody can answer"):
        await run_once(adapter, "go", policies=[policy])

    assert adapter.ran == []


@pytest.mark.parametrize(("granted", "came_to"), [(True, []), (False, ["prevented"])])
async def test_the_violation_of_a_held_call_is_recorded_with_its_outcome(granted: bool, came_to: list[str]) -> None:
    """Once, in the log as in the result. An approved call satisfies the rule and has no violation."""
    store = MemoryStore()
    result = await run_once(
        FakeAdapter([Ask(name="bash")]), "go", policies=[ASKING], store=store, approver=FakeApprover(granted)
    )
    recorded = [event.enforcement for event in of_type(result.events, ev.PolicyViolated)]
    (request,) = of_type(result.events, ev.ToolApprovalRequested)

    assert recorded == [v.enforcement for v in result.policy.violations] == came_to
    assert result.policy.action == "request_approval"
    assert [rule.status for rule in result.policy.rules.values()] == ["held" if granted else "violated"]
    assert len(request.violations) == 1


@pytest.mark.trio
async def test_an_approvers_answer_for_another_input_is_logged(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The call stays pending."""

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", input_digest=input_digest({"command": "ls"}))

    adapter = FakeAdapter([BASH])
    await run_once(adapter, "go", policies=[ASKING], approver=approver)

    assert adapter.answers["c1"].tell_model == "Nobody approved this call of tool 'bash' in time."
    (logged,) = [entry.getMessage() for entry in caplog.records if "approval.not_accepted" in entry.getMessage()]
    assert "another input than the one answered" in logged


@pytest.mark.parametrize("when", ["going on", "over", "left"])
async def test_a_call_that_ran_without_a_gate_can_be_answered_for_the_record(when: str) -> None:
    """The request has the input and its digest. A later approval allows nothing, and the request is in no list. Of a
    run that is over, no owner need be there.
    """
    store = MemoryStore()
    steps = [Ask(name="bash", input={"command": "ls"}), *([Pause()] if when == "going on" else ())]
    yes = ApprovalAnswer(granted=True, by="ana")
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter(steps, gate="none"), "go", policies=[ASKING])
        if when != "going on":
            await handle.wait()
        await anyio.wait_all_tasks_blocked()
        (request,) = of_type([e async for e in store.read(handle.session_id)], ev.ToolApprovalRequested)
        waiting = await pending(store)
        if when != "left":
            await answer(store, request.approval_id, yes)
            await anyio.wait_all_tasks_blocked()
            while not of_type([e async for e in store.read(handle.session_id)], ev.ToolApprovalGranted):
                await checkpoint()
        await handle.cancel()
    if when == "left":
        await answer(store, request.approval_id, yes)
    record = [event async for event in store.read(handle.session_id)]
    (granted,) = of_type(record, ev.ToolApprovalGranted)

    assert (request.tool_input, request.input_digest) == ({"command": "ls"}, input_digest({"command": "ls"}))
    assert (request.held, request.ran, waiting) == (False, True, [])
    assert (granted.by, granted.input_digest) == ("ana", None)
    past = PriorSession()
    past.apply(granted)
    assert past.grants == []


@pytest.mark.trio
async def test_approvals_are_listed_oldest_first(autojump_clock: object) -> None:
    """In every store, whichever run is older."""
    store = MemoryStore()
    late = FakeAdapter([Pause(20), Ask(name="bash", input={"n": 2})])
    early = FakeAdapter([Pause(5), Ask(name="bash", input={"n": 1})])
    async with Supervisor(store) as supervisor:
        for adapter in (late, early):
            await supervisor.start(adapter, "go", policies=[ASKING])
        await anyio.sleep(30)
        here = [request.call.input["n"] for request in supervisor.approvals()]
        stored = [request.call.input["n"] for request in await pending(store)]
        await supervisor.cancel_all()

    assert (here, stored) == ([1, 2], [1, 2])


async def unrecorded(approval: Any, approval_id: str) -> Any:
    """An approval whose run's owner was lost before it acted on the answer."""
    found = await approval(approval_id)
    return found and msgspec.structs.replace(found, recorded=False)


@pytest.mark.parametrize(("given", "acted_on", "mine", "refusal"), [
    (True, True, {}, None),
    (True, False, {}, "cannot be answered"),
    (True, True, {"state": "declined"}, "is closed"),
    (False, True, {"state": "granted"}, "is closed"),
])  # fmt: skip
async def test_an_answer_counts_as_its_owner_recorded_it_even_after_the_run_has_ended(
    given: bool, acted_on: bool, mine: dict[str, str], refusal: str | None
) -> None:
    """A late reader finds the recorded answer and no owner. An unrecorded answer has no effect. If the owner closed
    the approval otherwise, the person learns the recorded outcome.
    """
    store = MemoryStore() if acted_on else around(approval=unrecorded)
    adapter = FakeAdapter([Ask(name="bash")])
    result = await run_once(adapter, "go", policies=[ASKING], store=store, approver=FakeApprover(given))
    (request,) = of_type(result.events, ev.ToolApprovalRequested)
    approval = await store.approval(request.approval_id)
    assert approval is not None
    late = msgspec.structs.replace(approval, recorded=False, **mine)
    if refusal is None:
        assert (await wait_recorded(store, late)).recorded
    else:
        with pytest.raises(ApprovalError, match=refusal) as raised:
            await wait_recorded(store, late)
        assert not mine or (raised.value.kind, raised.value.approval) == ("answered", approval)
