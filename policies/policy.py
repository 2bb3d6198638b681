"""A policy as it is written: frozen records, with no behaviour but checks of their own consistency.

A record may have `problems()`: its errors beyond its types, as (path within the record, message) pairs. The reader
calls it and adds file, line and column; `compile_policy` calls it for policies made in Python. So each check is
written once, beside its record.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta

from .language.selectors import VirtualTool
from .limits import Budget, Limits
from .rules.lists import Allow as Allow
from .rules.lists import Deny as Deny
from .rules.net_shorthand import NetLine, net_of
from .rules.petri_net import Net
from .rules.rule import Rule
from .values.model_base import Amount, Base, Name, Record

OnViolation: TypeAlias = Literal["cancel", "deny", "request_approval", "warn"]


ApprovalScope: TypeAlias = Literal["once", "run", "session"]
SCOPES: tuple[str, ...] = get_args(ApprovalScope)
"""The scopes of an approval, narrowest first."""


class Approval(Record, frozen=True):
    """How long a call waits for an approval, what happens then, and who can answer.

    Attributes:
        timeout_s: Seconds that a call waits, at most 1,000,000,000.
        on_timeout: The action after that: `deny` the call, or `cancel` the run.
        approvers: Who can answer: names, and groups as `@name`; anyone if not given.
        four_eyes: If true, the person who started a run (`user` of its context) can't answer its requests.
        scope: The most that one approval can cover: `once`, that call; `run` or `session`, also later
            calls of the same tool that the same rules ask about, with the same `key`.
    """

    timeout_s: Annotated[float, Meta(gt=0, le=1e9)] = 900
    on_timeout: Literal["deny", "cancel"] = "deny"
    approvers: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    four_eyes: bool = False
    scope: ApprovalScope = "once"


class Price(Record, frozen=True):
    """A model's price.

    Attributes:
        input_usd_per_mtok: USD for a million tokens of input.
        output_usd_per_mtok: USD for a million tokens of output.
        cache_read_usd_per_mtok: USD for a million tokens of input read from the cache; as input if not given.
        cache_write_usd_per_mtok: USD for a million tokens of input written to the cache; as input if not given.
        reasoning_usd_per_mtok: USD for a million tokens of reasoning; as output if not given.
    """

    input_usd_per_mtok: Amount
    output_usd_per_mtok: Amount
    cache_read_usd_per_mtok: Amount | None = None
    cache_write_usd_per_mtok: Amount | None = None
    reasoning_usd_per_mtok: Amount | None = None

    @property
    def rates(self) -> tuple[float, ...]:
        """Of input, cache read, cache write, output and reasoning; what is not given is filled in."""
        into, out = self.input_usd_per_mtok, self.output_usd_per_mtok
        cached = (self.cache_read_usd_per_mtok, self.cache_write_usd_per_mtok)
        reasoning = self.reasoning_usd_per_mtok
        return (
            into,
            *(into if rate is None else rate for rate in cached),
            out,
            out if reasoning is None else reasoning,
        )


class Policy(Base, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, weakref=True):
    """One policy as written; None means not stated.

    Attributes:
        name: The policy's name, as violations show it.
        version: The version of the language: 1.
        description: For people.
        on_violation: The action for rules without one; `cancel` by default.
        locked: Later policies of a stack can't weaken it.
        enforcement: `required`: the run starts only if every call can be held; `best_effort` by default.
        limits: Hard caps.
        budgets: Amounts that runs share.
        tool_rules: Allow and deny lists.
        rules: Rules over the whole session.
        nets: Petri nets, whole or as one line of shorthand.
        virtual_tools: More names for calls whose input matches.
        aliases: Names that stand for several tools.
        approval: How long a held call waits for a person.
        prices: Prices by model.
        unpriced: The handling of a model without a price under a cap on cost: `warn`, or `reject` (the run does not
            start).
        metadata: Anything else, for people and for adapters.
    """

    name: Name
    version: Literal[1] = 1
    description: str | None = None
    on_violation: OnViolation | None = None
    locked: bool = False
    enforcement: Literal["best_effort", "required"] | None = None
    limits: Limits = Limits()
    budgets: Sequence[Budget] = ()
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
    """Several policies merged left to right; `members` keeps each as it was written.

    Attributes:
        members: Each policy as it was written, in the order of the stack.
    """

    members: tuple[Policy, ...] = ()


def members_of(policy: Policy) -> tuple[Policy, ...]:
    """The policies a policy is made of: a stack's members, or itself alone."""
    return policy.members if isinstance(policy, Stack) else (policy,)


def virtual_tools_of(policy: Policy) -> Iterator[VirtualTool]:
    """The virtual tools of a policy, those of its `map` lines among them."""
    yield from policy.virtual_tools
    yield from (made for net in policy.nets if isinstance(made := net_of(net), VirtualTool))
