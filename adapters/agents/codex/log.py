"""Codex rollouts: `$CODEX_HOME/sessions/<year>/<month>/<day>/rollout-*.jsonl`.

They are read as recorded sessions, and followed while they grow.

A live run follows its threads' rollouts for facts that the client does not report in time: whether a command would
run outside the sandbox, as the model's arguments say, and the tokens of a turn. Both are recorded before the client
asks about the calls. Of parallel commands that end at once, the client may not report one at all; its output for the
model is recorded before the turn is over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import msgspec

from proctor.policies.events import (
    MessageReceived,
    MessageSent,
    RunCancelled,
    RunCompleted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    Unrecognized,
)

from ...kit.client_tools import changes_of
from ...kit.trace_lines import TraceLog, parsed, text_of, tool_input

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proctor.policies.events import Scope

    from ...kit.trace_lines import TraceLines, TraceSession


_HEADER = re.compile(
    r"(?:Chunk ID: [^\n]*\n)?(?:Exit code: (?P<exit>-?\d+)\n)?Wall time: [^\n]*\n"
    r"(?:Process exited with code (?P<code>-?\d+)\n|Process running with session ID [^\n]*\n)?"
    r"(?:Original token count: \d+\n)?(?:Total output lines: \d+\n)?Output:(?:\n|$)"
)
_FAILED = ("exec_command failed", "exec command rejected", "patch rejected", "aborted by user")
_REFUSED = re.compile(
    r"exec_command failed[^\n]*\bRejected\(|(?:exec command|patch) rejected by user|unsupported call\b"
)


class CodexOutput:
    """One output for the model, parsed. `status` is the client's own, if it has one."""

    def __init__(self, value: Any, status: str | None) -> None:
        content, marked_failed = _content(value)
        head = _HEADER.match(content) if isinstance(content, str) else None
        self.value = content[head.end() :] if head else content
        self._codes = [head["exit"], head["code"]] if head else []
        self._text = content if isinstance(content, str) else ""
        self._marked_failed = marked_failed
        self._status = status

    @property
    def failed(self) -> bool:
        """Whether the call failed, by the client's status, else by the exit code before the output."""
        if self._status is not None:
            return self._status in ("failed", "declined")
        nonzero = any(code not in (None, "0") for code in self._codes)
        return self._marked_failed or nonzero or self._text.startswith(_FAILED)

    @property
    def refused(self) -> bool:
        """Whether the call never ran, as a person denied it or the client has no such tool. A command's output cannot
        fake that, as the client writes its header before it.
        """
        return self._status is None and _REFUSED.match(self._text) is not None


def _content(value: Any) -> tuple[Any, bool]:
    """The content and whether it is marked as failed; older clients wrapped it in an object."""
    found = parsed(value)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict) and "output" in found:
        return found["output"], found["metadata"].get("exit_code", 0) != 0
    if isinstance(value, dict) and "content" in value:
        return text_of(value["content"]), value.get("success") is False
    return text_of(value), False


class _Line(msgspec.Struct, kw_only=True):
    """One line of a rollout, of a recorded session or of one that grows."""

    type: str
    timestamp: datetime | None = None
    payload: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        """The line's type, with the payload's own if it has one: `response_item/function_call`."""
        inner = self.payload.get("type")
        return f"{self.type}/{inner}" if inner else self.type

    @property
    def item(self) -> str:
        """The kind of an item of the conversation, `function_call` for example; empty for any other line."""
        return str(self.payload.get("type")) if self.type == "response_item" else ""

    @property
    def call_id(self) -> str:
        """The id of the call that an item is about."""
        return str(self.payload.get("call_id") or self.payload.get("id") or "")


_lines = msgspec.json.Decoder(_Line)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_BASH = ("bash", "/bin/bash", "/usr/bin/bash")
_COMMANDS = ("exec_command", "shell", "local_shell", "shell_command", "container.exec")
"""Names that clients have had for the tool that runs commands, which is `shell` in policies."""
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_STARTED = ("event_msg/task_started", "event_msg/turn_started")
_COMPLETED = ("event_msg/task_complete", "event_msg/turn_complete")
_ABORTED = "event_msg/turn_aborted"
_INSERTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The one session of a rollout. Raises TraceError."""
    found = [lines.decode(_lines, line) for line in lines]
    if not found:
        return
    metas = (line.payload.get("id") for line in found if line.type == "session_meta")
    session_id = next((str(name) for name in metas if name), Path(lines.name).stem)
    reader = _Reader(TraceLog(session_id, "codex"), found)
    for line in found:
        reader.handle_line(line)
    ends = [line.kind for line in found if line.kind in (*_STARTED, *_COMPLETED, _ABORTED)]
    reader.finish(ends)
    about = {"model": reader.model, "workspace": _folder(found) or None, "shell": "bash"}
    yield reader.log.session(lines.name, "codex", about, complete=not ends or ends[-1] not in _STARTED)


def _folder(found: list[_Line]) -> str | None:
    """The client's folder, from the first line."""
    folders = (line.payload.get("cwd") for line in found if line.type == "session_meta")
    return next((folder for folder in folders if isinstance(folder, str)), None)


class _Reader:
    """Turns all lines of one rollout into events.

    A rollout does not number the turns: a turn ends with its usage or with the first output of its calls, and the
    model's next text belongs to another. The user's text is written twice, among the model's input and as an event of
    its own; only the latter tells it from text of the client.
    """

    def __init__(self, log: TraceLog, found: list[_Line]) -> None:
        self.log = log
        self.model: str | None = None
        kinds = {line.kind for line in found}
        self._marks_users = any(_typed(line) is not None for line in found)
        self._counts_responses = "token_usage_record" in kinds
        self._status = dict(status for line in found for status in _statuses(line))
        self._outputs = dict(output for line in found for output in _outputs(line, self._status))
        self._names: dict[str, str] = {}
        self._between = True
        self._last_total: Any = None

    def handle_line(self, line: _Line) -> None:
        """Add the events of one line."""
        typed = _typed(line)
        if line.type == "turn_context":
            self.model = str(line.payload.get("model") or "") or self.model
        elif typed is not None:
            self.log.add(MessageSent, at=line.timestamp, content=typed)
        elif line.item == "message":
            self._message(line)
        elif line.item in _CALLS:
            self._call(line)
        elif line.item in _OUTPUTS:
            self._output(line)
        elif line.kind in ("token_usage_record", "event_msg/token_count"):
            self._usage(line)
        else:
            self.log.add(Unrecognized, at=line.timestamp, raw=msgspec.to_builtins(line))

    def finish(self, ends: list[str]) -> None:
        """Add how the last task ended."""
        if ends and ends[-1] in _COMPLETED:
            self.log.add(RunCompleted)
        elif ends and ends[-1] == _ABORTED:
            self.log.add(RunCancelled, reason="turn_aborted")

    def _respond(self, line: _Line) -> None:
        if self._between:
            self._between = False
            self.log.enter_turn(self.log.turn + 1, line.timestamp)

    def _message(self, line: _Line) -> None:
        role, content = line.payload.get("role"), text_of(line.payload.get("content"))
        if role == "assistant":
            self._respond(line)
            self.log.add(MessageReceived, at=line.timestamp, content=content)
            return
        by_user = role == "user" and not self._marks_users and not str(content).startswith(_INSERTED)
        self.log.add(MessageSent, at=line.timestamp, role="user" if by_user else "system", content=content)

    def _call(self, line: _Line) -> None:
        self._respond(line)
        call_id, name = line.call_id, call_name(line.payload)
        self._names[call_id] = name
        output = self._outputs.get(call_id)
        kind = ToolCallRequested if output is not None and output.refused else ToolCallStarted
        self.log.add(
            kind,
            at=line.timestamp,
            tool_call_id=call_id,
            tool_name=name,
            turn=self.log.turn,
            tool_input=call_input(line.payload),
        )
        if line.payload.get("type") == "web_search_call" and line.payload.get("status") != "failed":
            self.log.add(ToolCallCompleted, at=line.timestamp, tool_call_id=call_id, tool_name=name)

    def _output(self, line: _Line) -> None:
        self._between = True
        call_id = line.call_id
        output = self._outputs[call_id]
        name, failed, refused = self._names.get(call_id, ""), output.failed, output.refused
        self.log.end_call(call_id, name, output.value, at=line.timestamp, failed=failed, refused=refused)

    def _usage(self, line: _Line) -> None:
        """Add a turn's own usage, or the running total unless it is repeated."""
        usage: Any = line.payload.get("usage")
        scope: Scope = "delta"
        if line.type != "token_usage_record":
            info = line.payload.get("info")
            info = info if isinstance(info, dict) else {}
            total, usage = info.get("total_token_usage"), info.get("last_token_usage")
            if self._counts_responses or total is None or total == self._last_total:
                return
            self._last_total = total
            scope, usage = ("delta", usage) if isinstance(usage, dict) else ("cumulative", total)
        self._between = True
        if isinstance(usage, dict):
            self.log.add(
                TokenUsageUpdated,
                at=line.timestamp,
                model=self.model,
                scope=scope,
                input_tokens=_count(usage, "input_tokens"),
                output_tokens=_count(usage, "output_tokens"),
                cache_read_tokens=_count(usage, "cached_input_tokens"),
                cache_write_tokens=_count(usage, "cache_write_input_tokens"),
                reasoning_tokens=_count(usage, "reasoning_output_tokens"),
            )


def _typed(line: _Line) -> str | None:
    """The user's text, if the line has one."""
    if line.kind == "event_msg/user_message":
        return str(line.payload.get("message", ""))
    item = _completed_item(line)
    return str(text_of(item.get("content"))) if item.get("type") == "UserMessage" else None


def _statuses(line: _Line) -> Iterator[tuple[str, str]]:
    item = _completed_item(line)
    if isinstance(item.get("status"), str):
        yield str(item.get("id")), item["status"]


def _completed_item(line: _Line) -> dict[str, Any]:
    item = line.payload.get("item")
    return item if line.kind == "event_msg/item_completed" and isinstance(item, dict) else {}


def _outputs(line: _Line, status: dict[str, str]) -> Iterator[tuple[str, CodexOutput]]:
    if line.item in _OUTPUTS:
        yield line.call_id, CodexOutput(line.payload.get("output"), status.get(line.call_id))


def call_name(payload: dict[str, Any]) -> str:
    """The tool's name; one in a namespace is `mcp__server__tool`, as the model sees it."""
    name = str(payload.get("name") or str(payload["type"]).removesuffix("_call"))
    if name in _COMMANDS:
        return "shell"
    namespace = payload.get("namespace")
    return f"{str(namespace).removesuffix('__')}__{name}" if namespace else name


def call_input(payload: dict[str, Any]) -> dict[str, Any]:
    """A call's input, as the client reports it live."""
    recorded = _recorded_input(payload)
    if call_name(payload) == "apply_patch" and isinstance(patch := recorded.get("input"), str):
        return {"changes": changes_of(patch)} if changes_of(patch) else recorded
    if call_name(payload) != "shell":
        return recorded
    command = recorded.get("cmd", recorded.get("command"))
    words = [str(word) for word in command] if isinstance(command, list) else None
    folder = recorded.get("workdir", recorded.get("working_directory"))
    shell = recorded.get("shell")
    if isinstance(shell, str) and isinstance(command, str) and shell not in _BASH:
        words = [shell, "-c", command]
    live = {"command": _script(words) if words else command, "cwd": folder}
    return {**recorded, **{name: value for name, value in live.items() if value is not None}}


def _script(words: list[str]) -> str:
    """The script within `bash -lc '...'`, else the words as one line: another shell may read a script differently."""
    bare = len(words) == 3 and words[0] in _BASH and words[1] in ("-c", "-lc")
    return words[2] if bare else shlex.join(words)


def _recorded_input(payload: dict[str, Any]) -> dict[str, Any]:
    if "arguments" in payload:
        return tool_input(payload["arguments"])
    if isinstance(payload.get("action"), dict):
        return {name: value for name, value in payload["action"].items() if name != "type"}
    return {"input": payload.get("input")}


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0


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

    def take_outputs(self) -> dict[str, str]:
        """The outputs for the model, by call id, that were read and not taken yet."""
        taken, self._outputs = self._outputs, {}
        return taken

    def take_unsupported(self) -> dict[str, dict[str, Any]]:
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
        try:
            line = _lines.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
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
        elif line.item in _OUTPUTS:
            output, called = str(line.payload.get("output")), self._open.pop(call_id, None)
            if called is not None and output.startswith(_UNSUPPORTED):
                self._unsupported[call_id] = called
            if line.item == "function_call_output":
                self._arguments.pop(call_id, None)  # it is not asked about any more
                self._outputs[call_id] = output


class Rollouts:
    """The records of a run's threads.

    Args:
        find: returns the path of a thread's record, None without one.
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
        """Add the path of a thread's record."""
        self._rollouts.setdefault(thread_id, Rollout(path))
