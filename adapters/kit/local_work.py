"""A provider that works in this process and runs commands: its task, its ladder, its directory."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from proctor.policies.stream.events import Event
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports import Rung

from .event_stream import EventStream
from .process_tree import process_rungs
from .subprocesses import Subprocesses

INTERRUPT_S = 3.0


class LocalProvider:
    """Reports what one job emits, and ends it with all its processes."""

    def __init__(self, stream: EventStream, commands: Subprocesses) -> None:
        self._stream = stream
        self._commands = commands
        self._scope = anyio.CancelScope()

    def events(self) -> AsyncIterator[Event]:
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        return [
            Rung(name="interrupt", act=self._interrupt, bound_s=INTERRUPT_S),
            *process_rungs(self._commands.tree, ended=self._give_up),
        ]

    async def work(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do the job; whatever becomes of it, its processes end first and the stream then."""
        error: ProviderError | None = None
        try:
            with self._scope:
                await job()
        except Exception as fault:
            error = ProviderError(f"the agent failed: {_root(fault)}", details={"error": repr(_root(fault))})
            error.__cause__ = fault
        finally:
            await self._commands.end()
            self._stream.close(error)

    async def _interrupt(self) -> dict[str, Any]:
        seen = self._commands.tree.alive()
        self._scope.cancel()
        return {"seen": seen}

    async def _give_up(self) -> None:
        self._stream.close()
        self._stream.abandon()


@asynccontextmanager
async def working(
    job: Callable[[], Awaitable[None]], stream: EventStream, commands: Subprocesses
) -> AsyncIterator[LocalProvider]:
    """Run a job beside the one who reads its stream; on leaving, job and processes are gone."""
    provider = LocalProvider(stream, commands)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.work, job)
            try:
                yield provider
            finally:
                stream.abandon()
                tasks.cancel_scope.cancel()
    finally:
        await commands.end()


@contextmanager
def workspace_directory(given: Path | None) -> Iterator[Path]:
    """The given directory, or a new one that is removed at the end."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="proctor-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def _root(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
