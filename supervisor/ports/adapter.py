"""The interfaces to the outside: small protocols that this package owns, each implemented in `adapters/`.

Adapter -> Provider      an agent's client: launch options, one running session of it
Approver                 answers a held call
Publisher                watches events; cannot harm a run
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy

from .stored_types import ApprovalAnswer, ApprovalRequest


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's answer to one call.

    Attributes:
        allowed: Whether the call may run.
        tell_model: The tool result of a denied call.
        stop: The run is being cancelled; propose no more calls.
        input: The call must run with this input instead of its own.
    """

    allowed: bool
    tell_model: str | None = None
    stop: bool = False
    input: dict[str, Any] | None = None


Gate: TypeAlias = Callable[[ToolCall], Awaitable[GateAnswer]]


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy as settings of the agent; they only tighten the caller's.

    Attributes:
        options: The options, as the adapter's `open` understands them.
        expressed: The parts of the policy that fitted: `deny bash`, `max_cost_usd`.
        unexpressed: The parts that have no setting. The gate enforces the whole policy in any case.
    """

    options: dict[str, Any] = {}
    expressed: tuple[str, ...] = ()
    unexpressed: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """All an adapter needs to start.

    Attributes:
        run_id: The run.
        session_id: Its session.
        mark: The mark on the processes it starts, by which they are found again: it names the run and its store.
        prompt: The prompt.
        gate: Decides each call before it runs.
        options: The policy as launch options.
        resume: The provider's own id of the session to resume.
        fork: Resume it as a new session.
        transcript: The session's events so far, the latest 64 MiB, if the conversation is to be replayed to a
            provider that cannot resume.
        load_transcript: Loads the transcript for a client that does not have the session to resume; None if it must
            have it.
        metadata: The run's metadata.
        narrow: Returns those of the given tools that could be called now.
    """

    run_id: str
    session_id: str
    prompt: str
    gate: Gate
    options: LaunchOptions = LaunchOptions()
    resume: str | None = None
    fork: bool = False
    transcript: tuple[Event, ...] = ()
    load_transcript: Callable[[], Awaitable[tuple[Event, ...]]] | None = None
    metadata: Mapping[str, Any] = {}
    narrow: Callable[[Sequence[str]], list[str]] = list
    mark: str = ""

    def __post_init__(self) -> None:
        if not self.mark:
            msgspec.structs.force_setattr(self, "mark", self.run_id)

    def with_transcript(self, transcript: tuple[Event, ...]) -> Launch:
        """The same in a new session of the client, to which the conversation so far is replayed."""
        return msgspec.structs.replace(self, resume=None, fork=False, transcript=transcript, load_transcript=None)


EndOrphans: TypeAlias = Callable[[str], Awaitable[dict[str, Any]]]
"""Ends the processes with a run's mark that its lost supervisor left on this machine; returns evidence."""


class CancelStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a cancel.

    Attributes:
        name: The name of its action, for the evidence.
        act: Performs it; called at most once, may return evidence.
        bound_s: Seconds in all for `act` and for the stream of events to end, before the next step.
    """

    name: str
    act: Callable[[], Awaitable[dict[str, Any] | None]]
    bound_s: float


@runtime_checkable
class Provider(Protocol):
    """One running session of a provider's client."""

    def events(self) -> AsyncIterator[Event]:
        """The stream of events. It ends when the client is done; it raises ProviderError if the client failed.

        Events come without run id, seq and time: the supervisor stamps them. A terminal event of the client
        (RunCompleted with its output, or RunFailed) is the last one. An event has been evaluated once the next one
        is requested: wait for that before proposing a later call to the gate.
        """
        ...

    def cancel_steps(self) -> Sequence[CancelStep]:
        """The steps that end this session, gentlest first: the client's own interrupt, clean-up, close,
        terminate, kill of the whole process tree. The last one always ends the stream of events.
        """
        ...


@runtime_checkable
class Adapter(Protocol):
    """One kind of agent client; an instance may be used for many runs, one after another or at once.

    One that starts processes also has `end_orphans`, see `EndOrphans`: the kit's `end_orphans` where they are marked.
    """

    @property
    def name(self) -> str:
        """The adapter's name in records; sessions are resumed by this name."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The adapter's real capabilities."""
        ...

    async def prepare(self) -> None:
        """Check that the client can be started. Raises ProviderUnavailableError, which says what to install."""
        ...

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy into this client's launch options. Pure."""
        ...

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start the client; leaving the context releases everything, whatever happened, in bounded time.

        Raises UnknownSessionError on entering if the client does not have the session to resume. Then nothing was
        reported or proposed, nothing is left running, and the run may be opened once more without the session.
        """
        ...


class Approver(Protocol):
    """A function that answers approval requests in this process. If it returns None, or an answer that
    does not count (for another input, or by somebody who may not), someone else can answer.
    """

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None: ...


class Publisher(Protocol):
    """Receives every stored event, in order. A publisher that raises is dropped and reported."""

    def __call__(self, event: Event) -> None: ...
