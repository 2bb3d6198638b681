"""If the monitor raises, the run fails: it is cancelled once, calls the monitor no more, and ends."""

from typing import Any

import pytest

from proctor.policies import Check, Deny, Policy, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.policies.limits import Limit, Limits
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import CancelAdapter, Effect, Finish, RequestApproval
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.stored_types import ApprovalAnswer

STOP = interface.CancelAsked(now_ms=2, reason="no")
MONITOR_METHODS = ("observe", "decide", "tick", "warnings", "finish")


class Run:
    """A run whose monitor raises from a step on. Its events are durable at once."""

    def __init__(self, policy: Policy | None = None) -> None:
        (usual,) = parse_policies({"version": 1, "name": "p", "limits": {"max_turns": {"max": 9, "warn_at": 0.5}}})
        self.monitor = compile_policy(merge_policies([policy or usual])).monitor(RunContext())
        self.machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), self.monitor)
        self.events: list[ev.Event] = []
        self.effects: list[Effect] = []
        self.monitor_calls = 0
        self.feed(interface.Begin(now_ms=1, prompt="go"))

    def feed(self, input: interface.Input) -> None:
        self.effects += self.machine.handle(input)
        self.events += self.machine.drain_record()
        self.effects += self.machine.handle(interface.Stored(now_ms=1, count=len(self.events)))

    def breaks(self, *names: str) -> None:
        """From now on, these methods of the monitor raise; calls of the others are only counted."""
        for name in MONITOR_METHODS:
            usual = getattr(self.monitor, name)

            def ask(*given: Any, name: str = name, usual: Any = usual) -> Any:
                self.monitor_calls += 1
                if name in names:
                    raise ValueError("boom")
                return usual(*given)

            setattr(self.monitor, name, ask)

    def of(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


@pytest.mark.parametrize("name", ["observe", "decide", "tick"])
def test_a_monitor_that_raises_is_not_called_again_and_its_run_fails(name: str) -> None:
    """The agent is cancelled once, and the terminal event has the error."""
    run = Run()
    run.breaks(name)
    steps: dict[str, interface.Input] = {
        "observe": interface.Reported(now_ms=2, event=ev.MessageReceived(content="hey")),
        "decide": interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read")),
        "tick": interface.Ticked(now_ms=2),
    }
    run.feed(steps[name])
    calls_before = run.monitor_calls
    run.feed(interface.Reported(now_ms=3, event=ev.MessageReceived(content="more")))
    run.feed(interface.Reported(now_ms=3, event=ev.RunCompleted(output="done")))
    run.feed(interface.AdapterEnded(now_ms=4))
    (finish,) = run.of(Finish)

    assert run.monitor_calls == calls_before
    assert [effect.reason for effect in run.of(CancelAdapter)] == ["evaluation failed: boom"]
    assert (finish.outcome.status, str(finish.outcome.error)) == ("failed", "boom")
    assert [event.type for event in run.events].count("run_failed") == 1
    assert run.events[-1].type == "run_failed"


def test_calls_are_still_distinguished_after_the_monitor_has_raised() -> None:
    """A duplicate report is recorded once. The outcome of a call that never ran is not recorded."""
    run = Run()
    run.breaks("tick")
    run.feed(interface.Ticked(now_ms=2))
    names: dict[str, Any] = {"tool_call_id": "c", "tool_name": "read"}
    of_another: dict[str, Any] = {"tool_call_id": "d", "tool_name": "read"}
    reported: list[ev.Event] = [
        *(ev.ToolCallRequested(**names), ev.ToolCallRequested(**names)),
        *(ev.ToolCallStarted(**names), ev.ToolCallStarted(**names), ev.ToolCallCompleted(**names)),
        *(ev.ToolCallRequested(**of_another), ev.ToolCallDenied(**of_another), ev.ToolCallCompleted(**of_another)),
    ]
    for event in reported:
        run.feed(interface.Reported(now_ms=3, event=event))
    calls = [
        (event.tool_call_id, event.type) for event in run.events if isinstance(event, ev.ToolEvent | ev.ToolOutcome)
    ]

    assert calls == [
        *(("c", "tool_call_requested"), ("c", "tool_call_started"), ("c", "tool_call_completed")),
        *(("d", "tool_call_requested"), ("d", "tool_call_denied")),
    ]


@pytest.mark.parametrize("name", ["finish", "observe", "warnings"])
def test_a_monitor_that_raises_at_the_end_fails_the_run(name: str) -> None:
    """Once; there is no agent left to cancel."""
    run = Run()
    run.feed(interface.Reported(now_ms=3, event=ev.RunCompleted(output="done")))
    run.breaks(name)
    run.feed(interface.AdapterEnded(now_ms=4))
    (finish,) = run.of(Finish)

    assert run.of(CancelAdapter) == []
    assert (finish.outcome.status, str(finish.outcome.error)) == ("failed", "boom")
    assert [event.type for event in run.events][-1] == "run_failed"


def test_a_rule_that_raises_is_recorded_by_its_id() -> None:
    """Its call is denied, and the run continues."""

    def check(call: ToolCall) -> bool:
        raise ValueError("boom")

    run = Run(Policy(name="p", on_violation="deny", rules=(Check(check=check, tool="*", id="mine"),)))
    run.feed(interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read")))
    (error,) = [event for event in run.events if isinstance(event, ev.ErrorOccurred)]

    assert (error.code, error.message) == ("rule_failed", "rules that raised: `mine`")
    assert run.of(CancelAdapter) == []


@pytest.mark.parametrize("gone", [interface.Withdrawn(now_ms=2, key=1, call_id="c"), STOP])
def test_no_approval_is_requested_for_a_call_that_is_gone_when_its_event_is_durable(gone: interface.Input) -> None:
    """The store was slow. Meanwhile the call was withdrawn, or the run was cancelled."""
    run = Run(Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),)))
    proposed = interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read"))
    effects = [*run.machine.handle(proposed), *run.machine.handle(gone)]
    run.events += run.machine.drain_record()
    effects += run.machine.handle(interface.Stored(now_ms=3, count=len(run.events)))

    assert not [effect for effect in effects if isinstance(effect, RequestApproval)]
    assert run.machine.requests == []
    assert [event.type for event in run.events if event.type.startswith("tool_approval")] == [
        "tool_approval_requested",
        "tool_approval_expired",
    ]


def test_nothing_is_recorded_after_the_end() -> None:
    """Not even a warning that became due at that moment."""
    run = Run(Policy(name="p", limits=Limits(max_duration_ms=Limit(max=10_000, warn_at=0.5))))
    run.feed(interface.AdapterEnded(now_ms=9_000))

    assert [event.type for event in run.events][-1].startswith("run_")


def test_an_answer_after_the_end_is_not_recorded() -> None:
    """Its call ran before anybody could be asked."""
    run = Run(Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),)))
    run.feed(interface.Reported(now_ms=2, event=ev.ToolCallStarted(tool_call_id="c", tool_name="read")))
    (request,) = [event for event in run.events if isinstance(event, ev.ToolApprovalRequested)]
    run.feed(interface.AdapterEnded(now_ms=3))
    yes = ApprovalAnswer(granted=True, by="ana")
    run.feed(interface.ApprovalAnswered(now_ms=4, approval_id=request.approval_id, answer=yes))

    assert isinstance(run.events[-1], ev.TERMINAL)


def test_a_limit_that_only_the_end_exceeds_is_enforced_on_the_result() -> None:
    """There is no later call to deny instead."""
    run = Run(Policy(name="p", on_violation="deny", limits=Limits(max_duration_ms=Limit(max=1_000, action="deny"))))
    run.feed(interface.Reported(now_ms=2, event=ev.RunCompleted(output="done")))
    run.feed(interface.AdapterEnded(now_ms=5_000))
    (finish,) = run.of(Finish)
    (violated,) = [event for event in run.events if isinstance(event, ev.PolicyViolated)]

    assert (violated.kind, violated.escalated) == ("max_duration_ms", True)
    assert (finish.outcome.status, finish.outcome.refused) == ("completed", True)
    assert run.of(CancelAdapter) == []


def test_an_approval_without_a_name_is_recorded_as_anonymous() -> None:
    """Not as one whose author is unknown."""
    call = ToolCall(id="c", name="read")
    policy = Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),))
    yes = ev.ToolApprovalGranted(approval_id="q.1", tool_name="read", input_digest=input_digest(call.input))
    monitor = compile_policy(merge_policies([policy])).monitor(RunContext())
    machine = RunMachine(
        RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), monitor, earlier_grants=[yes]
    )
    machine.handle(interface.Begin(now_ms=1, prompt="go"))
    machine.handle(interface.Proposed(now_ms=2, key=1, call=call))
    (used,) = [event for event in machine.drain_record() if isinstance(event, ev.ToolApprovalGranted)]

    assert (used.by, used.covered_by) == ("", "q.1")
