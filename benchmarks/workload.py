"""The policies, sessions and agents that are measured."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import anyio
from msgspec.structs import replace

from proctor.policies import (
    Capabilities,
    CompiledPolicy,
    Policy,
    ToolCall,
    compile_policy,
    merge_policies,
    parse_policies,
)
from proctor.policies.events import Event, RunCompleted, ToolCallCompleted, ToolCallStarted, TurnStarted
from proctor.supervisor import CancelStep, Launch, LaunchOptions, Provider

MANY = 1_000_000_000
RESOURCES = 1_000
MOST = 2_500
"""Rules of one policy."""
RULES = 10
"""How many rules a policy has, where nothing else is said."""


class Step(NamedTuple):
    """One call as the gate sees it, and its two events."""

    call: ToolCall
    started: ToolCallStarted
    completed: ToolCallCompleted


def ordinary(rules: int = RULES) -> CompiledPolicy:
    """A policy of so many rules, two of which name each tool that is called: an order and a count."""
    return compiled(_ordinary(rules))


def _ordinary(rules: int) -> list[dict[str, Any]]:
    return [
        {"type": "before", "first": "read", "then": "edit"},
        {"type": "count", "tool": ["read", "edit"], "max": MANY},
        *_others(rules - 2),
    ]


def keyed(rules: int) -> CompiledPolicy:
    """The same with rules that hold for each file on its own."""
    return compiled(
        [
            {"type": "before", "first": "read", "then": "edit", "key": "$.path"},
            {"type": "count", "tool": ["read", "edit"], "max": MANY, "key": "$.path"},
            *_others(rules - 2),
        ]
    )


def limited(rules: int) -> CompiledPolicy:
    """The ordinary policy with a limit of each kind, none of which is ever reached."""
    kinds = (
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "duration_ms",
        "idle_ms",
        "tool_calls",
        "turns",
    )
    return compiled(_ordinary(rules), {f"max_{kind}": MANY for kind in kinds})


def _others(count: int) -> list[dict[str, Any]]:
    return [{"type": "count", "tool": f"tool_{n}", "max": MANY} for n in range(count)]


def compiled(rules: list[dict[str, Any]], limits: dict[str, int] | None = None) -> CompiledPolicy:
    """Policies of these rules and limits: one, or as many as hold the rules."""
    policies = []
    for first in range(0, max(1, len(rules)), MOST):
        name = f"benchmark {first}" if first else "benchmark"
        policies += parse_policies({"name": name, "rules": rules[first : first + MOST], "limits": limits or {}})
    return compile_policy(merge_policies(policies))


def steps(first: int, count: int) -> list[Step]:
    """Calls number `first` and on of a session that reads each file before it edits it."""
    return [_step(n) for n in range(first, first + count)]


def _step(number: int) -> Step:
    id, turn = f"call-{number}", number + 1
    name = "edit" if number % 2 else "read"
    input = {"path": f"src/file_{number // 2 % RESOURCES}.py", "line": number}
    return Step(
        ToolCall(id=id, name=name, input=input, turn=turn),
        ToolCallStarted(tool_call_id=id, tool_name=name, tool_input=input, turn=turn),
        ToolCallCompleted(tool_call_id=id, tool_name=name, tool_output="ok"),
    )


def timed(session: Sequence[Step]) -> list[Step]:
    """The same calls with the time of each event, a millisecond after the last."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)

    def at(event: Any, number: int) -> Any:
        return replace(event, at=begun + timedelta(milliseconds=number))

    return [Step(s.call, at(s.started, 2 * n), at(s.completed, 2 * n + 1)) for n, s in enumerate(session)]


def events_of(session: Sequence[Step]) -> list[Event]:
    """Their events in order."""
    return [event for step in session for event in (step.started, step.completed)]


Session: TypeAlias = Callable[[Launch], AsyncIterator[Event]]


class Agent:
    """An adapter around one function; `cancelled` is called when the supervisor first orders an end."""

    name = "benchmark"
    capabilities = Capabilities(gate="all", usage="per_turn")

    def __init__(self, session: Session, cancelled: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._cancelled = cancelled

    async def prepare(self) -> None:
        pass

    def compile(self, policy: Policy) -> LaunchOptions:
        return LaunchOptions()

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        with anyio.CancelScope() as scope:
            yield _Running(self._session(launch), scope, self._cancelled)


class _Running:
    def __init__(
        self, session: AsyncIterator[Event], scope: anyio.CancelScope, cancelled: Callable[[], None]
    ) -> None:
        self._session = session
        self._scope = scope
        self._cancelled = cancelled

    def events(self) -> AsyncIterator[Event]:
        return self._session

    def cancel_steps(self) -> Sequence[CancelStep]:
        return [CancelStep(name="interrupt", act=self._interrupt, bound_s=1.0)]

    async def _interrupt(self) -> dict[str, Any] | None:
        self._cancelled()
        self._scope.cancel()
        return None


def playing(events: Sequence[Event]) -> Session:
    """An agent's session that reports these events without a pause, and is done."""

    async def session(launch: Launch) -> AsyncIterator[Event]:
        for event in events:
            yield event
        yield RunCompleted(output="done")

    return session


def asking(made: Sequence[Step], seconds: Callable[[float], object] = lambda _: None) -> Session:
    """One that proposes these calls to the gate, one after another; `seconds` hears how long each waited."""

    async def session(launch: Launch) -> AsyncIterator[Event]:
        for step in made:
            begun = time.perf_counter()
            await launch.gate(step.call)
            seconds(time.perf_counter() - begun)
            yield step.completed
        yield RunCompleted(output="done")

    return session


async def silent(launch: Launch) -> AsyncIterator[Event]:
    """A session that begins, and says nothing more."""
    yield TurnStarted(turn=1)
    await anyio.sleep_forever()
