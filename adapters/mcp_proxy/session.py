"""One run of the proxy: every client connection with a connection of its own to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import anyio

from proctor.policies.stream.events import ErrorOccurred, Event, RunCompleted
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapters import Launch, Rung

from ..kit.event_stream import EventStream
from ..kit.processes.process_tree import ProcessTree, process_rungs
from .downstream.connections import Downstream
from .messages import Incoming, Outgoing
from .names import Naming
from .relay import Relay, SharedByConnections
from .upstream import Upstream
from .visibility import Visibility

INTERRUPT_S = 3.0
KEYS = "keys"
"""The launch option with the keys of inputs that the policy names."""


class ProxySession:
    """A Provider: clients served until they have gone, or the run is ended."""

    def __init__(
        self,
        launch: Launch,
        upstream: Upstream,
        downstream: Downstream,
        *,
        naming: Naming,
        offered: Collection[str] | None,
        warn: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._upstream = upstream
        self._downstream = downstream
        self._warn = warn
        self._stream = EventStream()
        self._scope = anyio.CancelScope()
        self._relays: set[Relay] = set()
        self._tree = ProcessTree(mark=launch.mark)
        numbers = count(1)
        self._desk = SharedByConnections(
            gate=launch.gate,
            report=self._stream.emit,
            naming=naming,
            visibility=Visibility(launch.narrow, offered),
            new_id=lambda: f"call-{next(numbers)}",
            warn=warn,
            keys=frozenset(launch.options.options.get(KEYS, ())),
        )

    def events(self) -> AsyncIterator[Event]:
        """The stream; see Provider."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """Answer what is open and hang up; then the server's processes. See Provider."""
        return [
            Rung(name="interrupt", act=self._interrupt, bound_s=INTERRUPT_S),
            *process_rungs(self._tree, ended=self._give_up),
        ]

    async def work(self) -> None:
        """Serve; whatever happens, the server's processes end first and the stream then."""
        error: ProviderError | None = None
        try:
            with self._scope:
                await self._downstream.take(self._serve)
        except Exception as failure:
            error = _provider_error(failure)
        finally:
            with anyio.CancelScope(shield=True):
                if self._tree.snapshot():
                    await self._tree.kill()
            if error is None:
                self._stream.post(RunCompleted())
            self._stream.close(error)

    def abandon(self) -> None:
        """Nobody reads the stream any more."""
        self._stream.abandon()

    async def _serve(self, client: tuple[Incoming, Outgoing]) -> None:
        relay: Relay | None = None
        try:
            async with self._upstream.connect(self._launch.mark) as server:
                relay = Relay(self._desk, client, server)
                self._relays.add(relay)
                try:
                    await relay.run()
                finally:
                    self._relays.discard(relay)
        except Exception as failure:
            error = _provider_error(failure)
            if relay is not None:
                await relay.answer_for_the_server(str(error))
            if self._downstream.ends_with_client:
                raise error from failure
            self._warn(str(error))
            await self._stream.emit(ErrorOccurred(code=error.code, message=str(error)))

    async def _interrupt(self) -> dict[str, Any]:
        seen = self._tree.snapshot()
        with suppress(anyio.ClosedResourceError):
            for relay in list(self._relays):
                await relay.wind_up()
        self._scope.cancel()
        return {"seen": seen}

    async def _give_up(self) -> None:
        self._stream.close()
        self._stream.abandon()


def _provider_error(failure: BaseException) -> ProviderError:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, ProviderError):
        return failure
    return ProviderError(
        f"the connection to the MCP server failed: {failure or type(failure).__name__}",
        details={"error": repr(failure)},
    )
