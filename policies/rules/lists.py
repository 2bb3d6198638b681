"""`allowlist` and `blocklist`: which tools may be called at all; `allow` and `deny` of tool rules too."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ..language.selectors import ListedTools, NameScope, Slot, selector_problems
from ..values.model_base import Issue, Name
from .machine import Evaluate, EvaluatedCall, Finding, Machine, RuleState, listed
from .rule import KEYLESS, Profile, Rule, Statement, names


class ToolRule(Statement, frozen=True, kw_only=True):
    """The fields that allow and deny lists share.

    Attributes:
        id: The name in violations and reports; `deny-1`, `deny-2`, ... if not given.
        unpreventable: The action instead of `deny` if calls can't be held: `cancel` (the default) or `warn`.
    """

    id: Name | None = None
    unpreventable: Literal["warn", "cancel"] | None = None


class Allow(ToolRule, frozen=True):
    """Only these tools can be called. With several allow lists, a call must be on each.

    Attributes:
        tools: The tools.
    """

    tools: ListedTools = msgspec.field(name="allow")

    type = "allow"

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.tools:  # an empty allow list is preflight's to reject: a stack may be narrowed to nothing
            yield from selector_problems(self.tools, ("allow",))

    def profile(self) -> Profile:
        return _allows(self, self.tools)


class Deny(ToolRule, frozen=True):
    """These tools may not be called.

    Attributes:
        tools: The tools.
    """

    tools: ListedTools = msgspec.field(name="deny")

    type = "deny"

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from selector_problems(self.tools, ("deny",))

    def profile(self) -> Profile:
        return _denies(self, self.tools)


class Allowlist(Rule, tag="allowlist", frozen=True):
    """Only these tools may be called.

    Attributes:
        tools: The tools that may be called.
    """

    tools: ListedTools

    keyless = KEYLESS

    def profile(self) -> Profile:
        return _allows(self, self.tools)


class Blocklist(Rule, tag="blocklist", frozen=True):
    """These tools may not be called.

    Attributes:
        tools: The tools that may not be called.
    """

    tools: ListedTools

    keyless = KEYLESS

    def profile(self) -> Profile:
        return _denies(self, self.tools)


def _allows(record: Statement, tools: ListedTools) -> Profile:
    return Profile(words=f"only {names(tools)}", allows=(tools,), abstraction=(record,))


def _denies(record: Statement, tools: ListedTools) -> Profile:
    return Profile(words=f"no {names(tools)}", restricts=(tools,), abstraction=(record,))


class AllowlistMachine(Machine, evaluates=(Allow, Allowlist)):
    """A call is allowed by its own name or the portable names of everything it does; not by a virtual name, which
    says nothing about the rest of its input.
    """

    restricts_all = True
    every_call = True
    ALLOWS = 1

    def __init__(self, rule: Allow | Allowlist, scope: NameScope) -> None:
        self.slots = (Slot(rule.tools, scope, allows=True, virtual_names=(), every_act=True),)

    def compile_evaluate(self, mask: int) -> Evaluate | None:
        """None for the calls an entry allows: they are never denied."""
        return None if mask & self.ALLOWS else self.evaluate

    def evaluate(self, state: RuleState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        tools, only = self.slots[0].names, self.slots[0].conditions_on(call.names)
        if unlisted := self.slots[0].unlisted(call.names, call):
            return Finding(
                expected="a command line whose commands are all on the allow list",
                actual=f"`{call.name}` would run {_commands(unlisted)}, which the allow list does not name",
                details={"allowed": list(tools), "unlisted": unlisted},
                suggestion="do without it, or add it to the allow list",
                cause="input",
            )
        if only:
            return Finding(
                expected="an input that the allow list allows",
                actual=f"`{call.name}` is allowed only where {', or '.join(only)}",
                details={"allowed": list(tools), "conditions": self.slots[0].explained(call.names, call)},
                suggestion="change the input, or the conditions of the allow list",
                cause="input",
            )
        return Finding(
            expected=f"one of {listed(dict.fromkeys(tools))}" if tools else "no tool at all",
            actual=f"`{call.name}` is not in the allow list",
            details={"allowed": list(tools)},
            suggestion=f"add `{call.name}` to the allow list, or use one of its tools",
        )

    def denies_all(self, state: RuleState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return not maybe & self.ALLOWS


_SPECIAL = {"": "what is known only when it runs", "redirect": "a `redirect` into a file"}


def _commands(unlisted: Sequence[str]) -> str:
    return " and ".join(_SPECIAL.get(each, f"`{each}`") for each in unlisted)


class BlocklistMachine(Machine, evaluates=(Deny, Blocklist)):
    """A call is denied by any of its names."""

    restricts_all = True
    LISTED = 1

    def __init__(self, rule: Deny | Blocklist, scope: NameScope) -> None:
        self.slots = (Slot(rule.tools, scope, allows=False),)

    def evaluate(self, state: RuleState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        tools, why = self.slots[0].names, self.slots[0].met_by(call.names, call)
        met = self.slots[0].explained(call.names, call) if why else []
        return Finding(
            expected="no such call" if why else f"no call of {listed(tools)}",
            actual=f"`{call.name}` was requested{why}",
            details={"denied": list(tools), **({"conditions": met} if met else {})},
            cause="input" if why else "tool",
            suggestion=f"do without {'such a call' if why else f'`{call.name}`'}, or take it from the list",
        )

    def denies_all(self, state: RuleState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return bool(sure & self.LISTED)
