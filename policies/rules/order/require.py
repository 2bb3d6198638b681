"""`require`: a tool that must be called before the run ends."""

from __future__ import annotations

from ...language.selectors import NameScope, Selector
from ..machine import Finding, JudgedCall, Machine, listed, slots_of
from ..machine import RuleState as NoState
from ..record import KEYLESS, Note, Owed, Roles, Rule, itself
from ..wording import names


class Require(Rule, tag="require", frozen=True):
    """The tool must have been called by the end of the run.

    Attributes:
        tool: The call that must have come.
    """

    tool: Selector

    keyless = KEYLESS

    def roles(self) -> Roles:
        """It restricts the end of the run."""
        return Roles(restricts=(self.tool,))

    def unjudged(self) -> tuple[Selector, ...]:
        """Its calls prove that it is met."""
        return (self.tool,)

    def words(self) -> str:
        """The rule in words."""
        return f"{names(self.tool)} must be called"

    def owes(self) -> Owed | None:
        """One call."""
        return Owed(self.tool)

    outline = itself

    def drawing(self) -> tuple[Note, ...]:
        """A note in the tool's node."""
        return (Note(self.tool, "required"),)


class RequireState(NoState):
    """Whether the tool was called."""

    called: bool = False


class RequireMachine(Machine, judges=Require):
    """Satisfied by the first call, once and for all."""

    state_type = RequireState
    always_exercised = True

    def __init__(self, rule: Require, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, True))

    def started(self, state: RequireState, call: JudgedCall, mask: int, now: int) -> None:
        """The obligation is met."""
        state.called = True

    def settle(self, state: RequireState) -> Finding | None:
        """Violated if the tool was never called."""
        if state.called:
            return None
        tools = listed(self.slots[0].names)
        return Finding(f"a call of {tools}", f"{tools} was never called", suggestion=f"call {tools} before the end")
