"""A loop at work, as a provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from proctor.supervisor.ports.adapters import Launch, Provider

from ...kit.event_stream import EventStream
from ...kit.task_provider import TaskProvider, at_work
from .loop_gate import LoopGate


@asynccontextmanager
async def looping(launch: Launch, loop: Callable[[LoopGate], Awaitable[None]]) -> AsyncIterator[Provider]:
    """Run a loop under a gate of its own; leaving cancels it."""
    stream = EventStream()
    provider = TaskProvider(stream, launch)
    async with at_work(provider, partial(loop, LoopGate(launch, stream, provider))):
        yield provider
