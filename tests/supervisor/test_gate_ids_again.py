"""A call id proposed again: while its call waits or runs it is refused, and afterwards it names a new call."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageReceived,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import RunContext
from proctor.policies.limits import Limits
from proctor.policies.monitor.compiled_policy import compile_policy
from proctor.policies.policy import Deny, Policy
from proctor.policies.rules import Check
from proctor.policies.stack.merge import merge_policies
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import AnswerGate, Effect, RunChecks
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity

CALL = ToolCall(id="c", name="read")


async def never_called(call: ToolCall) -> Any:
    raise AssertionError("the machine only says that it is to be asked")


class Run:
    """A machine that was told to begin, with what it recorded and commanded; `store` makes it durable."""

    def __init__(self, *rules: Any, asks: bool = False) -> None:
        denies = (Deny(("*",), action="request_approval"),) if asks else ()
        policy = Policy(name="p", limits=Limits(max_tool_calls=9), rules=rules, tool_rules=denies)
        judge = compile_policy(merge_policies([policy])).monitor(RunContext())
        self.machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), judge)
        self.recorded: list[Event] = []
        self.commands: list[Effect] = []
        self.tell(interface.Begin(now_ms=1, prompt="go"))
        self.store()

    def tell(self, input: interface.Input) -> None:
        self.commands += self.machine.handle(input)
        self.recorded += self.machine.drain_record()

    def store(self) -> None:
        self.tell(interface.Stored(now_ms=1, count=len(self.recorded)))

    def propose(self, key: int, call: ToolCall = CALL) -> None:
        self.tell(interface.Proposed(now_ms=1, key=key, call=call))

    def withdraw(self, key: int) -> None:
        self.tell(interface.Withdrawn(now_ms=1, key=key, call_id=CALL.id))

    def answers(self) -> list[tuple[int, bool]]:
        return [(command.key, command.answer.allowed) for command in self.commands if isinstance(command, AnswerGate)]

    def failed(self) -> list[str]:
        return [event.tool_call_id for event in self.recorded if isinstance(event, ToolCallFailed)]


@pytest.mark.parametrize(
    "again", [CALL, ToolCall(id="c", name="write"), ToolCall(id="c", name="read", input={"n": 1})], ids=str
)
def test_an_id_whose_call_runs_is_refused(again: ToolCall) -> None:
    """Two executions under one id would count as one; and by its name alone another tool is another call."""
    run = Run()
    run.propose(1)
    run.store()
    run.propose(2, again)
    run.store()

    assert run.answers() == [(1, True), (2, False)]
    (error,) = [event for event in run.recorded if isinstance(event, ErrorOccurred)]
    other = "" if again is CALL else f" as `{again.name}` with another tool or input"
    assert (error.code, error.message) == ("call_id_reused", f"call `c` was requested again{other} while it runs")
    assert run.failed() == []


@pytest.mark.parametrize("rules", [[Check(check=never_called, tool="*", id="asked")], []], ids=["checked", "held"])
def test_an_id_whose_call_waits_is_refused(rules: list[Any]) -> None:
    """Whatever it waits for, a check or a person, the second answer never allows."""
    run = Run(*rules, asks=not rules)
    run.propose(1)
    run.store()
    run.propose(2)
    run.store()

    assert run.answers() == [(2, False)]
    assert CALL.id in run.machine.calls
    (error,) = [event for event in run.recorded if isinstance(event, ErrorOccurred)]
    assert error.message == "call `c` was requested again while it waits"


def test_an_id_whose_call_was_permitted_and_not_yet_answered_is_refused() -> None:
    """The record is not durable yet, and the call is taken all the same."""
    run = Run()
    run.propose(1)
    run.propose(2)
    run.store()

    assert run.answers() == [(1, True), (2, False)]


def test_an_outcome_that_a_provider_makes_up_frees_no_id_that_waits() -> None:
    """What was held has not run, so it has no outcome."""
    run = Run(asks=True)
    run.propose(1)
    run.tell(interface.Reported(now_ms=1, event=ToolCallCompleted(tool_call_id=CALL.id)))
    run.propose(2)
    run.store()

    assert run.answers() == [(2, False)]


@pytest.mark.parametrize("outcome", [ToolCallCompleted(tool_call_id="c"), ToolCallFailed(tool_call_id="c")])
def test_an_id_whose_call_is_over_names_a_new_call(outcome: Event) -> None:
    """Gateways number the calls of each response: it is asked for and judged like any other."""
    run = Run()
    run.propose(1)
    run.store()
    run.tell(interface.Reported(now_ms=1, event=outcome))
    run.propose(2, ToolCall(id="c", name="write"))
    run.store()

    assert [key for key, _ in run.answers()] == [1, 2]
    assert [event.tool_name for event in run.recorded if isinstance(event, ToolCallRequested)] == ["read", "write"]
    assert not any(isinstance(event, ErrorOccurred) for event in run.recorded)


def test_an_id_whose_call_was_refused_names_a_new_call() -> None:
    """A refusal is the end of a call, too."""
    run = Run(Check(check=never_called, tool="read", id="asked", action="deny"))
    run.propose(1)
    (checks,) = [command for command in run.commands if isinstance(command, RunChecks)]
    run.tell(interface.Checked(now_ms=1, key=checks.key, answers={name: False for name, _ in checks.checks}))
    run.propose(2, ToolCall(id="c", name="write"))
    run.store()

    assert [key for key, _ in run.answers()] == [1, 2]
    assert [event.tool_name for event in run.recorded if isinstance(event, ToolCallRequested)] == ["read", "write"]
    assert not any(isinstance(event, ErrorOccurred) for event in run.recorded)


@pytest.mark.parametrize("key", [2, 1])
def test_who_asks_again_and_goes_away_does_not_fail_the_call_that_runs(key: int) -> None:
    """It was allowed to somebody else; who goes away that it was allowed to fails it."""
    run = Run()
    run.propose(1)
    run.store()
    run.propose(2)
    run.store()
    run.withdraw(key)

    assert run.failed() == ([CALL.id] if key == 1 else [])


def test_a_cancel_refuses_who_asks_again_and_does_not_fail_the_call_that_runs() -> None:
    """How it ends, its client will say."""
    run = Run()
    run.propose(1)
    run.store()
    run.tell(interface.Reported(now_ms=1, event=MessageReceived(content="x")))
    run.propose(2)
    run.tell(interface.CancelAsked(now_ms=1, reason="enough"))
    run.store()

    assert run.answers() == [(1, True), (2, False)]
    assert run.failed() == []


def test_whoever_is_gone_ends_no_call_that_runs_without_having_been_asked_for() -> None:
    """The first was over when the provider began another under its id by itself."""
    run = Run()
    run.propose(1)
    run.store()
    run.tell(interface.Reported(now_ms=1, event=ToolCallCompleted(tool_call_id="c")))
    run.tell(interface.Reported(now_ms=1, event=ToolCallStarted(tool_call_id="c", tool_name="other")))
    run.withdraw(1)

    assert run.failed() == []
    assert CALL.id in run.machine.calls
