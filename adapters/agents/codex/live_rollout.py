"""The rollouts of a live run's threads, followed while they grow, for facts that the client does not report in time.

These are whether a command would run outside the sandbox, as the model's arguments say, and the tokens of a turn.
Both are recorded before the client asks about the calls. Of parallel commands that end at once, the client may not
report one at all; its output for the model is recorded before the turn is over.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from proctor.policies.values.json_values import NOT_JSON

from ...kit.trace_lines import parsed
from .session_log import LINES, OUTPUTS

_TRIES: Final = 400
_PAUSE_S: Final = 0.025
_UNSUPPORTED: Final = "unsupported call"
"""The client's message to the model that it has no such tool."""


class Rollout:
    """The growing record of one thread; `shared` are ids that two open calls had."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0
        self._reading = anyio.Lock()
        self._arguments: dict[str, Any] = {}
        self._outputs: dict[str, str] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._unsupported: dict[str, dict[str, Any]] = {}
        self.shared: set[str] = set()
        self.usage: dict[str, Any] = {}

    async def read(self) -> None:
        """Read the lines since the last call; `usage` is then the newest report of tokens."""
        if self._path is None:
            return
        async with self._reading:  # calls are asked about side by side
            await anyio.to_thread.run_sync(self._read_on, self._path)

    async def arguments(self, call_id: str) -> dict[str, Any] | None:
        """The arguments that the model wrote for a call; None if the record does not have them in time."""
        for _ in range(_TRIES if self._path is not None else 0):
            if call_id not in self._arguments:
                await self.read()
            if call_id in self._arguments:
                found = parsed(self._arguments.pop(call_id))
                return found if isinstance(found, dict) else None
            await anyio.sleep(_PAUSE_S)
        return None

    def pop_outputs(self) -> dict[str, str]:
        """The outputs for the model, by call id, that were read and not taken yet."""
        taken, self._outputs = self._outputs, {}
        return taken

    def pop_unsupported(self) -> dict[str, dict[str, Any]]:
        """The calls of tools that the client does not have, by call id, that were read and not taken yet."""
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
            self._read_line(text)

    def _read_line(self, text: bytes) -> None:
        """Note a call that begins or ends, or what the turn used; other lines, and broken ones, are skipped."""
        try:
            line = LINES.decode(text)
        except NOT_JSON:
            return
        call_id = line.call_id
        if line.type == "token_usage_record":
            self.usage = line.payload
        elif line.item in ("function_call", "custom_tool_call"):
            if call_id in self._open:
                self.shared.add(call_id)
            self._open[call_id] = line.payload
            if line.item == "function_call":
                self._arguments[call_id] = line.payload.get("arguments")
        elif line.item in OUTPUTS:
            output, called = str(line.payload.get("output")), self._open.pop(call_id, None)
            if called is not None and output.startswith(_UNSUPPORTED):
                self._unsupported[call_id] = called
            if line.item == "function_call_output":
                self._arguments.pop(call_id, None)  # it is not asked about any more
                self._outputs[call_id] = output


class Rollouts:
    """The records of a run's threads; `find` gives the path of a thread's, None without one."""

    def __init__(self, find: Callable[[str], Awaitable[Path | None]]) -> None:
        self._find = find
        self._rollouts: dict[str, Rollout] = {}

    async def of(self, thread_id: str) -> Rollout:
        if thread_id not in self._rollouts:
            self.add(thread_id, await self._find(thread_id))
        return self._rollouts[thread_id]

    def threads(self) -> list[str]:
        """The threads whose records were asked for so far."""
        return list(self._rollouts)

    def add(self, thread_id: str, path: Path | None) -> None:
        self._rollouts.setdefault(thread_id, Rollout(path))
