"""One run of the client: one prompt, the gate's answers and the cancel ladder."""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
import msgspec

from proctor.policies.events import ToolCallDenied, ToolCallRequested
from proctor.supervisor.errors import ProviderError, UnknownSessionError
from proctor.supervisor.ports.adapter import GateAnswer, Launch, Rung

from ...kit.client_process import ClientProcess
from ...kit.client_session import ClientSession
from ...kit.jsonrpc import MAX_LINE_BYTES, ByteLines, EndlessLineError
from ...kit.process_tree import ProcessTree
from ...kit.tasks import helpers
from . import delegate
from .translation import AmpTranslation

_decoder = msgspec.json.Decoder(dict[str, Any])


class AmpSession(ClientSession):
    """A Provider: one prompt given to one thread.

    Args:
        launch: what to run, with the gate that holds its calls.
        rejected: patterns of tools the client refuses by itself.
    """

    client_name = "amp"
    close_s = None
    terminate_s = 3.0

    def __init__(self, launch: Launch, rejected: Iterable[str]) -> None:
        super().__init__(launch)
        self._translation = AmpTranslation(rejected)
        self._client: ClientProcess
        self._begun = anyio.Event()
        self._silent = True

    def attach(self, client: ClientProcess) -> None:
        """Take the running client."""
        self._client = client

    @property
    def tree(self) -> ProcessTree:
        """The client's processes."""
        return self._client.tree

    async def taken_up(self, thread: str) -> None:
        """Wait for the client's first words, or its end. Raises UnknownSessionError where it has no such thread."""
        await self._begun.wait()
        if self._silent and f"{thread} does not exist" in await self._client.last_words():
            raise UnknownSessionError(f"amp does not have the thread `{thread}`", details=self._gone().details)

    def ladder(self) -> Sequence[Rung]:
        """Terminate, kill: the client has no interrupt of its own."""
        terminate, kill = super().ladder()
        return [Rung(name=terminate.name, act=self._closing_by(terminate), bound_s=terminate.bound_s), kill]

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
        self._stream.close(None if self._translation.done or self._closing else self._gone())

    async def ask(self, tool: str, tool_input: Any) -> GateAnswer:
        """Answer the delegate about one call, on all the client wrote before: that comes by another way."""
        self._speaks()
        await self._client.stdout.caught_up()
        self._stream.post(*self._translation.turns.begin())
        call = self._translation.proposed(tool, tool_input)
        answer = await self._gate.ask(call.as_tool_call())
        call.allowed, call.refused = answer.allowed, not answer.allowed
        return answer

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        self._speaks()
        try:
            record = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self.report_bad_line(line, "record")
            return
        judged: set[str] = set()
        for event in self._translation.events(record):
            if isinstance(event, ToolCallRequested) and await self._attempted(event.tool_call_id):
                judged.add(event.tool_call_id)
            elif not (isinstance(event, ToolCallDenied) and event.tool_call_id in judged):
                await self._gate.report([event])

    async def _attempted(self, call_id: str) -> bool:
        """Whether the policy refuses a call, too, that the client refused by a rule of ours."""
        call = self._translation.calls.get(call_id)
        return call is not None and await self._gate.attempted(call.as_tool_call())

    def _speaks(self) -> None:
        self._silent = False
        self._begun.set()

    def _gone(self) -> ProviderError:
        return self._client.gone(f"amp ended without a result, exit code {self._client.exit_code}")

    def _closing_by(self, rung: Rung) -> Any:
        async def act() -> dict[str, Any] | None:
            self._closing = True
            self._gate.stop()
            return await rung.act()

        return act

    async def end(self) -> None:
        """The client was killed: end the stream."""
        self._closing = True
        await super().end()


Ask: TypeAlias = Callable[[str, Any], Awaitable[GateAnswer]]
"""Answers for a tool's name, as the client has it, and its input."""

QUESTION_S: Final = 10.0
"""Seconds a delegate may take to say what it asks."""
_MAX_BYTES: Final = 64 * 1024 * 1024
_SOCKET_PATH: Final = 100
"""Bytes of a socket's path; systems allow little more."""
_WRAPPER: Final = """#!/bin/sh
{command} || {{ cat >/dev/null; exit 2; }}
"""


class _Question(msgspec.Struct):
    token: str
    tool: str
    input: Any = None


_questions = msgspec.json.Decoder(_Question)


class GateSocket:
    """The files the client needs to ask: `program`, the delegate it runs, and `folder` for its settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "delegate"
        self.token = secrets.token_hex(32)
        _write(folder / "token", self.token, 0o600)
        # isolated: the delegate starts in a folder the agent writes, and must not import from it
        command = shlex.join([sys.executable, "-I", str(Path(delegate.__file__).resolve()), str(folder)])
        _write(self.program, _WRAPPER.format(command=command), 0o700)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file for the client; returns where it is."""
        path = self.folder / name
        _write(path, content.decode(), 0o600)
        return path


@asynccontextmanager
async def open_gate_socket(ask: Ask) -> AsyncIterator[GateSocket]:
    """Answer delegates until the body is left; a question that cannot be answered is refused."""
    folder = _folder()
    try:
        gate_socket = GateSocket(folder)
        async with await anyio.create_unix_listener(folder / "socket", mode=0o600) as listener, helpers() as tasks:
            tasks.start_soon(listener.serve, _answering(gate_socket.token, ask))
            yield gate_socket
    finally:
        rmtree(folder, ignore_errors=True)


def _answering(token: str, ask: Ask) -> Callable[[anyio.abc.SocketStream], Awaitable[None]]:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            question = await _read(stream)
            if question is None or not hmac.compare_digest(question.token, token):
                return
            try:
                answered = await ask(question.tool, question.input)
            except Exception:  # no answer is no permission: the delegate refuses when we hang up
                return
            reply = {"allowed": answered.allowed, "tell_model": answered.tell_model}
            try:
                await stream.send(msgspec.json.encode(reply) + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    return answer


async def _read(stream: anyio.abc.SocketStream) -> _Question | None:
    line = b""
    with anyio.move_on_after(QUESTION_S):
        try:
            while not line.endswith(b"\n") and len(line) <= _MAX_BYTES:
                line += await stream.receive()
            return _questions.decode(line)
        except (
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ):
            return None
    return None


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="proctor-"))
    if len(os.fsencode(folder / "socket")) > _SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="proctor-", dir="/tmp"))
    return folder


def _write(path: Path, text: str, mode: int) -> None:
    path.touch(mode=mode)
    path.write_text(text)
