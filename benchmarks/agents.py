"""The agents of the benchmarks: a session is one async iterator of events, ended by closing its scope."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio

from proctor.policies import Capabilities, Policy
from proctor.policies.events import Event
from proctor.supervisor import Launch, LaunchOptions, Provider, Rung

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

    def ladder(self) -> Sequence[Rung]:
        return [Rung(name="interrupt", act=self._interrupt, bound_s=1.0)]

    async def _interrupt(self) -> dict[str, Any] | None:
        self._cancelled()
        self._scope.cancel()
        return None
