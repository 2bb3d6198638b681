"""Records that a store keeps besides events: sessions, runs and their owners, approvals, and people's commands."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from proctor.policies.errors import Violation
from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import Usage
from proctor.policies.policy import ApprovalScope

RunStatus: TypeAlias = Literal["created", "running", "lost", "completed", "failed", "cancelled"]
"""A `lost` run was running when its owner died."""

GOING_ON: frozenset[RunStatus] = frozenset(("created", "running"))
"""The statuses of a run that is not over; a started run is `created` until its first event is stored."""

NOT_OVER: frozenset[RunStatus] = GOING_ON | {"lost"}
"""The statuses with which a run that is not over is shown."""

ApprovalState: TypeAlias = Literal["requested", "granted", "denied", "expired", "withdrawn"]
APPROVAL_WORDS: Final[Mapping[ApprovalState, str]] = {
    "requested": "pending",
    "granted": "approved",
    "denied": "declined",
    "expired": "expired",
    "withdrawn": "withdrawn",
}
"""Each state in the word that people read."""

CLIENT = "client_"
"""The prefix of the ids of owners that are a person's own client."""

ENDING = "end_"
"""The prefix of the ids of owners that only end other owners' lost runs."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a run: a supervisor in one process on one machine, or a person's own client that hooks report for.

    Attributes:
        owner_id: The owner's id.
        host: The name of its machine, for people.
        machine: The machine's own id.
        pid: The id of its process.
        started: When that process started, as the machine says it.
        epoch: The number that claims and appends carry; the store gives it, rising.
        after: The number of the latest command when it registered.
        gone: Its lease is over, or its process ran on this machine and runs no more.
    """

    owner_id: str
    host: str = ""
    machine: str = ""
    pid: int = 0
    started: str = ""
    epoch: int = 0
    after: int = 0
    gone: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on `{self.host}`" if self.pid else f"`{self.owner_id}`"

    @property
    def is_client(self) -> bool:
        """Whether it is a client: it reads no commands, so whoever cancels its run also ends it."""
        return self.owner_id.startswith(CLIENT)

    @property
    def is_ending(self) -> bool:
        """Whether it only ends other owners' lost runs, so that its claims are short."""
        return self.owner_id.startswith(ENDING)


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session, as a list shows it.

    Attributes:
        session_id: The session's id.
        provider: The name of its adapter.
        provider_session_id: The agent's own session id, if known.
        last_seq: The seq of its latest event; 0 without any.
    """

    session_id: str
    provider: str = ""
    provider_session_id: str | None = None
    last_seq: int = 0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, as a list shows it. Its counts follow from its events as they are stored.

    Attributes:
        run_id: The run's id.
        session_id: Its session's id.
        provider: The name of its adapter.
        status: The status; `lost` if the owner died before the run ended.
        created_at: When it was created, UTC.
        spec: What `execute_run` needs to start a created run: prompt and metadata.
        owner: The supervisor that claimed it, if any.
        after: The number of the latest command when it was created; later commands can apply to it.
        tenant: The tenant of its context.
        labels: The labels of its context.
        started_at: When it started, UTC.
        ended_at: When it ended, UTC.
        started_seq: The `seq` of its start; 0 before.
        ended_seq: The `seq` of its end; 0 before.
        calls: How many calls ran.
        violations: How many violations were recorded.
        attempts: How often a worker claimed it to start it.
        usage: Tokens and USD so far, or at the end.
        unreadable: Why a list has only a part of it: its row was changed, or is of another version.
    """

    run_id: str
    session_id: str
    provider: str = ""
    status: RunStatus = "created"
    created_at: datetime | None = None
    spec: dict[str, Any] = {}
    owner: Owner | None = None
    after: int = 0
    tenant: str | None = None
    labels: dict[str, Any] = {}
    started_at: datetime | None = None
    ended_at: datetime | None = None
    started_seq: int = 0
    ended_seq: int = 0
    calls: int = 0
    violations: int = 0
    attempts: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    unreadable: str = ""

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None before its end."""
        if self.started_at is None or self.ended_at is None:
            return None
        return round((self.ended_at - self.started_at).total_seconds() * 1000)

    @property
    def is_left(self) -> bool:
        """Whether it is not over and nobody goes on with it: its owner is gone, or is that of another store."""
        return self.status in NOT_OVER and (self.owner is None or self.owner.gone)

    @property
    def asks_itself(self) -> bool:
        """Whether its client asks its person itself, and no answer from elsewhere reaches it."""
        return bool(self.spec.get("asks")) and not self.spec.get("hears")

    def is_claimed_by(self, epoch: int) -> bool:
        """Whether the owner of that epoch has claimed it and not started it."""
        return self.status == "created" and self.owner is not None and self.owner.epoch == epoch

    def attempts_with(self, epoch: int, *, lost: bool) -> int:
        """Its `attempts` after a claim by the owner of that epoch, to start it or, with `lost`, to end it."""
        return self.attempts + (not lost and (self.owner is None or self.owner.epoch != epoch))


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lists of runs: a run must meet every given condition.

    Attributes:
        status: One of these.
        tenant: This tenant.
        labels: Each of these; values are compared as text, other values than texts as JSON.
        provider: This adapter.
        since: Started (if it hasn't started, created) at this time or later.
        until: Started (if it hasn't started, created) before this time.
        begins: The beginning of its id.
    """

    status: frozenset[RunStatus] = frozenset()
    tenant: str | None = None
    labels: dict[str, str] = {}
    provider: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    begins: str = ""

    def matches(self, run: RunInfo) -> bool:
        """Whether a run matches every given condition."""
        began = run.started_at or run.created_at
        return (
            (not self.status or run.status in self.status)
            and self.tenant in (None, run.tenant)
            and self.provider in (None, run.provider)
            and run.run_id.startswith(self.begins)
            and all(name in run.labels and label_text(run.labels[name]) == text for name, text in self.labels.items())
            and (self.since is None or (began is not None and began >= self.since))
            and (self.until is None or (began is not None and began < self.until))
        )


ANY_RUN = RunFilter()


class StoreSize(msgspec.Struct, frozen=True, kw_only=True):
    """How much a store holds.

    Attributes:
        sessions: How many sessions, including those with only a `record_pruned` left.
        runs: How many runs, by status.
        events: How many events.
        bytes: The space they take, in bytes.
        free_bytes: How much of that space is free again, in bytes; 0 if a store cannot say.
    """

    sessions: int = 0
    runs: dict[str, int] = {}
    events: int = 0
    bytes: int = 0
    free_bytes: int = 0


_DIGEST_BYTES = 8
"""How much of an event's digest a cursor has: enough to tell it from another event at its position."""


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the log of a store: after the event with this position and, if known, this digest. As text, it is a
    cursor to keep.
    """

    store_id: str
    position: int
    digest: bytes = b""

    def __str__(self) -> str:
        seen = f"-{self.digest[:_DIGEST_BYTES].hex()}" if self.digest else ""
        return f"{self.store_id}.{self.position}{seen}"


class LogEntry(msgspec.Struct, kw_only=True):
    """One stored event of any session, with its position in the log of the store and the tenant of its run.

    `position` rises over all sessions in the order events were stored, with gaps, and is never given twice. `data` is
    the event as JSON; `event` the same, decoded, if at hand. `digest` covers the digest of the session's record
    before and `data` (see `store.records.link`); empty if a store keeps none.
    """

    position: int
    session_id: str
    run_id: str
    seq: int
    tenant: str | None
    data: bytes
    digest: bytes = b""
    event: Event | None = None


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as an approver sees it: the call, and why it needs approval.

    Attributes:
        approval_id: The request's id, which an answer names.
        run_id: The run that needs the approval.
        session_id: Its session.
        call: The call with its input.
        input_digest: The SHA-256 digest of that input; an approval covers only this input.
        policy_name: The first violation's policy.
        violation_kind: The first violation's kind.
        reason: Why the first violation requires approval.
        violations: All violations that the approval covers.
        requested_at: When it was requested, UTC.
        expires_at: When it expires, UTC.
        held: Whether the call waits for the answer.
        ran: True if the call had already started, so the answer is only recorded.
        approvers: Who can answer: names, and groups as `@name`; null means anyone.
        started_by: The person who started the run, if that person can't answer. If "", nobody can.
        scope: The most that one approval can cover: `once`, `run` or `session`.
        rules_digest: The SHA-256 digest of the rules that ask, as they are written; empty where `scope` is `once`.
    """

    approval_id: str
    run_id: str
    session_id: str
    call: ToolCall
    input_digest: str
    policy_name: str
    violation_kind: str
    reason: str | None = None
    violations: tuple[Violation, ...] = ()
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    held: bool = True
    ran: bool = False
    approvers: tuple[str, ...] | None = None
    started_by: str | None = None
    scope: str = "once"
    rules_digest: str = ""


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to an approval request; it covers only the input with that digest.

    Attributes:
        granted: Whether the call may run.
        by: The person who answered.
        reason: Why, for the event log; the model doesn't see it.
        input_digest: The digest of the input that the person saw; an answer with another digest is rejected.
        tell_model: The text for the model if the call is denied.
        groups: The groups of that person, as the program that took the answer states them, with or without `@`.
        scope: The coverage of a grant: this call (`once`), or also later ones of the `run` or the `session` that the
            same rules ask about; no more than the policy allows.
        like: An entry as in an allow list: the grant then covers only later calls that match it and have no other
            inputs than this call.
        expired: Set by the run's owner when the time is up; ignored from anybody else.
    """

    granted: bool
    by: str
    reason: str | None = None
    input_digest: str | None = None
    tell_model: str | None = None
    groups: tuple[str, ...] = ()
    scope: ApprovalScope = "once"
    like: dict[str, Any] | None = None
    expired: bool = False


SUPERVISOR = "supervisor"
"""The name in the record of a denial by the supervisor itself."""
NOBODY_IN_TIME = ApprovalAnswer(granted=False, by=SUPERVISOR, reason="nobody answered in time", expired=True)
"""The owner's own answer to a request whose time is up: recorded as expired, and too late for one accepted before."""


class StoredApproval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval as the store has it.

    Attributes:
        request: The request.
        state: Its state; `withdrawn`: its run is over, so nobody needs to answer.
        answer: The answer that counts; if the request is withdrawn, an earlier answer that did not count.
        answered_at: When that was given, UTC.
        recorded: Its owner has acted on the answer, and the event log says so.
        number: Its number in the store, in the order of the requests.
    """

    request: ApprovalRequest
    state: ApprovalState = "requested"
    answer: ApprovalAnswer | None = None
    answered_at: datetime | None = None
    recorded: bool = False
    number: int = 0


def label_text(value: object) -> str:
    """A label's value as a filter or a command names it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _PersonCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A person's command about runs.

    Attributes:
        scope: The kind of target: one `run`, a `session`, a `tenant`, a `label`, or `all`.
        value: The id of the run or session, the tenant's name, a label as `key=value`; empty for all.
        by: The person who gave it.
        reason: Why, for the record.
        at: When it was given, UTC.
        number: Its number in the store, rising; a cancel concerns runs that were created before it.
    """

    scope: Literal["run", "session", "tenant", "label", "all"]
    value: str = ""
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    number: int = 0

    def covers(self, *, run_id: str, session_id: str, tenant: object = None, labels: object = None) -> bool:
        """Whether a run is in its scope."""
        match self.scope:
            case "run":
                return self.value == run_id
            case "session":
                return self.value == session_id
            case "tenant":
                return self.value == tenant
            case "label":
                key, _, value = self.value.partition("=")
                return isinstance(labels, Mapping) and key in labels and label_text(labels[key]) == value
            case "all":
                return True


class Cancel(_PersonCommand, frozen=True, kw_only=True, tag="cancel"):
    """A command to cancel runs: those in its scope that were created before it.

    Attributes:
        approval: The request that the run ends for, if that is the reason.
    """

    approval: ApprovalRequest | None = None


class Block(_PersonCommand, frozen=True, kw_only=True, tag="block"):
    """A freeze: no run of its scope starts until it is lifted."""

    @property
    def effect(self) -> str:
        """What it prevents."""
        return "no run starts" if self.scope == "all" else f"no run of {self.scope} `{self.value}` starts"


def block_of(blocks: Iterable[Block], **run: Any) -> Block | None:
    """The first block that covers a run, as `covers` takes it; None if the run may start."""
    return next((block for block in blocks if block.covers(**run)), None)


class UnblockStarts(_PersonCommand, frozen=True, kw_only=True, tag="lift"):
    """A command that lifts the block of exactly its scope and value, or every block if its scope is all."""

    def lifts(self, block: Block) -> bool:
        return self.scope == "all" or (self.scope, self.value) == (block.scope, block.value)


class AnswerGiven(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """An accepted answer, on its way to the owner of the run.

    Attributes:
        run_id: The run that asked.
        approval_id: The approval.
        answer: The answer.
        at: When it was given, UTC.
        number: Its number in the store, rising.
    """

    run_id: str
    approval_id: str
    answer: ApprovalAnswer
    at: datetime | None = None
    number: int = 0


Command: TypeAlias = Cancel | Block | UnblockStarts | AnswerGiven
"""A command from people to the owners of runs, from any process."""
