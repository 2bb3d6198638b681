"""One call put to the gate twice, as clients with two hooks do: one answer for both, and the call runs once."""

from __future__ import annotations

from typing import Any

from proctor.policies.monitor.compiled import compile_policy
from proctor.policies.policy import Limits, Policy
from proctor.policies.rules import Check
from proctor.policies.stack.merge import merge_policies
from proctor.policies.stream.calls import RunContext, ToolCall
from proctor.policies.stream.events import Event, MessageReceived, ToolCallFailed
from proctor.supervisor.machine import inputs
from proctor.supervisor.machine.commands import Answer, Command, RunChecks
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import Identity

CALL = ToolCall(id="c", name="read")


async def asked(call: ToolCall) -> Any:
    raise AssertionError("the machine only says that it is to be asked")


class Run:
    """A machine that was told to begin, with what it recorded and commanded; `store` makes it durable."""

    def __init__(self, *rules: Any) -> None:
        policy = Policy(name="p", limits=Limits(max_tool_calls=9), rules=rules)
        judge = compile_policy(merge_policies([policy])).monitor(RunContext())
        self.machine = RunMachine(Identity(run_id="r", session_id="s", provider="x", gates_all=True), judge)
        self.recorded: list[Event] = []
        self.commands: list[Command] = []
        self.tell(inputs.Begin(now_ms=1, prompt="go"))
        self.store()

    def tell(self, told: inputs.Input) -> None:
        self.commands += self.machine.handle(told)
        self.recorded += self.machine.take_record()

    def store(self) -> None:
        self.tell(inputs.Stored(now_ms=1, count=len(self.recorded)))

    def propose(self, key: int) -> None:
        self.tell(inputs.Proposed(now_ms=1, key=key, call=CALL))

    def withdraw(self, key: int) -> None:
        self.tell(inputs.Withdrawn(now_ms=1, key=key, call_id=CALL.id))

    def answers(self) -> list[tuple[int, bool]]:
        return [(told.key, told.answer.allowed) for told in self.commands if isinstance(told, Answer)]

    def failed(self) -> list[str]:
        return [event.tool_call_id for event in self.recorded if isinstance(event, ToolCallFailed)]


def repeated_while_it_runs() -> Run:
    """The call runs, and the answer to who asks again waits for the record of something else."""
    run = Run()
    run.propose(1)
    run.store()
    run.tell(inputs.Reported(now_ms=1, event=MessageReceived(content="x")))
    run.propose(2)
    return run


def test_a_check_answers_those_who_still_wait_when_the_first_who_asked_has_gone() -> None:
    """Its answer is that of the call, whoever asked."""
    run = Run(Check(check=asked, tool="*", id="asked"))
    run.propose(1)
    run.propose(2)
    run.withdraw(1)
    (checks,) = [told for told in run.commands if isinstance(told, RunChecks)]
    run.tell(inputs.Checked(now_ms=1, key=checks.key, answers={name: True for name, _ in checks.checks}))
    run.store()

    assert run.answers() == [(2, True)]
    assert run.failed() == []


def test_who_asks_again_and_goes_away_does_not_fail_the_call_that_runs() -> None:
    """It was allowed to somebody else."""
    run = repeated_while_it_runs()
    run.withdraw(2)
    run.store()

    assert run.answers() == [(1, True)]
    assert run.failed() == []


def test_a_cancel_refuses_who_asks_again_and_does_not_fail_the_call_that_runs() -> None:
    """How it ends, its client will say."""
    run = repeated_while_it_runs()
    run.tell(inputs.CancelAsked(now_ms=1, reason="enough"))
    run.store()

    assert run.answers() == [(1, True), (2, False)]
    assert run.failed() == []
