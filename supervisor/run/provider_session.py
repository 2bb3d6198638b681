"""One provider: its capabilities, its start, reading its events to the end, and cancelling it step by step."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec

from proctor.policies.events import ErrorOccurred, Event
from proctor.policies.events.run_context import Capabilities, RunContext
from proctor.policies.policy import Policy
from proctor.policies.values.foreign_code import as_error, error_text, isolated, named_error, to_jsonable

from ..arguments import check_methods, check_seconds, isolated_member
from ..errors import ProviderError, UnknownSessionError, UsageError
from ..machine.ending import described
from ..ports.adapter import Adapter, CancelStep, EndOrphans, Launch, LaunchOptions, Provider
from .tasks import DetachedTask, OneShotEvent

if TYPE_CHECKING:
    from .services import Clock, Services

T = TypeVar("T")


async def run_cancel_steps(
    steps: Sequence[CancelStep],
    ended: OneShotEvent | anyio.Event,
    clock: Clock,
    on_step: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run one cancel step after another until `ended` is set; returns what each did. `on_step` is called as each
    begins.

    A step that raises, or takes longer than its bound, is followed by the next.
    """
    taken: list[dict[str, Any]] = []
    for step in steps:
        if ended.is_set():
            break
        taken.append(await _run_step(step, ended, clock, on_step))
    return taken


async def _run_step(
    step: CancelStep, ended: OneShotEvent | anyio.Event, clock: Clock, on_step: Callable[[], None]
) -> dict[str, Any]:
    started = clock.monotonic()
    taken: dict[str, Any] = {"rung": error_text(step.name)}

    async def acted() -> dict[str, Any] | None:
        on_step()
        return await step.act()

    act = DetachedTask(acted)
    try:
        check_seconds(endless=False, bound_s=step.bound_s)
        with anyio.move_on_after(step.bound_s):
            await act.done.wait()
            if act.error is not None:  # the next step is the answer to a step that fails
                taken["error"] = named_error(act.error)
            elif act.result:
                taken["evidence"] = to_jsonable(act.result)
            await ended.wait()
    except UsageError as error:
        taken["error"] = named_error(error)
    act.cancel()
    taken["took_ms"] = round((clock.monotonic() - started) * 1000, 1)
    taken["ended"] = ended.is_set()
    return taken


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run passes on to its child runs: its services, with the store of its budgets and who approves there, its
    compiled policy, its context and the thread of its event loop.
    """

    run_id: str
    services: Services
    compiled: Any
    context: RunContext
    thread: int = msgspec.field(default_factory=threading.get_ident)


_parent: ContextVar[Parent | None] = ContextVar("parent", default=None)


def parent() -> Parent | None:
    """The run that this task or thread works for, if it has budgets to pass on."""
    return _parent.get()


def work_for(run: Parent | None) -> None:
    """Make the runs that this task starts from now on child runs of that run."""
    if _parent.get() is not run:
        _parent.set(run)


TURN = 128
"""How many events are read from a provider that never waits before other tasks run."""

EXIT_S = 30.0
"""How long a client may take to exit after its stream has ended."""


class Next(Enum):
    """What to do after an event of a provider."""

    READ = "at once"
    REST = "after a rest"
    END = "not at all"


READ = Next.READ


@dataclass(slots=True, eq=False)
class ProviderReader:
    """Reads a provider. `handle_event(event)` is called for each event and says how to continue; `rest()` is awaited
    after each `TURN` of them, and whenever that says so. Runs that its client's code starts are children of `parent`.
    """

    _adapter: Adapter
    _handle_event: Callable[[Event], Next]
    _rest: Callable[[], Awaitable[None]]
    _parent: Parent | None = None
    steps_taken: tuple[dict[str, Any], ...] = field(default=(), init=False)
    released: bool = field(default=True, init=False)
    _client: DetachedTask[None] | None = field(default=None, init=False)
    _ended: OneShotEvent | None = field(default=None, init=False)
    _provider: Provider | None = field(default=None, init=False)
    _walking: OneShotEvent | None = field(default=None, init=False)
    _abandoned: bool = field(default=False, init=False)

    async def run(self, launch: Launch) -> Exception | None:
        """Start the client and read it to its end; returns the error that it raised, or that it does not end."""
        if self._abandoned:
            return None
        self._ended = ended = OneShotEvent()
        self._client = client = DetachedTask(partial(self._live, launch, ended))
        await ended.wait()
        self.released = await client.released(0 if self._abandoned else EXIT_S)
        if self._walking is not None:
            await self._walking.wait()
        if self.released:
            return client.error
        self.steps_taken += ({"rung": "release", "released": False},)
        return ProviderError("the agent was not released: it does not end, and is left behind")

    async def _live(self, launch: Launch, ended: OneShotEvent) -> None:
        work_for(self._parent)
        try:
            await _checked("prepare", Awaitable, self._adapter.prepare())
            while True:
                try:
                    opened = _checked("open", AbstractAsyncContextManager, self._adapter.open(launch))
                    async with opened as provider:
                        check_methods("the adapter's session", provider, "events", "cancel_steps")
                        self._provider = provider
                        try:
                            await self._read(provider, ended)
                        finally:
                            ended.set()
                    if self._provider is None:  # the context has suppressed what was wrong with it
                        raise UsageError("the adapter's `open` gave no session that can be read, and hid the error")
                except Exception as raised:
                    launch = await self._reopened(launch, raised)
                else:
                    return
        finally:
            ended.set()

    async def _reopened(self, launch: Launch, raised: Exception) -> Launch:
        """Open a new session if the client does not have the one to resume. Raises any other error."""
        error, begun = as_error(raised), self._provider is not None or self._walking is not None
        if begun or launch.load_transcript is None or not isinstance(error, UnknownSessionError):
            raise raised
        self._handle_event(session_missing(error))
        return launch.with_transcript(await launch.load_transcript())

    async def cancel(self, clock: Clock, on_step: Callable[[], None]) -> None:
        """Cancel the client step by step, once; `on_step` is called as each begins."""
        if self._ended is None or self._client is None or self._ended.is_set():
            return
        self._walking = OneShotEvent()
        try:
            taken = await run_cancel_steps(self._cancel_steps(), self._ended, clock, on_step)
            self.steps_taken += tuple(taken)
        finally:
            if not self._ended.is_set():
                self.steps_taken += ({"rung": "abandon"},)
                self.abandon()
            self._walking.set()

    def abandon(self) -> None:
        """Cancel the client's task and do not wait for it; a client that was not started will not be."""
        self._abandoned = True
        if self._ended is not None and self._client is not None:
            self._client.cancel()
            self._ended.set()

    def _cancel_steps(self) -> Sequence[CancelStep]:
        try:
            return () if self._provider is None else cancel_steps_of(self._provider)
        except Exception as error:
            self.steps_taken += ({"rung": "ladder", "error": named_error(error)},)
            return ()

    async def _read(self, provider: Provider, ended: OneShotEvent) -> None:
        events = _checked("events", AsyncIterable, provider.events())
        handle_event, left = self._handle_event, TURN
        try:
            async for event in events:
                how = handle_event(event)
                left -= 1
                if how is not READ or not left:
                    if how is Next.END:
                        return
                    left = TURN
                    await self._rest()
        finally:
            ended.set()  # `EXIT_S` bounds the rest
            await _close(events)


async def _close(events: AsyncIterable[Event]) -> None:
    """Close a stream that may not have ended; that it ends then is no error, whatever task group it was in."""
    close = getattr(events, "aclose", None)
    if close is not None:
        try:
            await close()
        except BaseExceptionGroup as raised:
            if raised.split(GeneratorExit)[1] is not None:
                raise


def session_missing(error: UnknownSessionError) -> ErrorOccurred:
    """The event that explains why a run replays its session instead of resuming the client's own."""
    message = f"{error.reason}: the agent starts a new one, with the conversation so far"
    return ErrorOccurred(code=error.code, message=message, provider_error=described(error).get("details"))


def capabilities_of(adapter: Adapter) -> Capabilities:
    """The capabilities of an adapter; raises as `_member` does."""
    return _member("capabilities", Capabilities, lambda: adapter.capabilities)


def name_of(adapter: Adapter) -> str:
    """The name of an adapter; raises as `_member` does."""
    return _member("name", str, lambda: getattr(adapter, "name", None))


def launch_options(adapter: Adapter, policy: Policy) -> LaunchOptions:
    """A policy as an adapter's launch options; raises as `_member` does."""
    return _member("compile", LaunchOptions, lambda: adapter.compile(policy))


def end_orphans_of(adapter: Adapter) -> EndOrphans | None:
    """The adapter's function that ends the remains of its runs, if it has one. Raises as `_member` does."""
    found: EndOrphans | None = isolated_member("end_orphans", lambda: getattr(adapter, "end_orphans", None))
    return found


def _member(name: str, kind: type[T], read: Callable[[], Any]) -> T:
    """What a member of an adapter gives. Raises what it raises, as an Exception, and UsageError for anything else."""
    given: T = _checked(name, kind, isolated_member(name, read))
    return given


def _checked(name: str, kind: type, given: T) -> T:
    """What a member of an adapter, or of its session, has given. Raises UsageError for anything of another kind."""
    if not isinstance(given, kind):
        raise UsageError(f"the adapter's `{name}` gives a `{type(given).__name__}`, not a `{kind.__name__}`")
    return given


def cancel_steps_of(provider: Provider) -> Sequence[CancelStep]:
    """The steps that end a provider. Raises what it raises, as an Exception, and UsageError for anything else."""
    steps = isolated(lambda: tuple(provider.cancel_steps()))
    return [_checked("cancel_steps", CancelStep, step) for step in steps]
