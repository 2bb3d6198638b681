"""`check`: a rule written in Python. Not part of policy files."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from ..language.conditions import when_problems
from ..language.selectors import Scope, Selector, selector_problems
from ..stream.calls import ToolCall
from ..values.complaints import Complaint
from .machine import Call, Finding, Machine, State, slots_of
from .record import Drawing, Roles, Rule
from .wording import names

Answer: TypeAlias = bool | str | None
"""None or True: the call may run. False, or a text that says why: it may not."""
CheckFunction: TypeAlias = Callable[[ToolCall], Answer | Awaitable[Answer]]


class Check(Rule, tag="check", frozen=True):
    """Asks a callable about each call of `tool`; one that raises denies.

    An `async def` runs outside the monitor: its answers are handed to `propose(call, checks={id: answer})`.
    """

    check: CheckFunction
    tool: Selector = "*"

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        yield from when_problems(self.when)
        yield from selector_problems(self.tool, ("tool",))
        if self.key is not None:
            yield ("key",), "a `check` rule has no `key`: it keeps no state"

    def compile(self, scope: Scope) -> Machine:
        """The machine that judges this rule."""
        return CheckMachine(self, scope)

    def roles(self) -> Roles:
        """It may refuse its tool's calls."""
        return Roles(restricts=(self.tool,))

    def words(self) -> str:
        """What it says."""
        return f"{names(self.tool)} as a function says"

    def owes(self) -> None:
        """Nothing."""

    def outline(self) -> tuple[Rule, ...]:
        """Nobody knows what the callable will say."""
        return ()

    def drawing(self) -> Drawing:
        """Nothing; it is said in words."""
        return ()


class CheckMachine(Machine):
    """A callable as a rule; `rule_id` is set by the compiler."""

    kind = "check"
    restricts = 1
    rule_id = ""

    def __init__(self, rule: Check, scope: Scope) -> None:
        self.slots = slots_of(scope, (rule.tool, False))
        self.check: CheckFunction = rule.check
        self.is_async = any(map(inspect.iscoroutinefunction, (rule.check, type(rule.check).__call__)))

    def judge(self, state: State, call: Call, mask: int, now: int) -> Finding | None:
        """Refuse what the callable refuses."""
        if not self.is_async:
            return self._finding(self.check(ToolCall(id=call.id, name=call.name, input=call.input, turn=call.turn)))
        if call.observed and self.rule_id not in call.answers:
            return None
        answer = call.answers.get(self.rule_id, "the check was not asked")
        if isinstance(answer, BaseException):
            raise answer
        return self._finding(answer)

    def _finding(self, answer: Any) -> Finding | None:
        if answer is None or answer is True:
            return None
        why = answer if isinstance(answer, str) else "the check refused"
        return Finding("the check to agree", why)
