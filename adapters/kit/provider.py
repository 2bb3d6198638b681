"""A provider whose agent is a task of this process: its stream, its ladder, what it says when it fails."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall
from proctor.policies.values.foreign_code import error_text, named_error
from proctor.supervisor.errors import ProviderError, UsageError
from proctor.supervisor.ports.adapter import GateAnswer, Launch, Rung
from proctor.supervisor.run.tasks import own_error

from .gate import EventStream, GateLink
from .process_tree import process_rungs
from .subprocesses import Subprocesses
from .tasks import helpers

INTERRUPT_S = 5.0
GIVE_UP_S = 1.0


class TaskProvider:
    """Reports what one job emits, and ends it by cancelling `scope`; `failure` is what ended it otherwise.

    The `commands` that the job runs end before its stream does. A tool that blocks its thread cannot be ended from
    here: the stream ends without it.
    """

    def __init__(self, stream: EventStream, launch: Launch, commands: Subprocesses | None = None) -> None:
        self._stream = stream
        self._commands = commands
        self._gate = GateLink(launch, stream, rewrites=True, on_failure=self.fail)
        self.scope = anyio.CancelScope()
        self.failure: Exception | None = None
        self._thread = threading.get_ident()

    def events(self) -> AsyncIterator[Event]:
        """The stream; see Provider."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """Cancel the job; if it does not end, end what it started and leave it; see Provider."""
        if self._commands is None:
            last = [Rung(name="leave", act=self._leave, bound_s=GIVE_UP_S)]
        else:
            last = process_rungs(self._commands.tree, ended=self._given_up)
        return [Rung(name="interrupt", act=self._interrupt, bound_s=INTERRUPT_S), *last]

    async def ask(self, call: ToolCall) -> GateAnswer:
        """The gate's answer; one that stops ends the job, and so does a gate that fails.

        The job goes on until it next waits, so that it can still hear that the call is refused.
        """
        self.check_thread()
        answer = await self._gate.ask(call)
        if answer.stop:
            self.scope.cancel()
        return answer

    def check_thread(self) -> None:
        """Raises UsageError in another thread than the run's: a call from there could not be held."""
        if threading.get_ident() != self._thread:
            raise UsageError("a call of a supervised run must be awaited on the run's own event loop")

    def fail(self, error: Exception) -> None:
        """End the job as failed; the first error counts."""
        self.failure = self.failure or error
        self.scope.cancel()

    async def work(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do the job; the stream ends with it."""
        try:
            with self.scope:
                await job()
        except BaseException as raised:  # on asyncio, SystemExit that leaves a task ends the event loop
            self.failure = self.failure or own_error(raised)
        finally:
            if self._commands is not None:
                await self._commands.end()
                self.failure = self._commands.tampered or self.failure
            self._stream.close(None if self.failure is None else provider_error(self.failure))
        if self._commands is not None and self._commands.tampered is not None:
            raise self._commands.tampered  # also where the job has said that it is done, and nobody reads on

    async def _interrupt(self) -> dict[str, Any] | None:
        seen = None if self._commands is None else {"seen": self._commands.tree.alive()}
        self.scope.cancel()
        return seen

    async def _leave(self) -> dict[str, Any] | None:
        await self._given_up()
        return {"left": "the agent did not end when it was cancelled"}

    async def _given_up(self) -> None:
        self._stream.close()
        self._stream.abandon()


@asynccontextmanager
async def at_work(provider: TaskProvider, job: Callable[[], Awaitable[None]]) -> AsyncIterator[TaskProvider]:
    """Run `job` beside the one who reads the stream of `provider`; it is gone when the context is left."""
    async with helpers() as tasks:
        tasks.start_soon(provider.work, job)
        yield provider


def provider_error(error: Exception) -> ProviderError:
    """An agent's exception as the supervisor reports it, with the exception as its cause."""
    root: BaseException = error
    while isinstance(root, BaseExceptionGroup):
        root = root.exceptions[0]
    if isinstance(root, ProviderError):
        return root
    made = ProviderError(f"the agent failed: {named_error(root)}", details={"error": error_text(root, repr)})
    made.__cause__ = error
    return made
