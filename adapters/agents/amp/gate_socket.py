"""Where the delegate asks us: a unix socket in a folder that only this user may enter, with a token."""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
import msgspec

from proctor.supervisor.ports.adapter import GateAnswer

from ...kit.tasks import helpers
from . import delegate

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


_decoder = msgspec.json.Decoder(_Question)


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
            return _decoder.decode(line)
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
