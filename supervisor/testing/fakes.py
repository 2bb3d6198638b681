"""An agent in memory that follows its steps and keeps what happened to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec

from proctor.policies.events import TERMINAL, Event, RunCompleted, ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall, call_fields
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy

from ..ports.adapter import CancelStep, GateAnswer, Launch, LaunchOptions, Provider
from ..ports.stored_types import ApprovalAnswer, ApprovalRequest

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Propose one call. If it may run, it returns `output` or fails with `error`.

    `ungated`: run it without asking the gate, like a client that cannot hold this call. `first` is
    awaited before it asks, `meanwhile` while the call runs.
    """

    name: str
    input: dict[str, Any] = {}
    id: str = ""
    turn: int = 0
    output: Any = "done"
    error: str | None = None
    ungated: bool = False
    first: Callable[[], Awaitable[object]] | None = None
    meanwhile: Callable[[], Awaitable[object]] | None = None


class Together(msgspec.Struct, frozen=True):
    """Propose several calls at once."""

    asks: tuple[Ask, ...]


class Pause(msgspec.Struct, frozen=True):
    """Do nothing for some seconds, or until interrupted; without a number, for ever."""

    seconds: float | None = None


class Crash(msgspec.Struct, frozen=True):
    """Fail like a client: the stream of events raises this."""

    error: Exception


class Stop(msgspec.Struct, frozen=True):
    """End the stream of events without saying how it ended."""


Step: TypeAlias = Event | Ask | Together | Pause | Crash | Stop


class FakeAdapter:
    """The in-memory twin of an Adapter.

    Args:
        steps: what every run of it does; it then completes with `output`, unless a step said how it ends.
        gate: which calls it proposes to the gate; with `some` and `none`, calls that are not proposed run at once.
        deaf: how many cancel steps it ignores; the last one always ends it.
        capabilities: more of what it can do.
        unavailable: what `prepare` raises.
        lacking: what `open` raises for a session that it is to resume.

    After a run, `ran` has the calls that ran, `answers` the gate's answer to each call, `launches` how it was
    started, `steps_taken` which steps were taken, and `closed` how often a client was released.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        output: Any = "done",
        gate: Any = "all",
        deaf: int = 0,
        rung_s: float = 1.0,
        capabilities: Capabilities | None = None,
        unavailable: Exception | None = None,
        lacking: Exception | None = None,
        name: str = "fake",
    ) -> None:
        self.steps = tuple(steps)
        self.output = output
        self.deaf = deaf
        self.rung_s = rung_s
        self._name = name
        self._capabilities = capabilities or Capabilities(gate=gate, usage="per_turn")
        self._unavailable = unavailable
        self._lacking = lacking
        self.ran: list[ToolCall] = []
        self.answers: dict[str, GateAnswer] = {}
        self.launches: list[Launch] = []
        self.steps_taken: list[str] = []
        self.compiled = 0
        self.closed = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def gated(self) -> bool:
        """Whether calls are held at the gate."""
        return self._capabilities.gate != "none"

    async def prepare(self) -> None:
        if self._unavailable is not None:
            raise self._unavailable

    def compile(self, policy: Policy) -> LaunchOptions:
        self.compiled += 1
        return LaunchOptions()

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        self.launches.append(launch)
        return self._opened(launch)

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        try:
            if self._lacking is not None and launch.resume is not None:
                raise self._lacking
            async with anyio.create_task_group() as tasks:
                yield FakeProvider(self, launch, tasks.start_soon)
                tasks.cancel_scope.cancel()
        finally:
            self.closed += 1


_Item: TypeAlias = tuple[Event | Exception, anyio.Event]


class _Reports(msgspec.Struct):
    """Sends events and errors; each is handled before the next one is sent."""

    stream: MemoryObjectSendStream[_Item]

    async def send(self, item: Event | Exception) -> None:
        taken = anyio.Event()
        await self.stream.send((item, taken))
        await taken.wait()


class FakeProvider:
    """One running session of a fake agent."""

    def __init__(self, adapter: FakeAdapter, launch: Launch, spawn: Any) -> None:
        self._adapter = adapter
        self._launch = launch
        self._spawn = spawn
        self._scope = anyio.CancelScope()
        self._calls = 0

    async def events(self) -> AsyncIterator[Event]:
        send, receive = anyio.create_memory_object_stream[_Item](0)
        self._spawn(self._act, _Reports(send))
        with receive:
            async for item, taken in receive:
                if isinstance(item, Exception):
                    raise item
                yield item
                taken.set()

    def cancel_steps(self) -> Sequence[CancelStep]:
        names = ("interrupt", "terminate", "kill")
        deaf = min(self._adapter.deaf, len(names) - 1)
        return [
            CancelStep(name=name, act=self._cancel_step(name, heard=n >= deaf), bound_s=self._adapter.rung_s)
            for n, name in enumerate(names)
        ]

    def _cancel_step(self, name: str, *, heard: bool) -> Any:
        async def act() -> dict[str, Any]:
            self._adapter.steps_taken.append(name)
            if heard:
                self._scope.cancel()
            return {"heard": heard}

        return act

    async def _act(self, reports: _Reports) -> None:
        with reports.stream, self._scope:
            try:
                for step in self._adapter.steps:
                    if await self._step(step, reports):
                        return
                await reports.send(RunCompleted(output=self._adapter.output))
            except anyio.BrokenResourceError:
                return

    async def _step(self, step: Step, reports: _Reports) -> bool:
        match step:
            case Ask():
                return await self._propose(step, reports)
            case Together():
                async with anyio.create_task_group() as tasks:
                    for proposed in step.asks:
                        tasks.start_soon(self._propose, proposed, reports)
            case Pause():
                await (anyio.sleep_forever() if step.seconds is None else anyio.sleep(step.seconds))
            case Crash():
                await reports.send(step.error)
                return True
            case Stop():
                return True
            case Event():
                await reports.send(step)
                return isinstance(step, TERMINAL)
        return False

    async def _propose(self, proposed: Ask, reports: _Reports) -> bool:
        if proposed.first is not None:
            await proposed.first()
        self._calls += 1
        call = ToolCall(
            id=proposed.id or f"call-{self._calls}", name=proposed.name, input=proposed.input, turn=proposed.turn
        )
        if self._adapter.gated and not proposed.ungated:
            answer = await self._launch.gate(call)
            self._adapter.answers[call.id] = answer
            if not answer.allowed:
                return answer.stop
        else:
            await reports.send(ToolCallStarted(**call_fields(call)))
        self._adapter.ran.append(call)
        if proposed.meanwhile is not None:
            await proposed.meanwhile()
        await reports.send(_outcome(call, proposed))
        return False


def _outcome(call: ToolCall, proposed: Ask) -> Event:
    if proposed.error is not None:
        return ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error=proposed.error)
    return ToolCallCompleted(tool_call_id=call.id, tool_name=call.name, tool_output=proposed.output)


@dataclass(eq=False)
class FakeApprover:
    """Gives one answer to every request: yes, no, or (None) none; keeps what it was asked.

    `error` is raised instead. `on_request` is called with each request before it is answered.
    """

    granted: bool | None
    _: KW_ONLY
    by: str = "ana"
    error: Exception | None = None
    on_request: Callable[[ApprovalRequest], object] | None = None
    requests: list[ApprovalRequest] = field(default_factory=list, init=False)
    first_asked: anyio.Event = field(default_factory=anyio.Event, init=False)

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.requests.append(request)
        self.first_asked.set()
        if self.on_request is not None:
            self.on_request(request)
        if self.error is not None:
            raise self.error
        if self.granted is None:
            return None
        return ApprovalAnswer(granted=self.granted, by=self.by, input_digest=request.input_digest)


class FakePublisher:
    """Keeps the events it is handed; raises at the n-th, where `fails_at` says so."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.events: list[Event] = []
        self._fails_at = fails_at

    def __call__(self, event: Event) -> None:
        if self._fails_at is not None and len(self.events) + 1 >= self._fails_at:
            raise RuntimeError("the publisher failed")
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


PATIENCE_S: Final = 120
"""Seconds. Nothing that works comes near it: it is no measure of speed."""
