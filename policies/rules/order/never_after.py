"""`never_after` and `forbids_after`: calls that close the way to others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ...language.record import Name
from ...language.selectors import NameScope, Selector, ToolWhere
from ..machine import Ahead, Finding, JudgedCall, Machine, listed, slots_of
from ..machine import RuleState as NoState
from ..record import Cap, Link, Roles, Rule, owes_nothing
from ..wording import names

TRIGGER, FORBIDDEN = 1, 2


class NeverAfter(Rule, tag="never_after", frozen=True):
    """No `forbidden` call once a `trigger` started, whatever became of it.

    Attributes:
        trigger: The calls after which it is forbidden.
        forbidden: The calls that are forbidden from then on.
    """

    trigger: Selector
    forbidden: Selector

    def compile(self, scope: NameScope) -> Machine:
        """The machine that judges this rule."""
        return NeverAfterMachine(scope, self.trigger, self.forbidden, "never_after", lifted_by_failure=False)

    def roles(self) -> Roles:
        """It may refuse what is forbidden."""
        return Roles(restricts=(self.forbidden,), others=(self.trigger,))

    def words(self) -> str:
        """The rule in words."""
        return f"no {names(self.forbidden)} after {names(self.trigger)}"

    owes = owes_nothing

    def caps(self) -> Iterator[Cap]:
        """A call that forbids itself comes once."""
        yield Cap((self.trigger, self.forbidden), 1, "started", each=True)

    def outline(self) -> tuple[Rule, ...]:
        """The rule itself; with a key, another value will do."""
        return (self,) if self.key is None else ()

    def drawing(self) -> tuple[Link, ...]:
        """An arrow from the trigger to what is forbidden."""
        return (Link("never after", (self.trigger,), self.forbidden, forbidden=True),)


class ForbidsAfter(Rule, tag="forbids_after", frozen=True):
    """Once `tool` starts, `tools` are forbidden for the rest of the session; lifted if each such call failed.

    Attributes:
        tool: The call that forbids.
        tools: What it forbids.
    """

    tool: Selector
    tools: Sequence[Name | ToolWhere]

    def compile(self, scope: NameScope) -> Machine:
        """The machine that judges this rule."""
        return NeverAfterMachine(scope, self.tool, self.tools, "forbids_after", lifted_by_failure=True)

    def roles(self) -> Roles:
        """It may refuse what is forbidden."""
        return Roles(restricts=(self.tools,), others=(self.tool,))

    def words(self) -> str:
        """The rule in words."""
        return f"no {names(self.tools)} after {names(self.tool)}"

    owes = owes_nothing

    def caps(self) -> Iterator[Cap]:
        """A call that forbids itself comes once."""
        yield Cap((self.tool, self.tools), 1, "completed", each=True)

    def outline(self) -> tuple[Rule, ...]:
        """The rule itself; with a key, another value will do."""
        return (self,) if self.key is None else ()

    def drawing(self) -> tuple[Link, ...]:
        """An arrow from the trigger to what is forbidden."""
        return (Link("forbids", (self.tool,), self.tools, forbidden=True),)


class NeverAfterState(NoState):
    """How many triggering calls stand: started, and not failed where failure lifts the ban."""

    standing: int = 0


class NeverAfterMachine(Machine):
    """Counts the triggers that stand."""

    state_type = NeverAfterState
    restricts = FORBIDDEN
    starts = TRIGGER

    def __init__(
        self, scope: NameScope, trigger: Selector, forbidden: Selector, kind: str, *, lifted_by_failure: bool
    ) -> None:
        self.kind = kind
        self.slots = slots_of(scope, (trigger, False), (forbidden, False))
        self.lifted_by_failure = lifted_by_failure
        self.outcomes = TRIGGER if lifted_by_failure else 0

    def judge(self, state: NeverAfterState, call: JudgedCall, mask: int, now: int) -> Finding | None:
        """Refuse a forbidden call while a trigger stands."""
        if not state.standing:
            return None
        trigger = listed(self.slots[0].names)
        return Finding(
            expected=f"no {listed(self.slots[1].names)} after {trigger}",
            actual=f"`{call.name}` was requested after {trigger}",
            details={"trigger": list(self.slots[0].names)},
            suggestion=f"call `{call.name}` before {trigger}, or not at all",
        )

    def started(self, state: NeverAfterState, call: JudgedCall, mask: int, now: int) -> None:
        """A trigger stands."""
        state.standing += 1

    def failed(self, state: NeverAfterState, call: JudgedCall, mask: int) -> Finding | None:
        """A trigger that failed does not stand where failure lifts the ban."""
        if self.lifted_by_failure and mask & TRIGGER:
            state.standing -= 1
        return None

    def seen_from(self, state: NeverAfterState, now: int) -> Hashable:
        """Whether a trigger stands."""
        return state.standing > 0

    def closed(self, state: NeverAfterState, sure: int, maybe: int, now: int, ahead: Ahead) -> bool:
        """A trigger stands."""
        return bool(sure & FORBIDDEN) and state.standing > 0
