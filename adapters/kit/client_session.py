"""The base of every client's session: its stream of events, its gate, its cancel steps, its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from proctor.policies.events import ErrorOccurred
from proctor.supervisor.ports.adapter import Rung

from .client_process import RpcClient
from .gate import EventStream, GateLink
from .process_tree import process_rungs
from .transcript import retold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import anyio.abc

    from proctor.policies.events import Event
    from proctor.supervisor.ports.adapter import Launch

    from .process_tree import ProcessTree

RpcT = TypeVar("RpcT", bound=RpcClient)


class ClientSession(ABC):
    """A Provider: one prompt given to one client, which is interrupted, closed, terminated and killed.

    A client of its own says how it is interrupted and disconnected, and what ends with its stream. It hands its
    events to `_stream`, or to `report` of `_gate`, which answers its calls; `_closing` says that it was told to end.

    Args:
        launch: what to run, with the gate that holds its calls.
        rewrites: whether the client can run a call with another input than it asked for.
    """

    interrupt_s: ClassVar[float | None] = None
    """Seconds an interrupt may take; None where the client has none."""
    close_s: ClassVar[float | None] = 2.0
    """Seconds the client may take to end once it is disconnected; None where it cannot be."""
    terminate_s: ClassVar[float] = 2.0

    def __init__(self, launch: Launch, *, rewrites: bool = False) -> None:
        self._launch = launch
        self._stream = EventStream()
        self._gate = GateLink(launch, self._stream, rewrites=rewrites)
        self._closing = False

    @property
    def prompt(self) -> str:
        """The prompt, after the conversation that the client does not have."""
        return retold(self._launch.transcript, self._launch.prompt)

    def events(self) -> AsyncIterator[Event]:
        """The stream; see `Provider.events`."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """Interrupt, close, terminate, kill, as far as the client has them; see `Provider.ladder`."""
        last = process_rungs(
            self.tree,
            close=self.close if self.close_s is not None else None,
            ended=self.end,
            close_s=self.close_s or 0.0,
            terminate_s=self.terminate_s,
        )
        if self.interrupt_s is None:
            return last
        return [Rung(name="interrupt", act=self.interrupt, bound_s=self.interrupt_s), *last]

    @property
    @abstractmethod
    def tree(self) -> ProcessTree:
        """The client's processes."""

    @property
    @abstractmethod
    def client_name(self) -> str:
        """How messages call the client."""

    async def interrupt(self) -> dict[str, Any] | None:
        """Have the client stop what it is at; what is to be recorded of that."""
        return None

    async def disconnect(self) -> None:  # noqa: B027 - a client may have no such step
        """Let the client go, which then ends by itself."""

    async def end(self) -> None:
        """The client was killed: end the stream."""
        self._stream.close()

    async def close(self) -> None:
        """Disconnect; the client's end is no failure from now on."""
        self._closing = True
        await self.disconnect()

    def report_bad_line(self, line: bytes, what: str) -> None:
        """Report a line of the client's that is not what it writes otherwise."""
        shown = line[:200].decode("utf-8", "replace")
        message = f"{self.client_name} wrote `{shown}`, which is not a {what}"
        self._stream.post(ErrorOccurred(code="bad_line", message=message))


class RpcSession(ClientSession, Generic[RpcT]):
    """The session of a client that is spoken with by JSON-RPC."""

    _connection: RpcT
    _tasks: anyio.abc.TaskGroup

    def attach(self, connection: RpcT, tasks: anyio.abc.TaskGroup) -> None:
        """Take the running client, and the tasks that live as long as it."""
        self._connection, self._tasks = connection, tasks

    @property
    def tree(self) -> ProcessTree:
        """The client's processes."""
        return self._connection.process.tree

    @property
    def client_name(self) -> str:
        """How messages call the client."""
        return self._connection.process.name

    async def disconnect(self) -> None:
        """Close its input."""
        await self._connection.process.hang_up()

    async def on_garbage(self, line: bytes) -> None:
        """A line that is not a message of the protocol."""
        self.report_bad_line(line, "message")

    @abstractmethod
    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Something the client reports."""

    @abstractmethod
    async def on_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Something the client asks; what is not known is refused."""
