"""What a store keeps beside events: sessions, runs and their owners, approvals, and what people ordered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.stream.calls import ToolCall, Usage, Violation
from proctor.policies.stream.events import Event

RunStatus: TypeAlias = Literal["created", "running", "lost", "completed", "failed", "cancelled"]
"""`lost` is running while its owner is gone."""
ApprovalState: TypeAlias = Literal["requested", "granted", "denied", "expired", "withdrawn"]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who supervises runs: one supervisor, in the process `pid` of `machine` that started at `started`.

    `epoch` is given by the store, rising: it is what claims and appends carry; `after` is the number of the latest
    instruction then. `gone`, as the store has it: its lease is over, or its process ran on this machine and runs no
    more.
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


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session, as a list shows it."""

    session_id: str
    provider: str = ""
    provider_session_id: str | None = None
    last_seq: int = 0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, as a list shows it. `status` is running until its terminal event is stored, and lost where its
    owner is gone before that.

    `spec` holds what `execute_run` needs to start a run that was only created: prompt and metadata. `owner` has
    claimed it; a run that no supervisor claimed has none. `after` is the number of the latest instruction when it
    was created: those that follow may concern it.

    What follows is counted from the run's events as they are stored, whoever stores them: `calls` are those that
    ran, `violations` all that were recorded, `usage` what was reported so far and, once the run has ended, what its
    end states. `started_seq` and `ended_seq` are the seqs of its start and its end, 0 before.
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
    usage: Usage = msgspec.field(default_factory=Usage)

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None before its end."""
        if self.started_at is None or self.ended_at is None:
            return None
        return round((self.ended_at - self.started_at).total_seconds() * 1000)


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list is asked for: those that meet all that is given.

    `status`: one of these; `labels`: each, with its value as text (anything but a text as in JSON). `since` and
    `until` bound when the run started, or was created where it has not: from `since` on, before `until`.
    `begins` is what its id begins with.
    """

    status: frozenset[RunStatus] = frozenset()
    tenant: str | None = None
    labels: dict[str, str] = {}
    provider: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    begins: str = ""


ANY_RUN = RunFilter()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the log of a store: after the event with this position. As text it is a cursor to be kept."""

    store_id: str
    position: int

    def __str__(self) -> str:
        return f"{self.store_id}.{self.position}"


class LogEntry(msgspec.Struct, kw_only=True):
    """One stored event of any session, where it stands in the log of the store, and whose its run is.

    `position` counts over all sessions in the order in which events were stored, with gaps, and is never given
    twice. `data` is the event as JSON; `known` the event itself where somebody has it. `digest` is over that of the
    record before in its session and `data` (see `store.chain`); empty where a store keeps none.
    """

    position: int
    session_id: str
    run_id: str
    seq: int
    tenant: str | None
    data: bytes
    digest: bytes = b""
    known: Event | None = None


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver is shown: the call with its real input, and why it is asked for.

    `violations` are all that the approval is about; `policy_name`, `violation_kind` and `reason` are of the first.
    `held` is false where nothing waits for the answer. `ran`: the agent could not be held and the call had started,
    so the answer is for the record.
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


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer; it holds for the input of that digest only.

    `reason` is for the record. `tell_model` is what the person says to the model where the call is refused.
    """

    granted: bool
    by: str
    reason: str | None = None
    input_digest: str | None = None
    tell_model: str | None = None


class StoredApproval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval as the store has it: what was asked, and what became of it.

    `withdrawn`: nobody needs to answer any more, as its run is over. `answer` is the one that counts, given at
    `answered_at`; it is `recorded` once its owner has taken it up and the session's record says so. `number` orders
    the approvals of a store, in the order they were asked.
    """

    request: ApprovalRequest
    state: ApprovalState = "requested"
    answer: ApprovalAnswer | None = None
    answered_at: datetime | None = None
    recorded: bool = False
    number: int = 0


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Somebody's order that runs end: those of its scope that were created before it, whatever any clock says.

    `value` is the id of the run or session, the tenant's name, a label as `key=value`, or "" for all. `number` is
    given by the store, rising. `approval` is what one run ends for, where it ends to be asked.
    """

    scope: Literal["run", "session", "tenant", "label", "all"]
    value: str = ""
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    number: int = 0
    approval: ApprovalRequest | None = None


class AnswerGiven(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """An answer that its approval took, on its way to the owner of the run."""

    run_id: str
    approval_id: str
    answer: ApprovalAnswer
    at: datetime | None = None
    number: int = 0


Instruction: TypeAlias = Cancel | AnswerGiven
"""What people ask of the owners of runs, from any process."""
