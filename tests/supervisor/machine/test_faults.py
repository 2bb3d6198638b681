"""A judge that raises: the run fails of it, is cancelled once, asks the judge no more, and comes to its end."""

from typing import Any

import pytest

from proctor.policies import Check, Deny, Policy, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.policies.limits import Limit, Limits
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import AnswerGate, CancelAdapter, Effect, Finish, RequestApproval, RunChecks
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.stored_types import ApprovalAnswer

STOP = interface.CancelAsked(now_ms=2, reason="no")
OF_THE_JUDGE = ("observe", "decide", "tick", "warnings", "finish")


class Run:
    """A run whose judge raises from a step on; its record is durable at once."""

    def __init__(self, policy: Policy | None = None) -> None:
        (usual,) = parse_policies({"version": 1, "name": "p", "limits": {"max_turns": {"max": 9, "warn_at": 0.5}}})
        self.judge = compile_policy(merge_policies([policy or usual])).monitor(RunContext())
        self.machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), self.judge)
        self.events: list[ev.Event] = []
        self.commands: list[Effect] = []
        self.judgements = 0
        self.tell(interface.Begin(now_ms=1, prompt="go"))

    def tell(self, input: interface.Input) -> None:
        self.commands += self.machine.handle(input)
        self.events += self.machine.drain_record()
        self.commands += self.machine.handle(interface.Stored(now_ms=1, count=len(self.events)))

    def breaks(self, *names: str) -> None:
        """From now on the judge raises when it is asked so; only counted otherwise."""
        for name in OF_THE_JUDGE:
            usual = getattr(self.judge, name)

            def ask(*given: Any, name: str = name, usual: Any = usual) -> Any:
                self.judgements += 1
                if name in names:
                    raise ValueError("boom")
                return usual(*given)

            setattr(self.judge, name, ask)

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.commands if isinstance(command, kind)]


@pytest.mark.parametrize("name", ["observe", "decide", "tick"])
def test_a_judge_that_raises_is_asked_no_more_and_the_run_fails_of_it(name: str) -> None:
    """Cancelled once, whatever comes later; its end says what was raised."""
    run = Run()
    run.breaks(name)
    steps: dict[str, interface.Input] = {
        "observe": interface.Reported(now_ms=2, event=ev.MessageReceived(content="hey")),
        "decide": interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read")),
        "tick": interface.Ticked(now_ms=2),
    }
    run.tell(steps[name])
    judged = run.judgements
    run.tell(interface.Reported(now_ms=3, event=ev.MessageReceived(content="more")))
    run.tell(interface.Reported(now_ms=3, event=ev.RunCompleted(output="done")))
    run.tell(interface.AdapterEnded(now_ms=4))
    (finish,) = run.of(Finish)

    assert run.judgements == judged
    assert [command.reason for command in run.of(CancelAdapter)] == ["evaluation failed: boom"]
    assert (finish.outcome.status, str(finish.outcome.error)) == ("failed", "boom")
    assert [event.type for event in run.events].count("run_failed") == 1
    assert run.events[-1].type == "run_failed"


def test_calls_are_still_told_apart_after_a_judge_has_raised() -> None:
    """What the agent reports twice is on record once; the outcome of a call that never ran is not."""
    run = Run()
    run.breaks("tick")
    run.tell(interface.Ticked(now_ms=2))
    names: dict[str, Any] = {"tool_call_id": "c", "tool_name": "read"}
    of_another: dict[str, Any] = {"tool_call_id": "d", "tool_name": "read"}
    reported: list[ev.Event] = [
        *(ev.ToolCallRequested(**names), ev.ToolCallRequested(**names)),
        *(ev.ToolCallStarted(**names), ev.ToolCallStarted(**names), ev.ToolCallCompleted(**names)),
        *(ev.ToolCallRequested(**of_another), ev.ToolCallDenied(**of_another), ev.ToolCallCompleted(**of_another)),
    ]
    for event in reported:
        run.tell(interface.Reported(now_ms=3, event=event))
    calls = [
        (event.tool_call_id, event.type) for event in run.events if isinstance(event, ev.ToolEvent | ev.ToolOutcome)
    ]

    assert calls == [
        *(("c", "tool_call_requested"), ("c", "tool_call_started"), ("c", "tool_call_completed")),
        *(("d", "tool_call_requested"), ("d", "tool_call_denied")),
    ]


@pytest.mark.parametrize("name", ["finish", "observe", "warnings"])
def test_a_judge_that_raises_at_the_end_ends_the_run_all_the_same(name: str) -> None:
    """As failed, once; nobody is left to cancel."""
    run = Run()
    run.tell(interface.Reported(now_ms=3, event=ev.RunCompleted(output="done")))
    run.breaks(name)
    run.tell(interface.AdapterEnded(now_ms=4))
    (finish,) = run.of(Finish)

    assert run.of(CancelAdapter) == []
    assert (finish.outcome.status, str(finish.outcome.error)) == ("failed", "boom")
    assert [event.type for event in run.events][-1] == "run_failed"


def test_a_rule_that_raises_is_on_record_by_its_name() -> None:
    """The call is refused, and the run goes on."""

    def check(call: ToolCall) -> bool:
        raise ValueError("boom")

    run = Run(Policy(name="p", on_violation="deny", rules=(Check(check=check, tool="*", id="mine"),)))
    run.tell(interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read")))
    (error,) = [event for event in run.events if isinstance(event, ev.ErrorOccurred)]

    assert (error.code, error.message) == ("rule_failed", "rules that raised: `mine`")
    assert run.of(CancelAdapter) == []


@pytest.mark.parametrize("gone", [interface.Withdrawn(now_ms=2, key=1, call_id="c"), STOP])
def test_nobody_is_asked_about_a_call_that_waits_no_more_when_it_is_on_record(gone: interface.Input) -> None:
    """The store was slow; meanwhile the call was given up, or the run was cancelled."""
    run = Run(Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),)))
    proposed = interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read"))
    commands = [*run.machine.handle(proposed), *run.machine.handle(gone)]
    run.events += run.machine.drain_record()
    commands += run.machine.handle(interface.Stored(now_ms=3, count=len(run.events)))

    assert not [command for command in commands if isinstance(command, RequestApproval)]
    assert run.machine.requests == []
    assert [event.type for event in run.events if event.type.startswith("tool_approval")] == [
        "tool_approval_requested",
        "tool_approval_expired",
    ]


def test_nothing_is_recorded_after_the_end() -> None:
    """Not even a warning that its own moment brings."""
    run = Run(Policy(name="p", limits=Limits(max_duration_ms=Limit(max=10_000, warn_at=0.5))))
    run.tell(interface.AdapterEnded(now_ms=9_000))

    assert [event.type for event in run.events][-1].startswith("run_")


@pytest.mark.parametrize("gone", [interface.Withdrawn(now_ms=2, key=1, call_id="c"), STOP])
def test_a_check_that_answers_too_late_lets_nothing_run(gone: interface.Input) -> None:
    """Its call was given up, or refused as the run was cancelled, and the store has not said so yet."""

    async def check(call: ToolCall) -> bool:
        return True

    run = Run(Policy(name="p", on_violation="deny", rules=(Check(check=check, tool="*", id="mine"),)))
    proposed = interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read"))
    commands = [*run.machine.handle(proposed)]
    (checks,) = (command for command in commands if isinstance(command, RunChecks))
    commands += run.machine.handle(gone)
    commands += run.machine.handle(
        interface.Checked(now_ms=3, key=1, answers={name: True for name, _ in checks.checks})
    )
    run.events += run.machine.drain_record()
    commands += run.machine.handle(interface.Stored(now_ms=3, count=len(run.events)))

    assert not any(isinstance(event, ev.ToolCallStarted) for event in run.events)
    assert [c.answer.allowed for c in commands if isinstance(c, AnswerGate)] in ([], [False])


def test_an_answer_that_comes_after_the_end_is_not_recorded_behind_it() -> None:
    """Of a call that ran before anybody could be asked."""
    run = Run(Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),)))
    run.tell(interface.Reported(now_ms=2, event=ev.ToolCallStarted(tool_call_id="c", tool_name="read")))
    (request,) = [event for event in run.events if isinstance(event, ev.ToolApprovalRequested)]
    run.tell(interface.AdapterEnded(now_ms=3))
    yes = ApprovalAnswer(granted=True, by="ana")
    run.tell(interface.ApprovalAnswered(now_ms=4, approval_id=request.approval_id, answer=yes))

    assert isinstance(run.events[-1], ev.TERMINAL)


def test_a_limit_that_only_the_end_exceeds_refuses_the_result() -> None:
    """No later call is there to be refused in its place."""
    run = Run(Policy(name="p", on_violation="deny", limits=Limits(max_duration_ms=Limit(max=1_000, action="deny"))))
    run.tell(interface.Reported(now_ms=2, event=ev.RunCompleted(output="done")))
    run.tell(interface.AdapterEnded(now_ms=5_000))
    (finish,) = run.of(Finish)
    (violated,) = [event for event in run.events if isinstance(event, ev.PolicyViolated)]

    assert (violated.kind, violated.escalated) == ("max_duration_ms", True)
    assert (finish.outcome.status, finish.outcome.refused) == ("completed", True)
    assert run.of(CancelAdapter) == []


def test_a_yes_without_a_name_is_recorded_as_nobody_s() -> None:
    """Not as one of which it is not known whether anybody said it."""
    call = ToolCall(id="c", name="read")
    policy = Policy(name="p", on_violation="request_approval", tool_rules=(Deny(("read",)),))
    yes = ev.ToolApprovalGranted(approval_id="q.1", tool_name="read", input_digest=input_digest(call.input))
    judge = compile_policy(merge_policies([policy])).monitor(RunContext())
    machine = RunMachine(
        RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), judge, earlier_grants=[yes]
    )
    machine.handle(interface.Begin(now_ms=1, prompt="go"))
    machine.handle(interface.Proposed(now_ms=2, key=1, call=call))
    (used,) = [event for event in machine.drain_record() if isinstance(event, ev.ToolApprovalGranted)]

    assert (used.by, used.covered_by) == ("", "q.1")
