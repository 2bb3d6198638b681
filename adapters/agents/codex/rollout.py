"""The client's own record of a thread, read for what it does not say when it asks.

A request to run a command does not say whether the command would run outside the sandbox; what the model
wrote does. The tokens of a response are reported when its calls are done. Both are recorded before the client
asks about the calls. That a command ended is sometimes not reported at all: of parallel ones that end at once, one
may be left out. What the model was told of each is recorded before the turn is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from ...kit.gate import EventStream
from .items import tool_name
from .translation import CodexTranslation

_TRIES: Final = 400
_PAUSE_S: Final = 0.025
_UNSUPPORTED: Final = "unsupported call"
"""How the model is told that the client has no such tool."""


class _Line(msgspec.Struct):
    type: str = ""
    payload: dict[str, Any] = {}


_line = msgspec.json.Decoder(_Line)
_arguments = msgspec.json.Decoder(dict[str, Any])


class Rollout:
    """The growing record of one thread; `shared` are ids that two calls had at one time."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0
        self._reading = anyio.Lock()
        self._calls: dict[str, str] = {}
        self._outputs: dict[str, str] = {}
        self._open: set[str] = set()
        self._items: dict[str, dict[str, Any]] = {}
        self._unsupported: dict[str, dict[str, Any]] = {}
        self.shared: set[str] = set()
        self.usage: dict[str, Any] = {}

    async def read(self) -> None:
        """Read what was recorded since the last time; `usage` is then the newest report of tokens."""
        if self._path is None:
            return
        async with self._reading:  # calls are asked about side by side
            await anyio.to_thread.run_sync(self._read_on, self._path)

    async def arguments(self, call_id: str) -> dict[str, Any] | None:
        """The arguments that the model wrote for a call; None if the record does not have them in time."""
        for _ in range(_TRIES if self._path is not None else 0):
            if call_id not in self._calls:
                await self.read()
            if call_id in self._calls:
                return _decoded(self._calls.pop(call_id))
            await anyio.sleep(_PAUSE_S)
        return None

    def take_outputs(self) -> dict[str, str]:
        """The outputs the model was given, by call id: those read and not taken yet."""
        taken, self._outputs = self._outputs, {}
        return taken

    def take_unsupported(self) -> dict[str, dict[str, Any]]:
        """The calls of tools that the client does not have, by call id: what was read and not taken yet."""
        taken, self._unsupported = self._unsupported, {}
        return taken

    def _read_on(self, path: Path) -> None:
        try:
            with path.open("rb") as record:
                record.seek(self._offset)
                data = record.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for text in whole.splitlines():
            self._take(text)

    def _take(self, text: bytes) -> None:
        try:
            line = _line.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if line.type == "token_usage_record":
            self.usage = line.payload
        elif line.type == "response_item":
            self._take_item(line.payload, str(line.payload.get("call_id")))

    def _take_item(self, item: dict[str, Any], call_id: str) -> None:
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            if call_id in self._open:
                self.shared.add(call_id)
            self._open.add(call_id)
            self._items[call_id] = item
        if kind == "function_call":
            self._calls[call_id] = str(item.get("arguments"))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._open.discard(call_id)
            called = self._items.pop(call_id, None)
            if called is not None and str(item.get("output")).startswith(_UNSUPPORTED):
                self._unsupported[call_id] = called
        if kind == "function_call_output":
            self._calls.pop(call_id, None)  # it is not asked about any more
            self._outputs[call_id] = str(item.get("output"))


class Rollouts:
    """The records of a run's threads.

    Args:
        find: says where the record of a thread is, None if it has none.
    """

    def __init__(self, find: Callable[[str], Awaitable[Path | None]]) -> None:
        self._find = find
        self._rollouts: dict[str, Rollout] = {}

    async def of(self, thread_id: str) -> Rollout:
        """The record of one thread."""
        if thread_id not in self._rollouts:
            self.add(thread_id, await self._find(thread_id))
        return self._rollouts[thread_id]

    def threads(self) -> list[str]:
        """The threads whose records were asked for so far."""
        return list(self._rollouts)

    def add(self, thread_id: str, path: Path | None) -> None:
        """Take in where the record of a thread is."""
        self._rollouts.setdefault(thread_id, Rollout(path))


def _decoded(arguments: str) -> dict[str, Any] | None:
    try:
        return _arguments.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class RunningCalls:
    """The calls that run.

    Args:
        translation: what the client reported.
        stream: where events go.
        rollouts: the client's own records.
    """

    def __init__(self, translation: CodexTranslation, stream: EventStream, rollouts: Rollouts) -> None:
        self._translation = translation
        self._stream = stream
        self._rollouts = rollouts
        self._change = anyio.Event()

    def ids(self) -> list[str]:
        """The ids of the calls; a call that is held or was refused does not run."""
        return [call.id for call in self._translation.calls if call.runs]

    async def catch_up(self, thread: str) -> None:
        """Report what the client recorded of a thread and did not say yet."""
        rollout = await self._rollouts.of(thread)
        await rollout.read()
        outputs, run = rollout.take_outputs(), self.ids()
        ended = {call_id: outputs[call_id] for call_id in run if call_id in outputs}
        self._stream.post(*self._translation.recorded(thread, rollout.usage, ended))

    async def look_up(self) -> None:
        """Report the outcomes that the client recorded, in all the records that were read before."""
        if self.ids():
            for thread in self._rollouts.threads():
                await self.catch_up(thread)

    def changed(self) -> None:
        """Take note that the client reported something."""
        self._change.set()

    async def settled(self) -> None:
        """Wait until none runs."""
        while self.ids():
            self._change = anyio.Event()
            await self._change.wait()

    def end(self) -> None:
        """Report of those that still run that they do not outlive the run."""
        for call in self._translation.calls:
            if call.runs:
                call.running, call.name = False, tool_name(call.item)
                self._stream.post(call.ended({"message": "ended with the run, its outcome unknown"}, failed=True))
