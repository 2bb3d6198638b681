"""Shared parts of run tests: a policy that denies nothing, a recording gate, stores that first do something else."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from proctor.policies import Deny, Event, Limits, Policy, ToolCall
from proctor.supervisor import CancelStep, GateAnswer, Launch, MemoryStore, Provider, Store
from proctor.supervisor.testing import FakeAdapter

OPEN = Policy(name="open", limits=Limits(max_tool_calls=1000))


def denying(action: Any, **more: Any) -> Policy:
    """A policy with a rule on `bash` and this action."""
    return Policy(name="p", tool_rules=(Deny(("bash",)),), on_violation=action, **more)


class RecordingGate:
    """A gate that records its calls; `decide` returns the answer to each, or whether it may run."""

    def __init__(self, decide: Callable[[ToolCall], GateAnswer | bool] = lambda call: True) -> None:
        self.calls: list[ToolCall] = []
        self._decide = decide

    async def __call__(self, call: ToolCall) -> GateAnswer:
        self.calls.append(call)
        answer = self._decide(call)
        return answer if isinstance(answer, GateAnswer) else GateAnswer(allowed=answer)


def in_turn(*answers: GateAnswer | bool) -> Callable[[ToolCall], GateAnswer | bool]:
    """One answer after another, for any calls."""
    left = iter(answers)
    return lambda call: next(left)


class Speaking(FakeAdapter):
    """An agent that reports what its `events` yield, and has no cancel step."""

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        yield self

    def events(self) -> AsyncIterator[Event]:
        """Its stream."""
        raise NotImplementedError

    def cancel_steps(self) -> Sequence[CancelStep]:
        """None: only its task can be cancelled."""
        return ()


class Before(MemoryStore):
    """Before it stores an event of a type, it does something, or raises an error."""

    def __init__(self, kind: type[Event] | tuple[type[Event], ...], first: Callable[[], Awaitable[Any]] | Exception):
        super().__init__()
        self._kind, self._first = kind, first

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        if any(isinstance(event, self._kind) for event in events):
            if isinstance(self._first, Exception):
                raise self._first
            await self._first()
        return await super().append(events, **owned)


def held_up(method: str, *, shield: bool = False) -> tuple[MemoryStore, anyio.Event, anyio.Event]:
    """A store whose calls of a method wait; the events of such a call, and of its continuation."""
    begun, goes_on = anyio.Event(), anyio.Event()

    async def waits(usual: Callable[..., Awaitable[Any]], *given: Any, **more: Any) -> Any:
        begun.set()
        with anyio.CancelScope(shield=shield):
            await goes_on.wait()
        return await usual(*given, **more)

    return around(**{method: waits}), begun, goes_on


async def record_of(store: Store) -> list[Event]:
    """The events of the only run of a store."""
    (run,) = await store.runs()
    return [event async for event in store.read(run.session_id)]


def around(**methods: Callable[..., Awaitable[Any]]) -> MemoryStore:
    """A store whose methods of these names are replaced: each function gets the original one and the arguments."""
    store = MemoryStore()
    for name, method in methods.items():
        setattr(store, name, partial(method, getattr(store, name)))
    return store
