"""What a permit costs does not depend on what was found before it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.policies.events import ToolCallCompleted
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import RunContext
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import AnswerGate, Effect
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity

WARNS = {"name": "p", "tool_rules": [{"deny": ["noisy"], "action": "warn"}]}


class Run:
    """A run in which every call of `noisy` is a warning, and whose record is durable at once."""

    def __init__(self) -> None:
        judge = compile_policy(merge_policies(parse_policies(WARNS))).monitor(RunContext())
        self._machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), judge)
        self._stored = self._calls = 0
        self._tell(interface.Begin(now_ms=1, prompt="go"))

    def call(self, tool: str) -> list[bool]:
        """One call from its proposal to its end; whether it was permitted."""
        self._calls += 1
        proposed = ToolCall(id=f"c{self._calls}", name=tool)
        commands = self._tell(interface.Proposed(now_ms=1, key=self._calls, call=proposed))
        self._tell(interface.Reported(now_ms=1, event=ToolCallCompleted(tool_call_id=proposed.id)))
        return [each.answer.allowed for each in commands if isinstance(each, AnswerGate)]

    def _tell(self, input: interface.Input) -> list[Effect]:
        commands = [*self._machine.handle(input)]
        self._stored += len(self._machine.drain_record())
        return [*commands, *self._machine.handle(interface.Stored(now_ms=1, count=self._stored))]


def lines_of(run: Run) -> int:
    """How many lines of Python one quiet call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        permitted = run.call("quiet")
    finally:
        sys.settrace(before)
    assert permitted == [True]
    return count


def test_a_permit_takes_as_much_after_a_thousand_warnings_as_after_ten() -> None:
    """A noisy rule slows down no call that follows."""
    took = {}
    for warnings in (10, 1_000):
        run = Run()
        for _ in range(warnings):
            run.call("noisy")
        lines_of(run)  # what is looked up once is known then
        took[warnings] = lines_of(run)

    assert took[1_000] == took[10]
