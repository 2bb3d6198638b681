"""A policy as it is written: frozen records, no behaviour but their own consistency.

A record may have `problems()`: what is wrong with it beyond its types, as (path within the record, message)
pairs. The reader calls it and adds file, line and column; `compile_policy` calls it for policies made in
Python. So a check is written once, beside the record it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .language.conditions import Condition, when_problems
from .language.record import Amount, Base, Name, Record
from .language.selectors import NameScope, ToolWhere, VirtualTool, selector_problems
from .rules.lists import AllowlistMachine, BlocklistMachine
from .rules.machine import Machine
from .rules.nets.shorthand import NetLine
from .rules.nets.written import Net
from .rules.record import Roles, Rule, RuleAction, Statement
from .rules.wording import names
from .values.complaints import Complaint

OnViolation: TypeAlias = Literal["cancel", "deny", "request_approval", "warn"]


class Allow(Statement, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Only these tools may be called; several allow lists must all admit a call."""

    tools: Sequence[Name | ToolWhere] = msgspec.field(name="allow")
    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None
    description: str | None = None
    when: tuple[Condition, ...] = ()
    id: Name | None = None

    def problems(self) -> Iterator[Complaint]:
        yield from when_problems(self.when)
        if self.tools:  # an empty allow list is preflight's to refuse: a stack may be narrowed to nothing
            yield from selector_problems(self.tools, ("allow",))

    def compile(self, scope: NameScope) -> Machine:
        """The machine that judges this list."""
        return AllowlistMachine(self.tools, scope, kind="allow")

    def roles(self) -> Roles:
        """It admits calls by their own names."""
        return Roles(admits=(self.tools,))

    def words(self) -> str:
        """What it says."""
        return f"only {names(self.tools)}"

    def owes(self) -> None:
        """Nothing."""


class Deny(Statement, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """These tools may not be called."""

    tools: Sequence[Name | ToolWhere] = msgspec.field(name="deny")
    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None
    description: str | None = None
    when: tuple[Condition, ...] = ()
    id: Name | None = None

    def problems(self) -> Iterator[Complaint]:
        yield from when_problems(self.when)
        yield from selector_problems(self.tools, ("deny",))

    def compile(self, scope: NameScope) -> Machine:
        """The machine that judges this list."""
        return BlocklistMachine(self.tools, scope, kind="deny")

    def roles(self) -> Roles:
        """What it lists it refuses."""
        return Roles(restricts=(self.tools,))

    def words(self) -> str:
        """What it says."""
        return f"no {names(self.tools)}"

    def owes(self) -> None:
        """Nothing."""


class Limit(Record, frozen=True):
    """A limit with more to say than its number; `scope: session` counts over all runs of the session."""

    max: Amount
    scope: Literal["run", "session"] = "run"
    warn_at: Annotated[float, Meta(gt=0, le=1)] | None = None
    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None


LimitValue: TypeAlias = Amount | Limit | None


class Limits(Record, frozen=True):
    """Hard caps, each `>= 0` and violated when used > max: tokens, USD, milliseconds, calls, responses."""

    max_total_tokens: LimitValue = None
    max_input_tokens: LimitValue = None
    max_output_tokens: LimitValue = None
    max_cost_usd: LimitValue = None
    max_duration_ms: LimitValue = None
    max_idle_ms: LimitValue = None
    max_tool_calls: LimitValue = None
    max_turns: LimitValue = None

    def given(self) -> Iterator[tuple[str, Limit]]:
        """The limits that are set, each as a full record."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Limit):
                yield name, value
            elif value is not None:
                yield name, Limit(max=value)


class Approval(Record, frozen=True):
    """How long a held call waits for a person (seconds), and what then."""

    timeout_s: Annotated[float, Meta(gt=0)] = 900
    on_timeout: Literal["deny", "cancel"] = "deny"


class Price(Record, frozen=True):
    """USD per million tokens; what is not given costs as input or output does."""

    input_usd_per_mtok: Amount
    output_usd_per_mtok: Amount
    cache_read_usd_per_mtok: Amount | None = None
    cache_write_usd_per_mtok: Amount | None = None
    reasoning_usd_per_mtok: Amount | None = None


class Policy(Base, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, weakref=True):
    """One policy as written; None means not stated.

    `on_violation` not stated is `cancel`, unless a stack says stricter; `enforcement` not stated is `best_effort`.
    """

    name: Name
    version: Literal[1] = 1
    description: str | None = None
    on_violation: OnViolation | None = None
    locked: bool = False
    enforcement: Literal["best_effort", "required"] | None = None
    limits: Limits = Limits()
    tool_rules: Sequence[Allow | Deny] = ()
    rules: Sequence[Rule] = ()
    nets: Sequence[str | NetLine | Net] = ()
    virtual_tools: Sequence[VirtualTool] = ()
    aliases: Mapping[Name, Sequence[Name]] = {}
    approval: Approval | None = None
    prices: dict[Name, Price] = {}
    unpriced: Literal["warn", "reject"] | None = None
    metadata: dict[str, Any] = {}


class Stack(Policy, frozen=True, kw_only=True):
    """Several policies merged left to right; `members` keeps each as it was written."""

    members: tuple[Policy, ...] = ()


def members_of(policy: Policy) -> tuple[Policy, ...]:
    """The policies a policy is made of: a stack's members, or itself alone."""
    return policy.members if isinstance(policy, Stack) else (policy,)
