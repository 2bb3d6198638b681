"""`check`: a rule written in Python. Not part of policy files."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from inspect import Parameter
from typing import Any, Literal, TypeAlias

import msgspec

from ..events.calls import ToolCall
from ..events.run_context import RunContext, Usage
from ..language.selectors import NameScope, Selector
from ..values.amounts import counted
from ..values.foreign_code import isolated
from ..values.model_base import Issue
from .machine import BOUND, EvaluatedCall, Finding, Machine, RuleState, ToolReturn, slots_of
from .rule import CheckAnswer, Profile, Rule, denial, names


class PastCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One earlier call of the session and its outcome.

    Attributes:
        id: The call's id.
        name: Its tool.
        input: Its arguments.
        turn: The turn that requested it, from 1.
        status: `running`, `completed`, `failed` or `denied`.
        output: The call's output as JSON, if it completed, or returned while a command that it started goes on.
    """

    id: str
    name: str
    input: dict[str, Any]
    turn: int
    status: Literal["running", "completed", "failed", "denied"] = "running"
    output: Any = None


class PastMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the session. Only the user's messages are evidence of what happened.

    Attributes:
        role: `user`, `assistant` or `system`.
        text: The text, without the other parts of the message.
    """

    role: str
    text: str


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the session when a call is evaluated.

    Attributes:
        calls: The session's calls so far, oldest first, without the current one.
        usage: The run's usage: tokens and USD.
        run: The run's context.
        turn: The current turn, from 1, counted through the session.
        messages: The messages, oldest first, at most 1,000,000 characters; the user's are kept first.
        messages_forgotten: How many messages were dropped.
    """

    calls: tuple[PastCall, ...]
    usage: Usage
    run: RunContext
    turn: int
    messages: tuple[PastMessage, ...] = ()
    messages_forgotten: int = 0


TOOL, ANY = 1, 2

CheckFunction: TypeAlias = (
    Callable[[ToolCall], CheckAnswer | Awaitable[CheckAnswer]]
    | Callable[[ToolCall, CheckContext], CheckAnswer | Awaitable[CheckAnswer]]
)


class Check(Rule, tag="check", frozen=True):
    """A rule in Python: a callable that takes the call, or the call and its context. If it raises, the call is
    denied.

    An `async def` runs outside the monitor: pass its answers as `propose(call, checks={id: answer})`.

    Attributes:
        check: The function that decides about a call.
        tool: The calls that it evaluates.
        narrows: Takes a tool's name and the context; False hides the tool from the model.
    """

    check: CheckFunction
    tool: Selector = "*"
    narrows: Callable[[str, CheckContext], bool] | None = None

    keyless = "it keeps no state"

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if callable(self.check) and _takes(self.check) is None:
            yield ("check",), "takes the call, or the call and its context, and nothing else it needs"
        if inspect.iscoroutinefunction(self.narrows):
            yield ("narrows",), "is asked at once: write it without `async`"

    def profile(self) -> Profile:
        return Profile(words=f"{names(self.tool)} as a function says", restricts=(self.tool,), own_action="cancel")


def _takes(check: Callable[..., Any]) -> int | None:
    """How many arguments a check takes, 1 or 2; None for neither."""
    try:
        signature = inspect.signature(check)
    except (TypeError, ValueError):  # written in C
        return 1
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    places = [p for p in signature.parameters.values() if p.kind in kinds]
    wants = sum(p.default is p.empty for p in places) > 1 or [p.name for p in places[1:2]] == ["context"]
    number = 2 if wants else 1
    try:
        signature.bind(*range(number))
    except TypeError:
        return None
    return number


def _context(state: CheckState, call: EvaluatedCall) -> CheckContext:
    words = call.memory.user_text
    return CheckContext(
        calls=tuple(state.calls),
        usage=msgspec.structs.replace(call.usage),
        run=call.context,
        turn=call.turn,
        messages=tuple(PastMessage(role=role, text=text) for role, text in words.messages),
        messages_forgotten=words.forgotten,
    )


class CheckState(RuleState):
    """The session's calls, for a check that reads them."""

    calls: list[PastCall] = []


class CheckMachine(Machine, evaluates=Check):
    """A callable as a rule; `rule_id` is set by the compiler."""

    state_type = CheckState
    restricts = TOOL
    hears_unfinished = True
    rule_id = ""

    def __init__(self, rule: Check, scope: NameScope) -> None:
        self.check: Callable[..., Any] = rule.check
        self.is_async = any(map(inspect.iscoroutinefunction, (rule.check, type(rule.check).__call__)))
        self.narrows = rule.narrows
        self._takes_context = _takes(rule.check) == 2
        self._remembers = self.reads_messages = self._takes_context or rule.narrows is not None
        self.slots = slots_of(scope, (rule.tool, False), *([("*", True)] if self._remembers else []))
        self.outcomes = ANY if self._remembers else 0
        self.starts = -1 if self._remembers else 0

    def bound_check(self, state: CheckState, call: EvaluatedCall) -> Callable[[ToolCall], Any]:
        """The check for a call: the call alone is passed, its context is bound."""
        if not self._takes_context:
            return self.check
        context = _context(state, call)
        return lambda tool_call: self.check(tool_call, context)

    def denies_all(self, state: CheckState, sure: int, maybe: int, now: int, ahead: Any) -> bool:
        """Whether `narrows` rules the tool out; no answer if it raises."""
        if self.narrows is None or not sure & TOOL:
            return False
        try:
            return isolated(self.narrows, ahead.name, _context(state, ahead)) is False
        except Exception:
            return False  # a tool that could still be called stays in sight, and the gate decides on its calls

    def evaluate(self, state: CheckState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        if len(state.calls) >= BOUND:
            return Finding("a session that a check can be told of", f"it has {counted(BOUND, 'call')}")
        if not self.is_async:
            return self._finding(isolated(self.bound_check(state, call), call.own))
        if call.observed and self.rule_id not in call.answers:
            return None
        answer = call.answers.get(self.rule_id, "the check was not asked")
        if isinstance(answer, BaseException):
            raise answer
        return self._finding(answer)

    def _finding(self, answer: Any) -> Finding | None:
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise TypeError("the check returned something to be awaited: write it with `async def`")
        return denial(answer, expected="the check to agree", otherwise="the check refused")

    def started(self, state: CheckState, call: EvaluatedCall, mask: int, now: int) -> None:
        self._note(state, PastCall(id=call.id, name=call.name, input=call.input, turn=call.turn))

    def completed(self, state: CheckState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        self._ended(state, call, "running" if output.unfinished else "completed", output.value)

    def failed(self, state: CheckState, call: EvaluatedCall, mask: int) -> Finding | None:
        self._ended(state, call, "failed")
        return None

    def denied(self, state: CheckState, call: EvaluatedCall, mask: int) -> Finding | None:
        past = PastCall(id=call.id, name=call.name, input=call.input, turn=call.turn, status="denied")
        self._note(state, past)
        return None

    def _note(self, state: CheckState, call: PastCall) -> None:
        if len(state.calls) < BOUND:
            state.calls.append(call)

    def _ended(self, state: CheckState, call: EvaluatedCall, status: str, output: Any = None) -> None:
        for n in reversed(range(len(state.calls))):
            past = state.calls[n]
            if past.id == call.id and past.status == "running":
                state.calls[n] = msgspec.structs.replace(past, status=status, output=output)
                return

    def describe(self, state: CheckState) -> str:
        return counted(len(state.calls), "call") if self._remembers else ""
