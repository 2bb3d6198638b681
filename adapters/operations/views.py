"""The records behind `--json`, the HTTP API, the dashboard and `watch`.

Texts of agents are exact here; whatever displays them must make them safe to display.
"""

from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.monitor.limit_checker import LimitStatus
from proctor.supervisor.ports.budget_ledger import BudgetInfo
from proctor.supervisor.ports.stored_types import ApprovalRequest, ApprovalState, Owner, RunInfo

from ..evaluate.fold import Explained
from ..suggest.inputs import Like
from .identities import Role


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every answer."""


class Me(View, frozen=True, kw_only=True):
    """The token's owner and roles; `statuses` are the statuses by which runs can be listed."""

    name: str
    roles: tuple[Role, ...]
    groups: tuple[str, ...] = ()
    version: str = ""
    statuses: tuple[str, ...] = ()


class Healthy(View, frozen=True, kw_only=True):
    """The store can be read."""

    status: Literal["ok"] = "ok"


class RunView(RunInfo, frozen=True, kw_only=True):
    """A run, with what a list shows beside it.

    Attributes:
        prompt: The agent's prompt.
        duration_ms: How long it took, in milliseconds; null before its end.
        waiting: How many of its calls wait for a person; none if its owner is gone, as nobody can answer then.
        last_seq: The seq of its latest event; null in a list.
    """

    prompt: str = ""
    duration_ms: int | None = None  # a property there, and so no field
    waiting: int = 0
    last_seq: int | None = None


class RunList(View, frozen=True, kw_only=True):
    """Runs, newest first; `next` is the `before` of the page after this one, None at the end."""

    runs: tuple[RunView, ...]
    next: str | None = None


class EventList(View, frozen=True, kw_only=True):
    """Events in order, as they are stored; `next` is the `after` of the page after this one, None at the end."""

    events: tuple[dict[str, Any], ...]
    next: int | None = None


ItemKind: TypeAlias = Literal[
    "run", "message", "request", "call", "result", "violation", "approval", "usage", "limit", "error", "end", "other"
]
Tone: TypeAlias = Literal["plain", "soft", "good", "care", "bad"]


class TimelineItem(View, frozen=True, kw_only=True):
    """One event as people read it.

    Attributes:
        seq: The event's place in its session.
        at: When it happened, UTC.
        run_id: Its run.
        event: Its type.
        kind: The item's kind. A `request` opens a call; later items of the call have its `tool_call_id`.
        tone: How it is coloured.
        label: What happened, in a word.
        text: The rest, on one line.
        why: The reasons of the rules that ask or deny; of a denied call, the text for the model.
        whole: The whole text, if `text` is only its beginning.
        tool_call_id: The call, if it is about one.
        tool_name: The call's tool.
        tool_input: The call's input, if this event shows it first or changed.
        approval_id: The approval, if it is about one that can be answered, or about its answer.
        waits: The call waits for a person from here on.
        repeats: Of a violation: the call's approval request already names the rule.
        closed: How, by whom and why an approval was closed.
    """

    seq: int
    run_id: str
    event: str
    kind: ItemKind
    tone: Tone
    label: str
    text: str = ""
    at: datetime | None = None
    why: tuple[str, ...] = ()
    whole: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    approval_id: str | None = None
    waits: bool = False
    repeats: bool = False
    closed: str | None = None


class Timeline(View, frozen=True, kw_only=True):
    """Events as people read them, in order; `next` is the `after` of the page after this one, None at the end."""

    items: tuple[TimelineItem, ...]
    next: int | None = None


class CommandPart(View, frozen=True, kw_only=True):
    """One command of a command line; `exact` is false if the shell computes some of its words."""

    name: str
    argv: tuple[str, ...]
    command: str
    exact: bool = True
    reason: str = ""


class CommandLine(View, frozen=True, kw_only=True):
    """A command line, parsed as policies evaluate it; `dynamic` says why some of it cannot be seen."""

    line: str
    parts: tuple[CommandPart, ...]
    dynamic: str | None = None


class EditLine(View, frozen=True, kw_only=True):
    """A line of an edit: `mark` is `+`, `-`, `@` (a place) or blank."""

    mark: str
    text: str


class Edit(View, frozen=True, kw_only=True):
    """An edit's changes; `cut` counts lines that are left out here but are in the call's input. `rest` is the rest of
    its input.
    """

    path: str | None
    lines: tuple[EditLine, ...]
    cut: int = 0
    rest: dict[str, Any] = {}


class CallShown(View, frozen=True, kw_only=True):
    """A call made readable: `acts` are the portable names of what it does, `rest` is the part of its input
    that is not shown as a command or an edit.
    """

    acts: tuple[str, ...] = ()
    commands: tuple[CommandLine, ...] = ()
    edits: tuple[Edit, ...] = ()
    rest: dict[str, Any] = {}


_NO_END = timedelta(days=3650)


def expiry(requested_at: datetime | None, expires_at: datetime | None) -> datetime | None:
    """When a request expires, for people; None if it waits as long as its agent does."""
    return None if expires_at and requested_at and expires_at - requested_at >= _NO_END else expires_at


class ApprovalView(ApprovalRequest, frozen=True, kw_only=True):
    """A call that waits for a person: the request with its whole input, and more that a person needs.

    Send `input_digest` with the answer, so that what runs is what was shown.

    Attributes:
        state: `requested`, `granted`, `denied`, `expired` or `withdrawn`.
        outcome: The state in the word that people read: `pending`, `approved`, `declined`, `expired` or `withdrawn`.
        shown: The call made readable.
        asks_itself: The client asks its person itself: answer there, not here.
        lost: The run's owner is gone, or is another store's: nobody can answer. A run that resumes its session asks
            again.
        scopes: The possible scopes of an approval.
        like: Similar calls, in words and as the entry of an allow list: a grant may be limited to that. Null if there
            is no such entry, or if a grant covers one call only.
        prompt: The agent's prompt.
        provider: The agent.
        tenant: The tenant of the run.
        user: The person who started it, from its context.
        answered_by: The person who answered.
        answered_at: When, UTC.
        answer_reason: Why.
    """

    state: ApprovalState
    outcome: str = ""
    shown: CallShown
    asks_itself: bool = False
    lost: bool = False
    scopes: tuple[str, ...] = ("once",)
    like: Like | None = None
    prompt: str = ""
    provider: str = ""
    tenant: str | None = None
    user: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    answer_reason: str | None = None


class ApprovalList(View, frozen=True, kw_only=True):
    """Calls that wait, oldest first; `total` also counts those that are not on this page, up to 1,000."""

    approvals: tuple[ApprovalView, ...]
    total: int


class Answered(View, frozen=True, kw_only=True):
    """An accepted answer, `approved` or `denied`; `outcome` is the word for people, `approved` or `declined`;
    `taken_up`: the owner of the run has acted on it.
    """

    approval_id: str
    answer: Literal["approved", "denied"]
    outcome: str = ""
    by: str
    reason: str | None = None
    taken_up: bool = False


class LimitList(View, frozen=True, kw_only=True):
    """The limits of a run, each with its use."""

    limits: tuple[LimitStatus, ...]
    unpriced: tuple[str, ...] = ()


class BudgetView(BudgetInfo, frozen=True, kw_only=True):
    """A budget that runs share, for one `key`, with what is left of it.

    Attributes:
        left: The amount that can still be reserved; never below 0.
        unit: The unit of every amount: tokens, USD, ms, tool calls, runs at once.
        in_use: How much is shown as used; of runs at once, those that are running.
        ahead: What is reserved beyond that.
    """

    left: float = 0  # a property there, and so no field
    unit: str = ""
    in_use: float = 0
    ahead: float = 0


class BudgetList(View, frozen=True, kw_only=True):
    """The budgets that were used, by name and key."""

    budgets: tuple[BudgetView, ...]


class DecisionList(View, frozen=True, kw_only=True):
    """Decisions in order; `left_out` counts earlier ones, which only `proctor explain` shows. `untold` names
    policies with checks in Python, whose results cannot be reproduced.
    """

    decisions: tuple[Explained, ...]
    left_out: int = 0
    untold: tuple[str, ...] = ()


class PolicyInForce(View, frozen=True, kw_only=True):
    """One policy of a run's stack, as data and as the YAML that says the same."""

    name: str
    locked: bool
    written: dict[str, Any]
    text: str


class Policies(View, frozen=True, kw_only=True):
    """The stack of a run: its policies, and their rules and nets as a graph."""

    stack: str
    policies: tuple[PolicyInForce, ...]
    mermaid: str
    svg: str


class BlockView(View, frozen=True, kw_only=True):
    """A freeze: no run of this scope (session, tenant, label or all) starts; who set it, when and why. `effect` says
    in words what it prevents.
    """

    scope: str
    value: str
    by: str
    reason: str
    at: datetime | None = None
    effect: str = ""


class SwitchView(View, frozen=True, kw_only=True):
    """The current freezes, oldest first; without any, runs may start."""

    blocks: tuple[BlockView, ...]


class OutcomeView(View, frozen=True, kw_only=True):
    """How a cancelled run ended; `ended` is false if it did not end in time, and `owner` is then its owner."""

    run_id: str
    session_id: str
    status: str
    ended: bool
    owner: Owner | None = None


class Affected(View, frozen=True, kw_only=True):
    """The number of active runs of a scope, and the ids of the first."""

    runs: int
    run_ids: tuple[str, ...] = ()


class Stopped(View, frozen=True, kw_only=True):
    """How each cancelled run ended, and the current freezes."""

    outcomes: tuple[OutcomeView, ...]
    blocks: tuple[BlockView, ...]


class Lifted(View, frozen=True, kw_only=True):
    """The lifted freezes, and the current ones."""

    lifted: tuple[BlockView, ...]
    blocks: tuple[BlockView, ...]


class Cancelled(View, frozen=True, kw_only=True):
    """The cancelled run; its events show the end."""

    run_id: str


class BoardRun(RunView, frozen=True, kw_only=True):
    """An active run, with the use of each of its limits."""

    limits: tuple[LimitStatus, ...] = ()


class Board(View, frozen=True, kw_only=True):
    """The active runs, newest first, and whether there are `more`; the waiting calls, oldest first; the current
    freezes; the shared budgets.
    """

    runs: tuple[BoardRun, ...] = ()
    more: bool = False
    approvals: tuple[ApprovalView, ...] = ()
    blocks: tuple[BlockView, ...] = ()
    budgets: tuple[BudgetView, ...] = ()
