"""Several adapters as one, in the order in which they are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import FIGURES, Capabilities, Tool
from proctor.policies.policy import Policy
from proctor.policies.values.amounts import counted
from proctor.supervisor.arguments import check_adapter
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.ports.adapter import Adapter, CancelStep, GateAnswer, Launch, LaunchOptions, Provider
from proctor.supervisor.ports.store import closing
from proctor.supervisor.run.provider_session import session_missing

from ..kit.function_tools import both
from ..kit.gate import EventStream
from ..kit.provider import GIVE_UP_S, helpers, provider_error


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one client: how often it failed in a row, and until when it is skipped, in seconds of the
    breaker's clock. `on_trial`: a single attempt has begun, and what it does first decides whether it is used again.
    """

    failures: int = 0
    closed_until: float | None = None
    on_trial: bool = False


class Breaker:
    """One client's health over all runs of an adapter: after so many `failures` in a row it is skipped for `rest_s`
    seconds; then one attempt decides, as soon as it works, or fails.
    """

    def __init__(self, failures: int, rest_s: float) -> None:
        self._most = failures
        self._rest_s = rest_s
        self.health = Health()

    def may_try(self, now: float) -> bool:
        health = self.health
        if health.closed_until is None:
            return True
        of_another_loop = health.closed_until > now + self._rest_s  # whose clock counts from another zero
        return of_another_loop or (now >= health.closed_until and not health.on_trial)

    def begin(self, now: float) -> bool:
        """Begin an attempt; returns whether it is the one on trial, to be passed to `end`."""
        trial = self.health.closed_until is not None
        if trial:
            self.health = replace(self.health, on_trial=True)
        return trial

    def mark_working(self) -> None:
        """What the attempt on trial is to show: others may begin, until one fails."""
        self.health = replace(self.health, closed_until=None, on_trial=False)

    def end(self, now: float, *, ok: bool | None, trial: bool = False) -> None:
        """End an attempt with success, failure, or (None) a cancel, which does not count."""
        if ok:
            self.health = Health()
        elif ok is None:
            if trial:
                self.health = replace(self.health, on_trial=False)
        else:
            failures = self.health.failures + 1
            rests = trial or failures >= self._most or self.health.closed_until is not None
            until = now + self._rest_s if rests else None
            on_trial = self.health.on_trial and not trial
            self.health = Health(failures=failures, closed_until=until, on_trial=on_trial)


T = TypeVar("T")
_GATES: tuple[Any, ...] = ("none", "some", "all")
_USAGES: tuple[Any, ...] = ("none", "at_end", "per_turn")


def weakest(each: Sequence[Capabilities]) -> Capabilities:
    """The capabilities that all of them have. Raises UsageError if they disagree on the meaning of a tool's name."""
    tables = [one.tools for one in each]
    names = {tuple(sorted(tool.name for tool in one.table)) for one in each}
    return Capabilities(
        gate=min((one.gate for one in each), key=_GATES.index),
        rewrite=all(one.rewrite for one in each),
        deny_ends_turn=any(one.deny_ends_turn for one in each),
        usage=min((one.usage for one in each), key=_USAGES.index),
        reports_cost=all(one.reports_cost for one in each),
        cancel_kills_children=all(one.cancel_kills_children for one in each),
        narrow=all(one.narrow for one in each),
        compiles=tuple(part for part in each[0].compiles if all(part in one.compiles for one in each)),
        tools=None if None in tables else _tools(tool for one in each for tool in one.table),
        other_tools=len(names) > 1 or any(one.other_tools for one in each),
        mostly=_tools(tool for one in each for tool in one.mostly),
        elsewhere=frozenset.intersection(*(one.elsewhere for one in each)),
        model=_same([one.model for one in each]),
        workspace=_same([one.workspace for one in each]),
        home=_same([one.home for one in each]),
        shell=_same([one.shell for one in each]),
    )


def _same(values: Sequence[T]) -> T | None:
    return values[0] if all(value == values[0] for value in values) else None


def _tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools of all; a tool of several clients has the inputs of all of them."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = tool.name.casefold()
        other = found.get(name)
        if other is None or other == tool:
            found[name] = tool
        elif (other.acts, other.acts_where) != (tool.acts, tool.acts_where):
            raise UsageError(f"two of these agents have a tool `{tool.name}` and mean different things by it")
        else:
            found[name] = both(other, tool)
    return tuple(found.values())


class Counting:
    """Continues the counts of earlier clients with those of the current one."""

    def __init__(self) -> None:
        self._client = 0
        self._turns = 0
        self._turns_before = 0
        self._reported: Counter[str] = Counter()
        self._total: ev.TokenUsageUpdated | None = None

    def next_client(self) -> None:
        self._client += 1
        self._turns_before = self._turns
        self._reported.clear()
        self._total = None

    def event(self, event: ev.Event) -> ev.Event:
        """An event of the current client, as an event of the run."""
        if isinstance(event, ev.TurnEvent | ev.ToolEvent) and event.turn:
            event = replace(event, turn=self._turn(event.turn))
        if not self._client:
            return event
        if isinstance(event, ev.TokenUsageUpdated):
            event = self._usage(event)
        if isinstance(event, ev.ToolEvent):
            parent = event.parent_tool_call_id
            event = replace(event, parent_tool_call_id=self._id(parent) if parent else None)
        if (id := getattr(event, "tool_call_id", None)) is not None:
            event = replace(event, tool_call_id=self._id(id))
        return replace(event, event_id=self._id(event.event_id)) if event.event_id else event

    def call(self, call: ToolCall) -> ToolCall:
        """A call of the current client, as a call of the run."""
        call = replace(call, turn=self._turn(call.turn)) if call.turn else call
        if not self._client:
            return call
        parent = call.parent_tool_call_id
        return replace(call, id=self._id(call.id), parent_tool_call_id=self._id(parent) if parent else None)

    def _turn(self, turn: int) -> int:
        counted = turn + self._turns_before
        self._turns = max(self._turns, counted)
        return counted

    def _id(self, id: str) -> str:
        return f"{self._client}.{id}"

    def _usage(self, event: ev.TokenUsageUpdated) -> ev.TokenUsageUpdated:
        """What a later client has used since its last report: its own totals are not the run's. A total below the
        last one stays an amount below zero, which fails the run.
        """
        figures = {name: count for name in FIGURES if (count := getattr(event, name)) is not None}
        if event.scope == "cumulative":
            last, self._total = self._total, event
            if last is not None and event.event_id and event.event_id == last.event_id:
                last = None  # one report told twice
            for name, count in figures.items():
                # fractions of a USD are rounded, so that one told twice is no step back
                added = round(count - self._reported[name], 12)
                fell = (getattr(last, name, None) or 0) > count
                figures[name] = 0 if added < 0 and not fell else added  # increments may have said more
            event = replace(event, scope="delta", **figures)
        self._reported.update(figures)
        return event


INTERRUPT_S = 5.0


class Member(msgspec.Struct, frozen=True):
    """One adapter, its name among the others, and its health."""

    label: str
    adapter: Adapter
    breaker: Breaker


class FallbackSession:
    """The provider of one run.

    # INVARIANT: another member is tried only if nothing has run: no call was allowed or reported as started and, for
    # a client that does not ask about all its calls, nothing was reported at all; and never once the run is being
    # cancelled, which does not count against a client's health.
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
        self._trial: Breaker | None = None
        self._stopping = False
        self._ended = False
        self._ended_badly: ProviderError | None = None

    def events(self) -> AsyncIterator[ev.Event]:
        """The events of the run; see Provider."""
        return self._stream.events()

    def cancel_steps(self) -> Sequence[CancelStep]:
        """The cancel steps of the client that runs; the last leaves it. See Provider."""
        steps = list(self._provider.cancel_steps()) if self._provider is not None else []
        first = CancelStep(name="no fallback", act=self._stop, bound_s=0.001 if steps else INTERRUPT_S)
        return [first, *steps, CancelStep(name="leave", act=self._leave, bound_s=GIVE_UP_S)]

    async def run(self, order: Sequence[int]) -> None:
        """Try the members in this order; the stream ends with it."""
        failures: list[str] = []
        error: ProviderError | None = None
        try:
            with self._scope:
                for number in order:
                    member = self._members[number]
                    if not member.breaker.may_try(anyio.current_time()):
                        failed = counted(member.breaker.health.failures, "failure")
                        failures.append(f"`{member.label}` is skipped after {failed}")
                        continue
                    error = await self._attempt(number)
                    if error is None or self._ran or self._stopping:
                        break
                    failures.append(f"`{member.label}`: {error}")
                    await self._report_failure(member, error)
                else:
                    error = ProviderUnavailableError(f"no agent is left to try: {'; '.join(failures)}")
        finally:
            self._stream.close(None if self._stopping or self._ended else error)

    async def _attempt(self, number: int) -> ProviderError | None:
        member = self._members[number]
        self._trial = member.breaker if member.breaker.begin(anyio.current_time()) else None
        error: ProviderError | None = None
        finished = False
        try:
            error = await self._prepare_and_run(number)
            finished = True
        except Exception as raised:
            error, finished = provider_error(raised), True
        finally:  # whoever reads leaves when the run is over: what it came to is known then
            self._provider = None
            trial, self._trial = self._trial, None
            ok = self._succeeded(error, finished=finished)
            member.breaker.end(anyio.current_time(), ok=ok, trial=trial is not None)
        return error

    def _succeeded(self, error: ProviderError | None, *, finished: bool) -> bool | None:
        """Whether an attempt succeeded; None where it was cancelled before that was known."""
        if self._stopping or not (finished or self._ended):
            return None
        return error is None and self._ended_badly is None

    async def _prepare_and_run(self, number: int) -> ProviderError | None:
        member = self._members[number]
        await member.adapter.prepare()
        launch = self._launch_of(number)
        try:
            return await self._run(member, launch)
        except UnknownSessionError as error:
            if launch.resume is None or self._provider is not None or self._stopping:
                raise
            await self._stream.send_and_wait(session_missing(error))
        return await self._run(member, launch.with_transcript(self._launch.transcript))

    async def _run(self, member: Member, launch: Launch) -> ProviderError | None:
        async with member.adapter.open(launch) as provider:
            self._provider = provider
            if self._stopping:
                return None
            await self._stream.send_and_wait(ev.SessionStarted(metadata={"agent": member.label}))
            async with closing(provider.events()) as events:
                async for event in events:
                    failure = self._failure_in(event)
                    if failure is not None and not (self._ran or self._stopping):
                        return failure
                    if isinstance(event, ev.TERMINAL):
                        self._ended, self._ended_badly = True, failure
                    await self._stream.send_and_wait(self._counting.event(self._named(event, member)))
                    if self._ended:
                        return failure
                    self._ran = self._ran or member.adapter.capabilities.gate != "all"
                    if self._ran:
                        self._mark_working()
        return None if self._stopping else ProviderError(f"`{member.label}` ended its stream without a result")

    def _failure_in(self, event: ev.Event) -> ProviderError | None:
        if isinstance(event, ev.ToolCallStarted):
            self._ran = True
        if not isinstance(event, ev.TERMINAL) or isinstance(event, ev.RunCompleted):
            return None
        reported: Any = getattr(event, "error", None) or getattr(event, "reason", None)
        message = reported.get("message") if isinstance(reported, dict) else reported
        return ProviderError(str(message or "the client reported a failure"), details={"error": reported})

    def _named(self, event: ev.Event, member: Member) -> ev.Event:
        """An event with the client's own session id, marked with the member."""
        if isinstance(event, ev.SessionStarted):
            id = event.provider_session_id
            metadata = {**event.metadata, "agent": member.label}
            return replace(event, provider_session_id=f"{member.label}:{id}" if id else None, metadata=metadata)
        return event

    def _launch_of(self, number: int) -> Launch:
        member = self._members[number]
        launch = replace(self._launch, gate=self._gate, options=self._options[number])
        own = own_session(launch.transcript, member.label) if member.adapter.capabilities.resume else None
        return launch if own is None else replace(launch, resume=own, transcript=())

    def _mark_working(self) -> None:
        """The client works as far as that can be seen before its run ends, which may be in hours."""
        if self._trial is not None:
            self._trial.mark_working()
            self._trial = None

    async def _gate(self, call: ToolCall) -> GateAnswer:
        self._mark_working()
        answer = await self._launch.gate(self._counting.call(call))
        self._ran = self._ran or answer.allowed
        self._stopping = self._stopping or answer.stop
        return answer

    async def _report_failure(self, member: Member, error: ProviderError) -> None:
        self._counting.next_client()
        await self._stream.send_and_wait(
            ev.ErrorOccurred(
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


def last_agent(transcript: Sequence[ev.Event], labels: Sequence[str]) -> str | None:
    """The agent among these that ran the session last, also outside of this adapter."""
    for event in reversed(transcript):
        if isinstance(event, ev.SessionStarted):
            agent = event.metadata.get("agent", event.provider)
            if agent in labels:
                return str(agent)
    return None


def own_session(transcript: Sequence[ev.Event], label: str) -> str | None:
    """The client's own session id, if this client ran the session last."""
    for event in reversed(transcript):
        if isinstance(event, ev.SessionStarted):
            agent = event.metadata.get("agent", event.provider)
            if agent != label:
                return None  # another one went on since: this client does not know of it
            if event.provider_session_id:
                return event.provider_session_id.removeprefix(f"{label}:")
    return None


class FallbackAdapter:
    """Tries several adapters in turn; see docs/agents/fallback.md.

    If a client fails before anything ran, the next one takes over. A client that fails several times in a row is
    skipped for a while. A session stays with the client that ran it last, as long as that client works.

    Args:
        adapters: the adapters, in the order in which they are tried.
        failures: the number of failures in a row after which a client is skipped.
        rest_s: the number of seconds it is skipped; then one run decides.

    Raises:
        UsageError: an argument is wrong, or two agents mean different things by one tool.
    """

    name = "fallback"

    def __init__(self, adapters: Sequence[Adapter], *, failures: int = 3, rest_s: float = 60.0) -> None:
        if not isinstance(adapters, Sequence) or len(adapters) < 2:
            raise UsageError("a fallback needs a list of at least two adapters, in order")
        for adapter in adapters:
            check_adapter(adapter)
        if failures < 1 or not rest_s >= 0:
            raise UsageError("`failures` must be at least 1, `rest_s` at least 0")
        self._members = [
            Member(label, adapter, Breaker(failures, rest_s))
            for label, adapter in zip(_labels(adapters), adapters, strict=True)
        ]
        self._end_orphans = [found for one in adapters if (found := getattr(one, "end_orphans", None)) is not None]
        weakest([one.capabilities for one in adapters])

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that all of them have."""
        return weakest([member.adapter.capabilities for member in self._members])

    def health(self) -> dict[str, Health]:
        """The health of each client, by its name."""
        return {member.label: member.breaker.health for member in self._members}

    async def prepare(self) -> None:
        """Check that one of them can be started. Raises ProviderUnavailableError, with what each of them lacks."""
        lacking = []
        for member in self._members:
            try:
                await member.adapter.prepare()
            except ProviderUnavailableError as error:
                lacking.append(f"`{member.label}`: {error}")
            else:
                return
        raise ProviderUnavailableError(f"none of these agents can be started: {'; '.join(lacking)}")

    def compile(self, policy: Policy) -> LaunchOptions:
        """The policy as the launch options of each adapter; what one of them cannot express is left out."""
        each = [member.adapter.compile(policy) for member in self._members]
        expressed = tuple(part for part in each[0].expressed if all(part in one.expressed for one in each))
        others = dict.fromkeys(part for one in each for part in (*one.expressed, *one.unexpressed))
        return LaunchOptions(
            options={"each": each},
            expressed=expressed,
            unexpressed=tuple(part for part in others if part not in expressed),
        )

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Try the adapters in order; leaving ends the one that runs."""
        given = launch.options.options.get("each")
        options = given if isinstance(given, list) else [LaunchOptions()] * len(self._members)
        session = FallbackSession(self._members, launch, options)
        async with helpers() as tasks:
            tasks.start_soon(session.run, self._order(launch))
            yield session

    async def end_orphans(self, mark: str) -> dict[str, Any]:
        """End what a run of any of them left running on this machine; returns the evidence."""
        evidence: dict[str, Any] = {}
        for end in dict.fromkeys(self._end_orphans):
            evidence |= await end(mark)
        return evidence

    def _order(self, launch: Launch) -> list[int]:
        """The numbers of the members, the one that ran the session last first."""
        labels = [member.label for member in self._members]
        last = last_agent(launch.transcript, labels)
        order = list(range(len(labels)))
        return order if last is None else sorted(order, key=lambda n: labels[n] != last)


def _labels(adapters: Sequence[Adapter]) -> Iterator[str]:
    seen: Counter[str] = Counter()
    for adapter in adapters:
        seen[adapter.name] += 1
        yield adapter.name if seen[adapter.name] == 1 else f"{adapter.name}-{seen[adapter.name]}"
