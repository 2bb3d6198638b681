"""Where the world comes in: small protocols this package owns, each implemented in `adapters/`.

Adapter -> Provider      an agent's client: launch options, one running session of it
Store                    the record of sessions, approvals and mail between processes
Approver                 somebody who answers a held call
Publisher                somebody who watches events; cannot hurt a run
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities, ToolCall, Usage, Violation
from proctor.policies.stream.events import Event

RunStatus: TypeAlias = Literal["created", "running", "completed", "failed", "cancelled"]


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is told about one call it asked for.

    `tell_model` is the tool result of a refused call. `stop`: the run is being cancelled, ask for nothing
    more. `input` is set when the call must run with another input than it asked for.
    """

    allowed: bool
    tell_model: str | None = None
    stop: bool = False
    input: dict[str, Any] | None = None


Gate: TypeAlias = Callable[[ToolCall], Awaitable[GateAnswer]]


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A policy compiled into a provider's own options, only ever tightening what the caller asked for.

    `expressed` and `unexpressed` name the policy parts (`deny bash`, `max_cost_usd`) that did and did not
    fit; enforcement on every event holds either way.
    """

    options: dict[str, Any] = {}
    expressed: tuple[str, ...] = ()
    unexpressed: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """All an adapter needs to start: `resume` is the provider's own session id, `transcript` the events so
    far when the conversation is to be replayed to a provider that cannot resume. `narrow` gives those of
    some tools that could be called now.
    """

    run_id: str
    session_id: str
    prompt: str
    gate: Gate
    options: LaunchOptions = LaunchOptions()
    resume: str | None = None
    fork: bool = False
    transcript: tuple[Event, ...] = ()
    metadata: Mapping[str, Any] = {}
    narrow: Callable[[Sequence[str]], list[str]] = list


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the cancel ladder: `act` is called at most once and may return evidence; after it the
    supervisor waits until the stream of events ends, `bound_s` seconds in all, then takes the next rung.
    """

    name: str
    act: Callable[[], Awaitable[dict[str, Any] | None]]
    bound_s: float


@runtime_checkable
class Provider(Protocol):
    """One running session of a provider's client."""

    def events(self) -> AsyncIterator[Event]:
        """The stream. It ends when the client is done; it raises ProviderError when the client failed.

        Events come without run id, seq and time: the supervisor stamps them. A terminal event of the
        client (RunCompleted with its output, RunFailed) is the last one. An event has been judged when the
        next one is asked for: wait for that before proposing a call to the gate that comes after it.
        """
        ...

    def ladder(self) -> Sequence[Rung]:
        """The steps that end this session, gentlest first: the client's own interrupt, clean-up, close,
        terminate, kill of the whole process tree. The last one always ends the stream of events.
        """
        ...


@runtime_checkable
class Adapter(Protocol):
    """One kind of agent client; an instance may be used for many runs, one after another or at once."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def prepare(self) -> None:
        """Check that the client can be started: raises ProviderUnavailableError saying what to install."""
        ...

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy into this client's launch options. Pure."""
        ...

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start the client; leaving the context releases everything, whatever happened, in bounded time."""
        ...


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session, as a list shows it."""

    session_id: str
    provider: str = ""
    provider_session_id: str | None = None
    last_seq: int = 0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, as a list shows it. `status` is running until its terminal event is stored.

    `spec` holds what `execute_run` needs to start a run that was only created: prompt and metadata.

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
    twice. `data` is the event as JSON; `known` the event itself where somebody has it.
    """

    position: int
    session_id: str
    run_id: str
    seq: int
    tenant: str | None
    data: bytes
    known: Event | None = None


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A message to whoever owns a run, from any process: an approval's answer, or a cancel.

    `mail_id` is given by the store, rising. `kind` is `approve`, `deny` or `cancel`; `run_id` "" is for
    every run (then `body` may name a session or a tenant).
    """

    kind: Literal["approve", "deny", "cancel"]
    run_id: str = ""
    mail_id: int = 0
    body: dict[str, Any] = {}
    at: datetime | None = None


@runtime_checkable
class Store(Protocol):
    """The record. Every method may raise StoreError; nothing acknowledged is ever lost."""

    async def append(self, events: Sequence[Event]) -> list[Event]:
        """Store events, in order and as one unit; returns them stamped with `seq` (per session, from 1,
        without gaps), whatever they had. On return they are durable. An event whose `event_id` is already
        stored in its session is not stored again: the stored one is returned in its place. Raises StoreError
        when the record they would be part of is not there any more: removed, replaced, cut short.

        It may be cancelled: what it was given is then stored as a unit or not at all.
        """
        ...

    def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order, or in the opposite one."""
        ...

    def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        """The stored events of all sessions with position > after, in the order in which they were stored, or in the
        opposite one. What is not seen while it is read is stored at a higher position.
        """
        ...

    async def place(self) -> Place:
        """After the latest stored event."""
        ...

    async def last_seq(self, session_id: str) -> int: ...

    async def create_run(self, run: RunInfo) -> None:
        """Register a run before it starts; the same run_id again is StoreError(kind="run_exists")."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        ...

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; `before` a run: only older ones, none when there is no such run."""
        ...

    async def session(self, session_id: str) -> SessionInfo | None: ...

    async def post(self, mail: Mail) -> int:
        """Leave a message for the owner of a run, durable on return; returns its mail_id."""
        ...

    async def mail(self, *, after: int = 0) -> list[Mail]:
        """Messages with mail_id > after, in order."""
        ...

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` (by any process) or the time is up; the returned
        token is for the next wait. Token 0 returns at once.
        """
        ...

    async def aclose(self) -> None: ...


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


class Approver(Protocol):
    """Answers held calls in this process; returning None leaves the answer to somebody else."""

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None: ...


class Publisher(Protocol):
    """Is handed every stored event, in order. One that raises is dropped and reported."""

    def __call__(self, event: Event) -> None: ...
