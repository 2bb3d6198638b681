"""One run: its members are tried in order until one does it, or one fails after something ran."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import msgspec

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import (
    TERMINAL,
    ErrorOccurred,
    Event,
    RunCompleted,
    SessionStarted,
    ToolCallStarted,
)
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError
from proctor.supervisor.ports.adapters import Adapter, GateAnswer, Launch, LaunchOptions, Provider, Rung
from proctor.supervisor.run.provider_reader import begins_anew
from proctor.supervisor.store.paging import closing

from ...kit.event_stream import EventStream
from ...kit.task_provider import GIVE_UP_S, provider_error
from .breaker import Breaker
from .counting import Counting

INTERRUPT_S = 5.0


class Member(msgspec.Struct, frozen=True):
    """One adapter, its name among the others, and its health."""

    label: str
    adapter: Adapter
    breaker: Breaker


class FallbackSession:
    """The provider of one run.

    # INVARIANT: another member is tried only while nothing has run: no call was let through or reported as started
    and, of a client that does not ask about all its calls, nothing was reported at all; and never once the run is
    being cancelled, which says nothing of a client's health.
    """

    def __init__(self, members: Sequence[Member], launch: Launch, options: Sequence[LaunchOptions]) -> None:
        self._members = members
        self._launch = launch
        self._options = options
        self._stream = EventStream()
        self._counting = Counting()
        self._provider: Provider | None = None
        self._scope = anyio.CancelScope()
        self._ran = False
        self._stopping = False
        self._ended = False
        self._ended_badly: ProviderError | None = None

    def events(self) -> AsyncIterator[Event]:
        """The events of the run; see Provider."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """The ladder of the client that runs; its last rung leaves it. See Provider."""
        rungs = list(self._provider.ladder()) if self._provider is not None else []
        first = Rung(name="no fallback", act=self._stop, bound_s=0.001 if rungs else INTERRUPT_S)
        return [first, *rungs, Rung(name="leave", act=self._leave, bound_s=GIVE_UP_S)]

    async def run(self, order: Sequence[int]) -> None:
        """Try the members in this order; the stream ends with it."""
        failures: list[str] = []
        error: ProviderError | None = None
        try:
            with self._scope:
                for number in order:
                    member = self._members[number]
                    if not member.breaker.may_try(anyio.current_time()):
                        failures.append(
                            f"`{member.label}` is left alone after {member.breaker.health.failures} failures"
                        )
                        continue
                    error = await self._attempt(number)
                    if error is None or self._ran or self._stopping:
                        break
                    failures.append(f"`{member.label}`: {error}")
                    await self._tell_failure(member, error)
                else:
                    error = ProviderUnavailableError(f"no agent is left to try: {'; '.join(failures)}")
        finally:
            self._stream.close(None if self._stopping or self._ended else error)

    async def _attempt(self, number: int) -> ProviderError | None:
        """Have one member do it; how it failed, if it did."""
        member = self._members[number]
        trial = member.breaker.begin(anyio.current_time())
        error: ProviderError | None = None
        finished = False
        try:
            error = await self._done_by(number)
            finished = True
        except Exception as raised:
            error, finished = provider_error(raised), True
        finally:  # whoever reads leaves when the run is over: what it came to is known then
            self._provider = None
            ok = (error or self._ended_badly) is None if (finished or self._ended) and not self._stopping else None
            member.breaker.end(anyio.current_time(), ok=ok, trial=trial)
        return error

    async def _done_by(self, number: int) -> ProviderError | None:
        member = self._members[number]
        await member.adapter.prepare()
        launch = self._launch_of(number)
        try:
            return await self._run(member, launch)
        except UnknownSessionError as error:
            if launch.resume is None or self._provider is not None or self._stopping:
                raise
            await self._stream.emit(begins_anew(error))
        return await self._run(member, launch.anew(self._launch.transcript))

    async def _run(self, member: Member, launch: Launch) -> ProviderError | None:
        async with member.adapter.open(launch) as provider:
            self._provider = provider
            if self._stopping:
                return None
            await self._stream.emit(SessionStarted(metadata={"agent": member.label}))
            async with closing(provider.events()) as events:
                async for event in events:
                    failure = self._failure_in(event)
                    if failure is not None and not (self._ran or self._stopping):
                        return failure
                    if isinstance(event, TERMINAL):
                        self._ended, self._ended_badly = True, failure
                    await self._stream.emit(self._counting.event(self._named(event, member)))
                    if self._ended:
                        return failure
                    self._ran = self._ran or member.adapter.capabilities.gate != "all"
        return None if self._stopping else ProviderError(f"`{member.label}` ended its stream without a result")

    def _failure_in(self, event: Event) -> ProviderError | None:
        if isinstance(event, ToolCallStarted):
            self._ran = True
        if not isinstance(event, TERMINAL) or isinstance(event, RunCompleted):
            return None
        reported: Any = getattr(event, "error", None) or getattr(event, "reason", None)
        message = reported.get("message") if isinstance(reported, dict) else reported
        return ProviderError(str(message or "the client reported a failure"), details={"error": reported})

    def _named(self, event: Event, member: Member) -> Event:
        """The client's own id of the session, with whose it is."""
        if isinstance(event, SessionStarted):
            id = event.provider_session_id
            metadata = {**event.metadata, "agent": member.label}
            return msgspec.structs.replace(
                event, provider_session_id=f"{member.label}:{id}" if id else None, metadata=metadata
            )
        return event

    def _launch_of(self, number: int) -> Launch:
        member = self._members[number]
        launch = msgspec.structs.replace(self._launch, gate=self._gate, options=self._options[number])
        own = own_session(launch.transcript, member.label) if member.adapter.capabilities.resume else None
        return launch if own is None else msgspec.structs.replace(launch, resume=own, transcript=())

    async def _gate(self, call: ToolCall) -> GateAnswer:
        answer = await self._launch.gate(self._counting.call(call))
        self._ran = self._ran or answer.allowed
        self._stopping = self._stopping or answer.stop
        return answer

    async def _tell_failure(self, member: Member, error: ProviderError) -> None:
        self._counting.next_client()
        await self._stream.emit(
            ErrorOccurred(
                code="agent_failed",
                message=f"`{member.label}` failed before anything ran: {error}",
                provider_error=error.details or None,
            )
        )

    async def _stop(self) -> dict[str, Any] | None:
        self._stopping = True
        if self._provider is None:
            self._scope.cancel()
        return None

    async def _leave(self) -> dict[str, Any] | None:
        self._scope.cancel()
        self._stream.close()
        self._stream.abandon()
        return None


def last_agent(transcript: Sequence[Event], labels: Sequence[str]) -> str | None:
    """Which of these ran the session last; one that ran it by itself counts."""
    for event in reversed(transcript):
        if isinstance(event, SessionStarted):
            agent = event.metadata.get("agent", event.provider)
            if agent in labels:
                return str(agent)
    return None


def own_session(transcript: Sequence[Event], label: str) -> str | None:
    """The client's own id of the session, if it is the one that ran it last."""
    if last_agent(transcript, [label]) is None:
        return None
    for event in reversed(transcript):
        if isinstance(event, SessionStarted):
            agent = event.metadata.get("agent", event.provider)
            if agent != label:
                return None  # another one went on since: this client does not know of it
            if event.provider_session_id:
                return event.provider_session_id.removeprefix(f"{label}:")
    return None
