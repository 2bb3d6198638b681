"""The answers: JSON records, each described at /openapi.json.

Texts of agents are passed on exactly; whoever displays them must make them safe to display.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from proctor.policies.errors import Violation
from proctor.policies.events.run_context import Usage
from proctor.policies.monitor.limit_checker import LimitUse

from .identities import Role


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""


class Me(View, frozen=True, kw_only=True):
    """Who the token belongs to, and what it allows."""

    name: str
    roles: tuple[Role, ...]
    groups: tuple[str, ...] = ()
    version: str = ""


class Healthy(View, frozen=True, kw_only=True):
    """The store can be read."""

    status: Literal["ok"] = "ok"


class RunLine(View, frozen=True, kw_only=True):
    """A run as a list shows it. Times are UTC, `usage` is what was reported so far, `waiting` counts the
    calls that wait for a person; `last_seq`, where only one
    run is asked for, is the place of its latest event.
    """

    run_id: str
    session_id: str
    provider: str
    status: str
    prompt: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    tenant: str | None = None
    labels: dict[str, Any] = {}
    usage: Usage = msgspec.field(default_factory=Usage)
    calls: int = 0
    violations: int = 0
    waiting: int = 0
    last_seq: int | None = None


class RunList(View, frozen=True, kw_only=True):
    """Runs, newest first; `next` is the `before` of the page after this one, None at the end."""

    runs: tuple[RunLine, ...]
    next: str | None = None


class EventList(View, frozen=True, kw_only=True):
    """Events in order, as they are stored; `next` is the `after` of the page after this one, None at the end."""

    events: tuple[dict[str, Any], ...]
    next: int | None = None


class CommandPart(View, frozen=True, kw_only=True):
    """One command of a command line; `exact` is false if the shell computes some of its words."""

    name: str
    argv: tuple[str, ...]
    command: str
    exact: bool = True
    reason: str = ""


class CommandLine(View, frozen=True, kw_only=True):
    """A command line, parsed as policies judge it; `dynamic` says why some of it cannot be seen."""

    line: str
    parts: tuple[CommandPart, ...]
    dynamic: str | None = None


class EditLine(View, frozen=True, kw_only=True):
    """A line of an edit: `mark` is `+`, `-`, `@` (a place) or blank."""

    mark: str
    text: str


class Edit(View, frozen=True, kw_only=True):
    """What an edit changes; `cut` counts lines that are left out here but are in the call's input. `rest` is the
    rest of its input.
    """

    path: str | None
    lines: tuple[EditLine, ...]
    cut: int = 0
    rest: dict[str, Any] = {}


class CallShown(View, frozen=True, kw_only=True):
    """A call made readable: `acts` are the portable names of what it does, `rest` is the part of its input that
    is not shown as a command or an edit.
    """

    acts: tuple[str, ...] = ()
    commands: tuple[CommandLine, ...] = ()
    edits: tuple[Edit, ...] = ()
    rest: dict[str, Any] = {}


class ApprovalView(View, frozen=True, kw_only=True):
    """A call that waits for a person, with its whole input. `held`: the call waits now; if false, a grant is for a
    later run.
    `state` is requested, granted, denied, expired or withdrawn.

    Send `input_digest` with the answer, so that what runs is what was shown. `scopes` are those that a grant may
    have. `approvers` lists who may answer, groups as `@name`; null means anybody. `started_by` may not answer.
    """

    approval_id: str
    run_id: str
    session_id: str
    tool_name: str
    tool_call_id: str
    tool_input: dict[str, Any]
    input_digest: str
    shown: CallShown
    policy: str
    kind: str
    reason: str | None = None
    violations: tuple[Violation, ...] = ()
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    held: bool = True
    state: str = "requested"
    answered_by: str | None = None
    answered_at: datetime | None = None
    answer_reason: str | None = None
    prompt: str = ""
    provider: str = ""
    approvers: tuple[str, ...] | None = None
    started_by: str | None = None
    scopes: tuple[str, ...] = ("once",)


class ApprovalList(View, frozen=True, kw_only=True):
    """Calls that wait, oldest first; `total` also counts those that are not on this page, up to 1,000."""

    approvals: tuple[ApprovalView, ...]
    total: int


class Answered(View, frozen=True, kw_only=True):
    """An answer that was taken."""

    approval_id: str
    answer: str
    by: str


class LimitList(View, frozen=True, kw_only=True):
    """The limits of a run, each with its use."""

    limits: tuple[LimitUse, ...]
    unpriced: tuple[str, ...] = ()


class BudgetView(View, frozen=True, kw_only=True):
    """A budget that runs share, for one `key`: what is used of `max` in its window, what is reserved for current
    `runs`, and what is left. `counts` says what: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or
    `running`.
    """

    budget: str
    key: str
    counts: str
    window: str
    max: float
    used: float
    reserved: float
    left: float
    runs: int
    resets_at: datetime | None = None


class BudgetList(View, frozen=True, kw_only=True):
    """The budgets that were drawn on, by name and key."""

    budgets: tuple[BudgetView, ...]


class DecisionView(View, frozen=True, kw_only=True):
    """What was judged at one event: a call with its `action`, or something that happened, and why.

    `steps` name each rule that judged it, its answer, and its state before and after.
    """

    seq: int
    event: str
    action: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tell_model: str | None = None
    steps: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


class DecisionList(View, frozen=True, kw_only=True):
    """Decisions in order; `left_out` counts earlier ones, which only `proctor explain` shows. `untold` names
    policies with checks in Python, whose answers cannot be reproduced.
    """

    decisions: tuple[DecisionView, ...]
    left_out: int = 0
    untold: tuple[str, ...] = ()


class PolicyInForce(View, frozen=True, kw_only=True):
    """One policy of a run's stack, as it was written."""

    name: str
    locked: bool
    written: dict[str, Any]


class Policies(View, frozen=True, kw_only=True):
    """The stack of a run: its policies, and their rules and nets as a graph."""

    stack: str
    policies: tuple[PolicyInForce, ...]
    mermaid: str
    svg: str


class BlockView(View, frozen=True, kw_only=True):
    """No run of this scope (session, tenant, label or all) starts; who ordered it, when, and why."""

    scope: str
    value: str
    by: str
    reason: str
    at: datetime | None = None


class SwitchView(View, frozen=True, kw_only=True):
    """The blocks that refuse starts now, oldest first; if there are none, runs may start."""

    blocks: tuple[BlockView, ...]


class Ended(View, frozen=True, kw_only=True):
    """How a run that was told to end did end; `ended` is false if it did not end in time."""

    run_id: str
    session_id: str
    status: str
    ended: bool


class Stopped(View, frozen=True, kw_only=True):
    """How each run that was told to end did end, and the blocks that refuse starts now."""

    outcomes: tuple[Ended, ...]
    blocks: tuple[BlockView, ...]


class Cancelled(View, frozen=True, kw_only=True):
    """The run that was told to end; its events show the end."""

    run_id: str
