"""`allowlist` and `blocklist`: which tools may be called at all; `allow` and `deny` of tool rules too."""

from collections.abc import Sequence

from ..language.selectors import ListedTools, NameScope, Slot
from .machine import Evaluate, EvaluatedCall, Finding, Machine, RuleState, listed
from .rule import KEYLESS, Roles, Rule, itself, names


class Allowlist(Rule, tag="allowlist", frozen=True):
    """Only these tools may be called.

    Attributes:
        tools: The tools that may be called.
    """

    tools: ListedTools

    keyless = KEYLESS

    def compile(self, scope: NameScope) -> Machine:
        return AllowlistMachine(self.tools, scope)

    def roles(self) -> Roles:
        return Roles(admits=(self.tools,))

    def words(self) -> str:
        return f"only {names(self.tools)}"

    abstraction = itself


class Blocklist(Rule, tag="blocklist", frozen=True):
    """These tools may not be called.

    Attributes:
        tools: The tools that may not be called.
    """

    tools: ListedTools

    keyless = KEYLESS

    def compile(self, scope: NameScope) -> Machine:
        return BlocklistMachine(self.tools, scope)

    def roles(self) -> Roles:
        return Roles(restricts=(self.tools,))

    def words(self) -> str:
        return f"no {names(self.tools)}"

    abstraction = itself


class AllowlistMachine(Machine):
    """A call is admitted by its own name or the portable names of everything it does; not by a virtual name, which
    says nothing about the rest of its input.
    """

    restricts_all = True
    every_call = True
    ADMITS = 1

    def __init__(self, tools: ListedTools, scope: NameScope, kind: str = "allowlist") -> None:
        self.kind = kind
        self.slots = (Slot(tools, scope, permits=True, virtual_names=(), every_act=True),)

    def compile_evaluate(self, mask: int) -> Evaluate | None:
        """None for the calls an entry admits: they are never refused."""
        return None if mask & self.ADMITS else self.evaluate

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

    def refuses_all(self, state: RuleState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return not maybe & self.ADMITS


_SPECIAL = {"": "what is known only when it runs", "redirect": "a `redirect` into a file"}


def _commands(unlisted: Sequence[str]) -> str:
    return " and ".join(_SPECIAL.get(each, f"`{each}`") for each in unlisted)


class BlocklistMachine(Machine):
    """A call is refused by any of its names."""

    restricts_all = True
    LISTED = 1

    def __init__(self, tools: ListedTools, scope: NameScope, kind: str = "blocklist") -> None:
        self.kind = kind
        self.slots = (Slot(tools, scope, permits=False),)

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

    def refuses_all(self, state: RuleState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return bool(sure & self.LISTED)
