"""One run of the client: one prompt, the gate's answers and the cancel ladder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import anyio
import msgspec

from proctor.policies.events import ErrorOccurred, Event, ToolCallDenied, ToolCallRequested
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError, UnknownSessionError
from proctor.supervisor.ports.adapter import GateAnswer, Launch, Rung

from ...kit.client_process import ClientProcess
from ...kit.gate import EventStream, GateLink
from ...kit.jsonrpc import MAX_LINE_BYTES, ByteLines, EndlessLineError
from ...kit.process_tree import process_rungs
from .translation import AmpTranslation

TERMINATE_S: Final = 3.0
_decoder = msgspec.json.Decoder(dict[str, Any])


class AmpSession:
    """A Provider: one prompt given to one thread.

    Args:
        launch: what to run, with the gate that holds its calls.
        rejected: patterns of tools the client refuses by itself.
    """

    def __init__(self, launch: Launch, rejected: Iterable[str]) -> None:
        self._translation = AmpTranslation(rejected)
        self._stream = EventStream()
        self._gate = GateLink(launch, self._stream)
        self._client: ClientProcess
        self._begun = anyio.Event()
        self._silent = True
        self._ending = False

    def attach(self, client: ClientProcess) -> None:
        """Take the running client."""
        self._client = client

    async def taken_up(self, thread: str) -> None:
        """Wait for the client's first words, or its end. Raises UnknownSessionError where it has no such thread."""
        await self._begun.wait()
        if self._silent and f"{thread} does not exist" in await self._client.last_words():
            raise UnknownSessionError(f"amp does not have the thread `{thread}`", details=self._gone().details)

    def events(self) -> AsyncIterator[Event]:
        """The stream; see `Provider.events`."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """Terminate, kill: the client has no interrupt of its own."""
        terminate, kill = process_rungs(self._client.tree, ended=self._ended, terminate_s=TERMINATE_S)
        return [Rung(name=terminate.name, act=self._closing(terminate), bound_s=terminate.bound_s), kill]

    async def listen(self) -> None:
        """Read what the client says until it ends; then the stream of events ends."""
        try:
            async for line in ByteLines(self._client.stdout, max_bytes=MAX_LINE_BYTES):
                await self._take(line)
        except EndlessLineError:
            self._speaks()
            self._stream.close(self._client.gone("amp wrote a line without end"))
            return
        await self._client.left()
        self._begun.set()
        self._stream.close(None if self._translation.done or self._ending else self._gone())

    async def ask(self, tool: str, tool_input: Any) -> GateAnswer:
        """Answer the delegate about one call, on all the client wrote before: that comes by another way."""
        self._speaks()
        await self._client.stdout.caught_up()
        for event in self._translation.response_begins():
            self._stream.post(event)
        call = self._translation.proposed(tool, tool_input)
        answer = await self._gate.ask(call)
        if not answer.allowed:
            self._translation.refused(call.id)
        return answer

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        self._speaks()
        try:
            record = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            shown = line[:200].decode("utf-8", "replace")
            self._stream.post(ErrorOccurred(code="bad_line", message=f"amp wrote `{shown}`, which is not a record"))
            return
        judged: set[str] = set()
        for event in self._translation.events(record):
            if isinstance(event, ToolCallRequested) and await self._gate.attempted(_as_asked(event)):
                judged.add(event.tool_call_id)
            elif not (isinstance(event, ToolCallDenied) and event.tool_call_id in judged):
                await self._gate.report([event])

    def _speaks(self) -> None:
        self._silent = False
        self._begun.set()

    def _gone(self) -> ProviderError:
        return self._client.gone(f"amp ended without a result, exit code {self._client.exit_code}")

    def _closing(self, rung: Rung) -> Any:
        async def act() -> dict[str, Any] | None:
            self._ending = True
            self._gate.stop()
            return await rung.act()

        return act

    async def _ended(self) -> None:
        self._ending = True
        self._stream.close()


def _as_asked(event: ToolCallRequested) -> ToolCall:
    """A call that the client refused by a rule of ours, as the gate is asked about it."""
    return ToolCall(
        id=event.tool_call_id,
        name=event.tool_name,
        input=event.tool_input,
        turn=event.turn,
        parent_tool_call_id=event.parent_tool_call_id,
    )
