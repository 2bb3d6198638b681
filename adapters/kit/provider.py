"""Bases of providers: `ClientSession` for a client process, `TaskProvider` for an agent in this process.

Each has a stream of events, a gate, cancel steps and an end; `helpers` run beside a body of code.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import anyio

from proctor.policies.events import ErrorOccurred, Event
from proctor.policies.events.calls import ToolCall
from proctor.policies.values.foreign_code import error_text, named_error
from proctor.supervisor.errors import ProviderError, UsageError
from proctor.supervisor.ports.adapter import CancelStep, GateAnswer, Launch
from proctor.supervisor.run.tasks import own_error

from .client_process import RpcClient
from .gate import CallGate, EventStream
from .jsonrpc import RpcHandler
from .process_tree import ProcessTree, process_cancel_steps
from .subprocesses import Subprocesses
from .transcript import replay_prompt

if TYPE_CHECKING:
    import anyio.abc

RpcT = TypeVar("RpcT", bound=RpcClient)


class ClientSession(ABC):
    """A Provider: one prompt to one client, which is interrupted, closed, terminated and killed.

    A subclass implements the client's interrupt, disconnect and end. It sends events to `_stream`, or to
    `_gate.report`, and proposes calls to `_gate`; `_closing`: the client was asked to end.

    Args:
        launch: the run, with the gate that holds its calls.
        rewrites: whether the client can run a call with another input than it requested.
    """

    client_name: str = "the client"
    """How messages call the client."""
    interrupt_s: ClassVar[float | None] = None
    """Seconds an interrupt may take; None for a client without one."""
    close_s: ClassVar[float | None] = 2.0
    """Seconds the client may take to end once it is disconnected; None if it cannot be."""
    terminate_s: ClassVar[float] = 2.0

    def __init__(self, launch: Launch, *, rewrites: bool = False) -> None:
        self._launch = launch
        self._stream = EventStream()
        self._gate = CallGate(launch, self._stream, rewrites=rewrites)
        self._closing = False

    @property
    def prompt(self) -> str:
        """The prompt, preceded by the conversation if the client does not have it."""
        return replay_prompt(self._launch.transcript, self._launch.prompt)

    def events(self) -> AsyncIterator[Event]:
        """The stream; see `Provider.events`."""
        return self._stream.events()

    def cancel_steps(self) -> Sequence[CancelStep]:
        """Interrupt, close, terminate, kill, as far as the client has them; see `Provider.cancel_steps`."""
        last = process_cancel_steps(
            self.tree,
            close=self.close if self.close_s is not None else None,
            ended=self.end,
            close_s=self.close_s or 0.0,
            terminate_s=self.terminate_s,
        )
        if self.interrupt_s is None:
            return last
        return [CancelStep(name="interrupt", act=self.interrupt, bound_s=self.interrupt_s), *last]

    @property
    @abstractmethod
    def tree(self) -> ProcessTree:
        """The client's processes."""

    async def interrupt(self) -> dict[str, Any] | None:
        """Interrupt the client; returns evidence."""
        return None

    async def disconnect(self) -> None:  # noqa: B027 - a client may have no such step
        """Disconnect from the client, which then ends by itself."""

    async def end(self) -> None:
        """End the stream of a client that was killed."""
        self._stream.close()

    async def close(self) -> None:
        """Disconnect; from now on the client's end is no failure."""
        self._closing = True
        await self.disconnect()

    def report_bad_line(self, line: bytes, what: str) -> None:
        """Report a line of the client that is not a message."""
        shown = line[:200].decode("utf-8", "replace")
        message = f"{self.client_name} wrote `{shown}`, which is not a {what}"
        self._stream.send_nowait(ErrorOccurred(code="bad_line", message=message))


class RpcSession(ClientSession, RpcHandler, Generic[RpcT]):
    """The session of a client that speaks JSON-RPC."""

    _connection: RpcT
    _tasks: anyio.abc.TaskGroup

    def attach(self, connection: RpcT, tasks: anyio.abc.TaskGroup) -> None:
        """Set the running client, and the tasks that live as long as it."""
        self._connection, self._tasks = connection, tasks
        self.client_name = connection.process.name

    @property
    def tree(self) -> ProcessTree:
        """The client's processes."""
        return self._connection.process.tree

    async def disconnect(self) -> None:
        await self._connection.process.close_input()

    async def on_garbage(self, line: bytes) -> None:
        self.report_bad_line(line, "message")


GIVE_UP_S = 1.0


class TaskProvider:
    """Passes on what one job sends to `stream`, and ends it by cancelling `scope`; `failure` is the error that ended
    it.

    The `commands` that the job runs end before its stream does. A tool that blocks its thread cannot be ended; the
    stream ends without it.
    """

    what: ClassVar[str] = "the agent"
    """Who has failed, in the error of a job that raised."""
    interrupt_s: ClassVar[float] = 5.0
    """Seconds an interrupt may take."""

    def __init__(self, launch: Launch, commands: Subprocesses | None = None) -> None:
        self.launch = launch
        self.stream = EventStream()
        self.scope = anyio.CancelScope()
        self.failure: Exception | None = None
        self._commands = commands
        self._gate = CallGate(launch, self.stream, rewrites=True, on_failure=self.fail)
        self._thread = threading.get_ident()

    def events(self) -> AsyncIterator[Event]:
        """The stream; see Provider."""
        return self.stream.events()

    @property
    def tree(self) -> ProcessTree | None:
        """The processes that the job starts; None for a job that starts none."""
        return None if self._commands is None else self._commands.tree

    def cancel_steps(self) -> Sequence[CancelStep]:
        """Cancel the job; if it does not end, end what it started and abandon it; see Provider."""
        if self.tree is None:
            last = [CancelStep(name="leave", act=self._leave, bound_s=GIVE_UP_S)]
        else:
            last = process_cancel_steps(self.tree, ended=self._abandon)
        return [CancelStep(name="interrupt", act=self.interrupt, bound_s=self.interrupt_s), *last]

    async def propose(self, call: ToolCall) -> GateAnswer:
        """The gate's answer; an answer that stops the run, or a gate that fails, ends the job at its next wait, so
        that it still gets the denial.
        """
        self.check_thread()
        answer = await self._gate.propose(call)
        if answer.stop:
            self.scope.cancel()
        return answer

    def check_thread(self) -> None:
        """Raises UsageError in another thread than the run's, where no call is held and nobody woken."""
        if threading.get_ident() != self._thread:
            raise UsageError("calls and reports of a supervised run must be awaited on the run's own event loop")

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
            await self.end_processes()
            self.stream.close(None if self.failure is None else provider_error(self.failure, self.what))
        if self._commands is not None and self._commands.tampered is not None:
            raise self._commands.tampered  # also where the job has said that it is done, and nobody reads on

    async def end_processes(self) -> None:
        """End what the job has started, before the stream ends."""
        if self._commands is not None:
            await self._commands.end()
            self.failure = self._commands.tampered or self.failure

    async def interrupt(self) -> dict[str, Any] | None:
        """Cancel the job; returns its processes."""
        seen = None if self.tree is None else {"seen": self.tree.alive()}
        self.scope.cancel()
        return seen

    async def _leave(self) -> dict[str, Any] | None:
        await self._abandon()
        return {"left": "the agent did not end when it was cancelled"}

    async def _abandon(self) -> None:
        self.stream.close()
        self.stream.abandon()


@asynccontextmanager
async def helpers() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group that is cancelled when the body is left; the body's exception is raised unwrapped, even if a
    helper has failed too.
    """
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # raised again below, outside the group that would wrap it
                failure = error
            finally:
                tasks.cancel_scope.cancel()
    except Exception as of_helpers:
        if failure is None:
            raise
        raise failure from of_helpers
    if failure is not None:
        raise failure


@asynccontextmanager
async def at_work(provider: TaskProvider, job: Callable[[], Awaitable[None]]) -> AsyncIterator[TaskProvider]:
    """Run `job` while `provider`'s stream is read; leaving the context ends it."""
    async with helpers() as tasks:
        tasks.start_soon(provider.work, job)
        yield provider


def provider_error(error: Exception, what: str = "the agent") -> ProviderError:
    """An exception of the agent as a ProviderError, with the exception as its cause.

    Args:
        error: what the agent, or one of its parts, raised.
        what: who failed, for the message.
    """
    root: BaseException = error
    while isinstance(root, BaseExceptionGroup):
        root = root.exceptions[0]
    if isinstance(root, ProviderError):
        return root
    made = ProviderError(f"{what} failed: {named_error(root)}", details={"error": error_text(root, repr)})
    made.__cause__ = error
    return made
