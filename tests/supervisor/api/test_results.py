"""The result of a run for every way a provider can end and every action of a policy."""

from typing import Any

import anyio
import pytest
from supervised import OPEN, denying

from proctor.policies import Deny, Policy, PolicyViolationError, ToolCall, Violation, compile_policy
from proctor.policies import events as ev
from proctor.policies.limits import LIMITS, Limit, Limits
from proctor.policies.monitor.call_table import DENIED_KEPT
from proctor.policies.rules import RULES
from proctor.supervisor import ApprovalRequest, MemoryStore, ProviderError, RunResult, Supervisor, run_once
from proctor.supervisor.machine.event_factory import reach
from proctor.supervisor.testing import (
    Ask,
    Crash,
    FakeAdapter,
    FakeApprover,
    FakePublisher,
    Pause,
    Step,
    Stop,
    Together,
)

pytestmark = pytest.mark.anyio
BASH = Ask(id="c1", name="bash", input={"command": "ls"})
ENDINGS: dict[str, tuple[Step, ...]] = {
    "ok": (ev.RunCompleted(output="finished"),),
    "failed": (ev.RunFailed(error={"message": "overloaded", "status": 529}),),
    "raises": (Crash(ProviderError("the client died")),),
    "crash": (Crash(RuntimeError("segmentation fault")),),
    "no_end": (Stop(),),
}
ERRORS = {"failed": ProviderError, "raises": ProviderError, "crash": RuntimeError, "no_end": ProviderError}
Outcome = tuple[RunResult | None, BaseException | None, list[ev.Event]]


async def supervise(adapter: FakeAdapter, policy: Policy, **more: Any) -> Outcome:
    publisher = FakePublisher()
    result: RunResult | None = None
    raised: BaseException | None = None
    try:
        result = await run_once(adapter, "go", policies=[policy], publishers=[publisher], **more)
    except Exception as error:
        raised = error
    return result, raised, publisher.events


def terminals(events: list[ev.Event]) -> list[ev.Event]:
    return [event for event in events if isinstance(event, ev.TERMINAL)]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("gate", ["all", "none"])
@pytest.mark.parametrize("action", ["warn", "request_approval", "deny", "cancel"])
async def test_every_end_under_every_action_has_one_result_and_one_terminal_event(
    ending: str, gate: str, action: str
) -> None:
    """Section 8 of the language, "Results", for adapters with and without a gate."""
    adapter = FakeAdapter([BASH, *ENDINGS[ending]], gate=gate)
    result, raised, events = await supervise(adapter, denying(action), approver=FakeApprover(True))
    cancelled = action == "cancel" or (action == "deny" and gate == "none")

    assert len(terminals(events)) == 1
    assert events[-1] is terminals(events)[0]
    assert adapter.closed == 1
    if cancelled:
        assert isinstance(raised, PolicyViolationError)
        assert isinstance(events[-1], ev.RunCancelled)
        assert [v.action for v in raised.violations] == [action]
    elif ending == "ok":
        assert result is not None
        assert (result.status, result.output) == ("completed", "finished")
        assert result.policy.action == action
        assert list(result.events) == events
    else:
        assert type(raised) is ERRORS[ending]
        assert getattr(raised, "policy").action == action  # noqa: B009
        assert isinstance(events[-1], ev.RunFailed)


async def test_a_policy_error_has_the_result_so_far() -> None:
    """Violations, partial output, usage, the calls that ran and the proposed one."""
    adapter = FakeAdapter(
        [
            ev.MessageReceived(content="looking around"),
            ev.TokenUsageUpdated(input_tokens=100, output_tokens=20, cost_usd=0.25),
            Ask(id="c0", name="read", input={"path": "a"}),
            BASH,
            Ask(id="c2", name="read"),
        ]
    )
    _, raised, _ = await supervise(adapter, denying("cancel"))
    assert isinstance(raised, PolicyViolationError)

    assert raised.partial.output == "looking around"
    assert (raised.partial.usage.total_tokens, raised.partial.cost_usd) == (120, 0.25)
    assert [call.id for call in raised.partial.calls] == ["c0", "c1"]
    assert raised.code == "policy_violation"


@pytest.mark.parametrize("ending", sorted(ERRORS))
async def test_an_error_of_the_provider_has_the_result_so_far(ending: str) -> None:
    """It is the provider's own error, unchanged except for the report and the result."""
    used = ev.TokenUsageUpdated(input_tokens=100, output_tokens=20, cost_usd=0.25)
    adapter = FakeAdapter([ev.MessageReceived(content="looking around"), used, BASH, *ENDINGS[ending]])
    _, raised, events = await supervise(adapter, denying("warn"), run_id="r1")
    partial: RunResult = getattr(raised, "partial", RunResult(status="completed", run_id="", session_id=""))

    assert type(raised) is ERRORS[ending]
    assert (partial.status, partial.run_id, partial.output) == ("failed", "r1", "looking around")
    assert (partial.usage.total_tokens, partial.cost_usd) == (120, 0.25)
    assert [violation.action for violation in partial.policy.violations] == ["warn"]
    assert partial.reason == str(raised)
    assert list(partial.events) == events


async def test_a_violation_found_with_the_last_event_fails_a_run_that_reported_completion() -> None:
    """A violation with the action `cancel` is an error even then."""
    policy = Policy(name="p", limits=Limits(max_total_tokens=10), on_violation="cancel")
    adapter = FakeAdapter([ev.TokenUsageUpdated(input_tokens=11), ev.RunCompleted(output="all done")])
    _, raised, events = await supervise(adapter, policy)

    assert isinstance(raised, PolicyViolationError)
    assert [v.kind for v in raised.violations] == ["max_total_tokens"]
    assert "tokens; expected at most " in str(raised)
    assert len(terminals(events)) == 1


async def test_parallel_calls_of_a_cancelled_call_are_all_answered() -> None:
    """Every denied call gets a tool result, so the provider's pairing stays valid."""
    asks = (BASH, Ask(id="c2", name="bash"), Ask(id="c3", name="read"), Ask(id="c4", name="read"))
    adapter = FakeAdapter([Together(asks)], deaf=1)
    _, raised, events = await supervise(adapter, denying("cancel"))

    assert isinstance(raised, PolicyViolationError)
    assert set(adapter.answers) == {"c1", "c2", "c3", "c4"}
    denied = [answer for answer in adapter.answers.values() if not answer.allowed]
    assert all(answer.tell_model for answer in denied)
    started = {event.tool_call_id for event in events if isinstance(event, ev.ToolCallStarted)}
    failed = {event.tool_call_id for event in events if isinstance(event, ev.ToolCallFailed)}
    assert started - failed == {call.id for call in adapter.ran}


class ClosedError(Exception):
    """An error that rejects attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class OwnPolicyError(Exception):
    """An error that already has an attribute `policy`."""

    policy = property(lambda self: "mine")


@pytest.mark.parametrize(
    ("kind", "notes"), [(OwnPolicyError, ["policy: warn, 1 violation"]), (ClosedError, None)], ids=str
)
async def test_an_error_that_rejects_the_report_is_raised_anyway(
    kind: type[Exception], notes: list[str] | None
) -> None:
    """It gets a note with the policy's finding, if it accepts notes."""
    _, raised, _ = await supervise(FakeAdapter([BASH, Crash(kind("broken"))]), denying("warn"))

    assert isinstance(raised, kind)
    assert getattr(raised, "__notes__", None) == notes


async def test_the_result_of_a_long_run_has_only_the_latest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has them all. The result has the number of earlier ones."""
    monkeypatch.setattr("proctor.supervisor.run.journal.MOST", 5)
    store = MemoryStore()
    steps = [ev.MessageReceived(content=str(n)) for n in range(20)]
    result = await run_once(FakeAdapter(steps), "go", policies=[OPEN], store=store)
    stored = [event async for event in store.read(result.session_id)]

    assert list(result.events) == stored[-5:]
    assert result.events_before == len(stored) - 5


NOW = 200
ASKED = ApprovalRequest(
    approval_id="a",
    run_id="r",
    session_id="s",
    call=ToolCall(id="c", name="pay"),
    input_digest="d",
    policy_name="p",
    violation_kind="deny",
)
LIMIT = Policy(name="limit", limits=Limits(max_duration_ms=NOW))


@pytest.mark.trio
@pytest.mark.parametrize("order", ["user", "approval", "supervisor"])
async def test_a_limit_exceeded_during_a_cancel_does_not_change_the_outcome(
    order: str, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Its violation is recorded as observed. The run was cancelled by its caller, and nothing is raised."""
    adapter = FakeAdapter([ev.MessageReceived(content="at work"), Pause()], deaf=1, rung_s=0.3)
    caplog.set_level("INFO", "proctor")
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[LIMIT])
        await anyio.sleep(0.05)
        if order == "user":
            await handle.cancel(by="ana")
        elif order == "approval":
            await handle.cancel_for_approval(ASKED, by="ana")
        else:
            await supervisor.cancel_all(by="ana")
        result = await handle.wait()
        counts = supervisor.statistics()
    ends = [event for event in result.events if isinstance(event, ev.TERMINAL)]

    assert result.status == "cancelled"
    assert [(type(end), end.by) for end in ends if isinstance(end, ev.RunCancelled)] == [(ev.RunCancelled, "ana")]
    assert [(v.kind, v.enforcement) for v in result.policy.violations] == [("max_duration_ms", "observed")]
    assert result.policy.action == "cancel"
    assert (counts.cancelled, counts.refused) == (1, 0)
    finished = [line for line in caplog.messages if "run.finished" in line]
    assert len(finished) == 1
    assert "rules=[]" in finished[0]
    assert ends[0].reason in finished[0]  # type: ignore[union-attr]
    assert result.reason
    assert result.reason == ends[0].reason  # type: ignore[union-attr]


@pytest.mark.trio
async def test_a_cancel_after_a_limit_was_exceeded_does_not_change_the_outcome(autojump_clock: object) -> None:
    """The limit came first, so the caller gets its error."""
    adapter = FakeAdapter([Pause()], deaf=1, rung_s=0.3)
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[LIMIT])
        await anyio.sleep(0.25)
        await handle.cancel(by="ana")
        with pytest.raises(PolicyViolationError, match="200 ms") as raised:
            await handle.wait()
    ends = [event for event in raised.value.partial.events if isinstance(event, ev.TERMINAL)]

    assert raised.value.rule == "max_duration_ms"
    assert [getattr(end, "by", None) for end in ends] == [""]


@pytest.mark.anyio
async def test_an_error_names_the_violation_that_ended_the_run_and_the_earlier_calls() -> None:
    """Not the run's first violation, which only warned."""
    rules = (
        Deny(("noisy",), action="warn", reason="not this"),
        Deny(("bash",), action="cancel", id="no-bash", reason="security:shell"),
    )
    policy = Policy(name="p", tool_rules=rules)
    store = MemoryStore()
    await run_once(FakeAdapter([Ask(name="read", id="c0")]), "go", policies=[policy], store=store, session_id="s")
    agent = FakeAdapter([Ask(name="noisy", id="c1"), Ask(name="bash", id="c2", input={"command": "ls"})])
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(agent, "go", policies=[policy], store=store, session_id="s")
    error: Any = raised.value

    assert error.violations[0].tool_name == "noisy"
    assert (error.rule, error.reason, error.violation.tool_name) == ("no-bash", "security:shell", "bash")
    assert [(call.id, call.name) for call in error.calls_before] == [("c0", "read")]
    assert [call.name for call in error.partial.calls] == ["noisy", "bash"]


def test_an_error_of_preflight_names_the_rule() -> None:
    """Nothing ran, and there is no violation."""
    from proctor.policies import merge_policies, preflight

    with pytest.raises(PolicyViolationError) as raised:
        preflight(merge_policies([Policy(name="p", limits=Limits(max_total_tokens=0))])).check()

    assert (raised.value.rule, raised.value.violation, raised.value.reason) == ("max_total_tokens", None, None)
    assert raised.value.calls_before == ()


@pytest.mark.parametrize(("action", "unpreventable", "kind", "holds", "loose"), [
    ("cancel", None, "deny", "cancel", "cancel"),
    ("cancel", "warn", "deny", "cancel", "cancel"),
    ("request_approval", None, "deny", "signal", "signal"),
    ("warn", None, "deny", "record", "record"),
    ("deny", None, "deny", "escalate", "escalate"),
    ("deny", "cancel", "deny", "escalate", "escalate"),
    ("deny", "warn", "deny", "record", "record"),
    *(("deny", None, kind, "record" if kind == "circuit_breaker" else "escalate", "escalate") for kind in RULES),
    *(("deny", None, limit, "record", "escalate") for limit in sorted(LIMITS)),
])  # fmt: skip
def test_a_violation_found_after_its_call_is_enforced_as_far_as_possible(
    action: Any, unpreventable: Any, kind: str, holds: str, loose: str
) -> None:
    """`deny` cancels the run, unless the policy says otherwise or the gate denies all later calls anyway."""
    named: dict[str, Any] = {"policy": "p", "stack": "p", "rule": "r", "enforcement": "observed"}
    found = Violation(**named, kind=kind, action=action, unpreventable=unpreventable)

    assert (reach(found, gates_all=True), reach(found, gates_all=False)) == (holds, loose)


@pytest.mark.parametrize(("gate", "goes_on"), [("all", True), ("some", False), ("none", False)])
async def test_a_limit_that_denies_cancels_a_run_unless_every_call_is_held(gate: str, goes_on: bool) -> None:
    """A later call might not be denied."""
    limited = Policy(name="p", limits=Limits(max_total_tokens=Limit(max=10, action="deny")))
    steps: list[Step] = [
        ev.TokenUsageUpdated(input_tokens=11),
        Pause(0.01),
        ev.MessageReceived(content="still there"),
    ]
    try:
        events = (await run_once(FakeAdapter(steps, gate=gate), "go", policies=[limited])).events
    except PolicyViolationError as error:
        events = error.partial.events
    later = [event for event in events if isinstance(event, ev.MessageReceived)]

    assert bool(later) == goes_on


def test_only_the_latest_denied_calls_are_remembered() -> None:
    """A call that is proposed again does not count as denied any more."""
    monitor = compile_policy(Policy(name="p")).monitor()
    ids = [f"c{n}" for n in range(DENIED_KEPT)]
    for id in [*ids, "one more"]:
        monitor.observe(ev.ToolCallRequested(tool_call_id=id, tool_name="read", tool_input={}))
        monitor.observe(ev.ToolCallDenied(tool_call_id=id, tool_name="read"))
    monitor.observe(ev.ToolCallRequested(tool_call_id="c5", tool_name="read", tool_input={}))

    assert [*monitor.calls.session.denied] == [*(id for id in ids if id not in ("c0", "c5")), "one more"]
