"""Codex rollouts: `$CODEX_HOME/sessions/<year>/<month>/<day>/rollout-*.jsonl`.

They are read as recorded sessions, and for the usage of the sessions whose calls hooks report. Each turn's tokens are
in a line of their own, after the lines of its calls and text.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from heapq import merge
from itertools import dropwhile, starmap
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError

from ...kit.client_tools import RETURN_AT_ONCE, changes_of, mcp_output, mcp_tool_name
from ...kit.trace_lines import TraceLines, TraceLog, TraceSession, open_lines, parsed, text_of, tool_input
from ...kit.usage_log import LoggedTokens, UsageLog, Used, reading

_HEADER = re.compile(
    r"(?:Chunk ID: [^\n]*\n)?(?:Exit code: (?P<exit>-?\d+)\n)?Wall time: [^\n]*\n"
    r"(?:Process exited with code (?P<code>-?\d+)\n|(?P<running>Process running with session ID [^\n]*)\n)?"
    r"(?:Original token count: \d+\n)?(?:Total output lines: \d+\n)?Output:(?:\n|$)"
)
_FAILURES = ("failed", "declined")
_FAILED = ("exec_command failed", "exec command rejected", "patch rejected", "aborted by user")
_REFUSED = re.compile(
    r"exec_command failed[^\n]*\bRejected\(|(?:exec command|patch) rejected by user|unsupported call\b|"
    r"failed to parse function arguments|(?:apply_patch verification|write_stdin) failed|unable to locate image|"
    r"image path `[^`\n]*` is not a file"
)


class CodexOutput:
    """One output for the model, parsed. `status` is the client's own, if it has one. `running`: its command went on
    when the model got it. `exit_code` is None unless the output says that the command has ended.
    """

    def __init__(self, value: Any, status: str | None = None) -> None:
        content, marked_code, marked_failed = _content(value)
        head = _HEADER.match(content) if isinstance(content, str) else None
        self.value = content[head.end() :] if head else content
        code = head and (head["code"] or head["exit"])
        self.exit_code = int(code) if code else marked_code
        self.running = head is not None and head["running"] is not None
        self._text = content if isinstance(content, str) else ""
        self._marked_failed = marked_failed
        self._status = status

    @property
    def failed(self) -> bool:
        """Whether the call failed, by the client's status, else by the exit code before the output."""
        if self._status is not None:
            return self._status in _FAILURES
        return self._marked_failed or bool(self.exit_code) or self._text.startswith(_FAILED)

    @property
    def refused(self) -> bool:
        """Whether the call never ran, as a person denied it, or the client has no such tool or cannot use what the
        model gave it. A command's output cannot fake that, as the client writes its header before it.
        """
        if self._status is not None:
            return self._status == "declined"
        return _REFUSED.match(self._text) is not None


def _content(value: Any) -> tuple[Any, int | None, bool]:
    """The content, its exit code, and whether it is marked as failed; older clients wrapped it in an object."""
    found = parsed(value)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict) and "output" in found:
        return found["output"], found["metadata"].get("exit_code"), False
    if isinstance(value, dict) and "content" in value:
        return text_of(value["content"]), None, value.get("success") is False
    return text_of(value), None, False


class _Line(msgspec.Struct, kw_only=True):
    """One line of a rollout, of a recorded session or of one that grows."""

    type: str
    timestamp: datetime | None = None
    payload: dict[str, Any] = {}

    @property
    def when(self) -> int:
        """Milliseconds since the epoch, 0 if the line has no time."""
        return ev.at_ms(self.timestamp) if self.timestamp else 0

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
        return str(self.payload.get("call_id") or self.payload.get("id") or "")


LINES = msgspec.json.Decoder(_Line)
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_SHOWN_OTHERWISE = ("cmd", "shell", "workdir", "working_directory", "sandbox_permissions", "justification")
"""A command's inputs as the model writes them, which the client reports live in other words."""
_BASH = ("bash", "/bin/bash", "/usr/bin/bash")
_COMMANDS = ("exec_command", "shell", "local_shell", "shell_command", "container.exec")
"""Names that clients have had for the tool that runs commands, which is `shell` in policies."""
FROM_SCRIPT = "exec-"
"""How the ids of calls begin that a script of the model makes (its tool `exec`): the rollout has the script only."""
_SCRIPTS = ("exec", "wait")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
_STARTED = ("event_msg/task_started", "event_msg/turn_started")
_COMPLETED = ("event_msg/task_complete", "event_msg/turn_complete")
_ABORTED = "event_msg/turn_aborted"
_INSERTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The one session of a rollout, with the subagents that it started. Raises TraceError."""
    found = [lines.decode(LINES, line) for line in lines]
    if not found:
        return
    log = TraceLog(_thread_of(found) or Path(lines.name).stem, "codex")
    reader, agents = _Reader(log, found), [_subagent_lines(path) for path in _beside(Path(lines.name))]
    starters = dict(link for thread in (found, *agents) for line in thread for link in _agent_links(line))
    readers = [reader, *(_AgentReader(log, agent, reader, starters) for agent in agents)]
    threads = ([(line, each) for line in each.lines] for each in readers)
    for line, each in merge(*threads, key=lambda pair: pair[0].when):
        each.handle_line(line)
    ends = [line.kind for line in found if line.kind in (*_STARTED, *_COMPLETED, _ABORTED)]
    reader.finish(ends)
    about = {"model": reader.model, "workspace": _folder(found) or None, "shell": "bash"}
    yield reader.log.session(lines.name, "codex", about, complete=not ends or ends[-1] not in _STARTED)


def _subagent_lines(path: Path) -> list[_Line]:
    with open_lines(str(path)) as lines:
        return [lines.decode(LINES, line) for line in lines]


def _thread_of(found: list[_Line]) -> str:
    metas = (line.payload.get("id") for line in found if line.type == "session_meta")
    return next((str(name) for name in metas if name), "")


def _is_agents(found: list[_Line]) -> bool:
    """Whether a rollout is a subagent's, whose prompt the model writes."""
    return any(line.payload.get("parent_thread_id") for line in found[:1])


def _agent_links(line: _Line) -> Iterator[tuple[str, str]]:
    """The threads that a call has started, each with that call."""
    match item := _completed_item(line):
        case {"type": "CollabAgentToolCall", "tool": "spawn_agent", "receiver_thread_ids": [*threads]}:
            yield from ((str(thread), str(item.get("id"))) for thread in threads)
        case {"type": "SubAgentActivity", "kind": "started", "agent_thread_id": str(thread)}:
            yield thread, str(item.get("id"))


def _folder(found: list[_Line]) -> str:
    """The client's folder, from the first line; "" if that does not say."""
    folders = (line.payload.get("cwd") for line in found if line.type == "session_meta")
    return next((folder for folder in folders if isinstance(folder, str)), "")


class _Reader:
    """Turns all lines of one rollout into events.

    A rollout does not number the turns: a turn ends with its usage or with the first output of its calls, and the
    model's next text belongs to another. The user's text is written twice, among the model's input and as an event of
    its own; only the latter tells it from text of the client.
    """

    def __init__(self, log: TraceLog, found: list[_Line]) -> None:
        self.log = log
        self.lines = found
        self.turns: dict[str, int] = {}
        self.model: str | None = None
        self._folder = _folder(found)
        self._author = "assistant" if _is_agents(found) else "user"
        kinds = {line.kind for line in found}
        self._marks_users = any(_typed(line) is not None for line in found)
        self._counts_responses = "token_usage_record" in kinds
        self._items = {str(item.get("id")): item for line in found if (item := _completed_item(line)).get("status")}
        self._outputs = dict(output for line in found for output in _outputs(line, self._items))
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        self._scripts: set[str] = set()
        self._will_end = set(self._items)
        self._running: set[str] = set()
        self._between = True
        self._last_total: Any = None

    def handle_line(self, line: _Line) -> None:
        """Add what one line of the log says to the session."""
        typed = _typed(line)
        if line.type == "turn_context":
            self.model = str(line.payload.get("model") or "") or self.model
            self._folder = str(line.payload.get("cwd") or "") or self._folder
        elif typed is not None:
            self.log.add(ev.MessageSent, at=line.timestamp, role=self._author, content=typed)
        elif line.item == "message":
            self._message(line)
        elif _is_script(line):
            self._respond(line)
            self._scripts.add(line.call_id)
        elif line.item in CALLS:
            self._call(line)
        elif line.item in OUTPUTS:
            self._output(line)
        elif line.kind in ("token_usage_record", "event_msg/token_count"):
            self._usage(line)
        else:
            self._item_completed(line)
            self.log.add(ev.Unrecognized, at=line.timestamp, raw=msgspec.to_builtins(line))

    def finish(self, ends: list[str]) -> None:
        if ends and ends[-1] in _COMPLETED:
            self.log.add(ev.RunCompleted)
        elif ends and ends[-1] == _ABORTED:
            self.log.add(ev.RunCancelled, reason="turn_aborted")

    def _respond(self, line: _Line) -> None:
        if self._between:
            self._between = False
            self.log.enter_turn(self.log.turn + 1, line.timestamp)

    def _place(self) -> dict[str, Any]:
        """The turn that a call belongs to, and the call that started its subagent."""
        return {"turn": self.log.turn}

    def _message(self, line: _Line) -> None:
        role, content = line.payload.get("role"), text_of(line.payload.get("content"))
        if role == "assistant":
            self._respond(line)
            self.log.add(ev.MessageReceived, at=line.timestamp, content=content)
            return
        by_user = role == "user" and not self._marks_users and not str(content).startswith(_INSERTED)
        self.log.add(ev.MessageSent, at=line.timestamp, role=self._author if by_user else "system", content=content)

    def _call(self, line: _Line) -> None:
        self._respond(line)
        call_id, name = line.call_id, call_name(line.payload)
        given, item = call_input(line.payload, self._folder), self._items.get(line.call_id, {})
        if item.get("type") != "CommandExecution" and (made := _made(item)):  # a command may be a patch to the client
            name, given, _ = made
        self._calls[call_id] = name, given
        output, place = self._outputs.get(call_id), self._place()
        self.turns[call_id] = place["turn"]
        kind = ev.ToolCallRequested if output is not None and output.refused else ev.ToolCallStarted
        self.log.add(kind, at=line.timestamp, tool_call_id=call_id, tool_name=name, tool_input=given, **place)
        if line.payload.get("type") == "web_search_call" and line.payload.get("status") != "failed":
            self.log.add(ev.ToolCallCompleted, at=line.timestamp, tool_call_id=call_id, tool_name=name)

    def _output(self, line: _Line) -> None:
        self._between = True
        call_id = line.call_id
        if call_id in self._scripts:
            return
        output = self._outputs[call_id]
        if output.running and call_id in self._will_end:
            self._running.add(call_id)
        else:
            unfinished = output.running and call_id not in self._items
            ended = {"failed": output.failed, "refused": output.refused, "unfinished": unfinished}
            self._end(line, call_id, output.value, output.exit_code, **ended)

    def _end(
        self, line: _Line, call_id: str, output: Any, exit_code: Any, *, failed: bool, refused: bool = False,
        unfinished: bool = False,
    ) -> None:  # fmt: skip
        """End a call with the output, or the error, that the client reports live."""
        name, given = self._calls.get(call_id, ("", {}))
        if failed and exit_code is not None:
            output = {"exit_code": exit_code, "output": output}
        elif not failed and name == "apply_patch":
            match given:
                case {"changes": [*changes]} if all(
                    isinstance(change, dict) and "path" in change for change in changes
                ):
                    output = {"changes": [change["path"] for change in changes]}
        unfinished = unfinished or name in RETURN_AT_ONCE
        ended: dict[str, Any] = {"failed": failed, "refused": refused, "unfinished": unfinished}
        self.log.end_call(call_id, name, output, at=line.timestamp, **ended)

    def _item_completed(self, line: _Line) -> None:
        """End a command that went on when the model got its output; of a call that a script made, this is all."""
        item = _completed_item(line)
        call_id = str(item.get("id"))
        if call_id.startswith(FROM_SCRIPT) and (made := _made(item)) is not None:
            name, given, output = made
            self._calls[call_id] = name, given
            call: dict[str, Any] = {"tool_call_id": call_id, "tool_name": name, "tool_input": given}
            self.log.add(ev.ToolCallStarted, at=line.timestamp, **self._place(), **call)
            self._end(line, call_id, output, item.get("exit_code"), failed=item.get("status") in _FAILURES)
            return
        self._will_end.discard(call_id)
        if call_id in self._running:
            self._running.remove(call_id)
            failed = item.get("status") in _FAILURES
            self._end(line, call_id, item.get("aggregated_output"), item.get("exit_code"), failed=failed)

    def _usage(self, line: _Line) -> None:
        """Add a turn's own usage, or the running total unless it is repeated."""
        usage: Any = line.payload.get("usage")
        scope: ev.Scope = "delta"
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
            given = {name: n for name in _Usage.__struct_fields__ if isinstance(n := usage.get(name), int)}
            self._used(line, scope, _Usage(**given).tokens())

    def _used(self, line: _Line, scope: ev.Scope, tokens: LoggedTokens, of_subagents: int = 0) -> None:
        about = {"model": self.model, "scope": scope, "subagent_tokens": of_subagents}
        self.log.add(ev.TokenUsageUpdated, at=line.timestamp, **about, **tokens.figures())


class _AgentReader(_Reader):
    """Adds the calls and the tokens of one subagent to its session; its messages are not the session's.

    Its calls belong to the turn of the call that started it. What its rollout has before it names its own thread is a
    copy of what its parent's has. `starters` are the calls that started the session's threads.
    """

    def __init__(self, log: TraceLog, found: list[_Line], main: _Reader, starters: dict[str, str]) -> None:
        thread = _thread_of(found)
        own = list(dropwhile(lambda line: line.payload.get("thread_id") != thread, found))
        super().__init__(log, own)
        self._folder = _folder(found)
        self._starter = starters.get(thread)
        self.turns = main.turns

    def handle_line(self, line: _Line) -> None:
        if line.item != "message" and _typed(line) is None:
            super().handle_line(line)

    def _respond(self, line: _Line) -> None:
        """It begins no turn of the session."""

    def _place(self) -> dict[str, Any]:
        turn = self.turns.get(self._starter or "", max(self.log.turn, 1))
        return {"turn": turn, "parent_tool_call_id": self._starter}

    def _used(self, line: _Line, scope: ev.Scope, tokens: LoggedTokens, of_subagents: int = 0) -> None:
        super()._used(line, scope, tokens, tokens.all)


def _typed(line: _Line) -> str | None:
    """The user's text, if the line has one."""
    if line.kind == "event_msg/user_message":
        return str(line.payload.get("message", ""))
    item = _completed_item(line)
    return str(text_of(item.get("content"))) if item.get("type") == "UserMessage" else None


def _is_script(line: _Line) -> bool:
    """Whether the model runs a script, or waits for one: neither is a call, but each that the script makes is."""
    return (
        line.item in CALLS and line.payload.get("namespace") == "functions" and line.payload.get("name") in _SCRIPTS
    )


def _made(item: dict[str, Any]) -> tuple[str, dict[str, Any], Any] | None:
    """The name, input and output of a call that the client has made, as it would report it live."""
    match item:
        case {"type": "CommandExecution", "command": [*words]}:
            folder = unquote(str(item.get("cwd", "")).removeprefix("file://"))
            return "shell", {"command": _script([*map(str, words)]), "cwd": folder}, item.get("aggregated_output")
        case {"type": "McpToolCall", "server": server, "tool": name}:
            result = item.get("result")
            output = mcp_output(result) if isinstance(result, dict) else result
            return mcp_tool_name(str(server), str(name)), tool_input(item.get("arguments")), output
        case {"type": "FileChange", "changes": {**changes}}:
            return "apply_patch", {"changes": [*starmap(_change, changes.items())]}, item.get("stdout")
    return None


def _change(path: str, change: Any) -> dict[str, Any]:
    found = change if isinstance(change, dict) else {}
    moved = {"move_path": found["move_path"]} if found.get("move_path") else {}
    diff = found.get("content", found.get("unified_diff", ""))
    return {"path": path, "kind": found.get("type", "update"), "diff": diff, **moved}


def _completed_item(line: _Line) -> dict[str, Any]:
    item = line.payload.get("item")
    return item if line.kind == "event_msg/item_completed" and isinstance(item, dict) else {}


def _outputs(line: _Line, items: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, CodexOutput]]:
    if line.item in OUTPUTS:
        yield line.call_id, CodexOutput(line.payload.get("output"), items.get(line.call_id, {}).get("status"))


def call_name(payload: dict[str, Any]) -> str:
    """The tool's name; one of an MCP server, which is its namespace, is `mcp__server__tool`."""
    name = str(payload.get("name") or str(payload["type"]).removesuffix("_call"))
    if name in _COMMANDS:
        return "shell"
    namespace = str(payload.get("namespace") or "")
    return f"{namespace.removesuffix('__')}__{name}" if namespace.startswith("mcp__") else name


def call_input(payload: dict[str, Any], folder: str = "") -> dict[str, Any]:
    """A call's input, as the client reports it live; `folder` is that of the turn, if it is known."""
    recorded = _recorded_input(payload)
    if call_name(payload) == "apply_patch" and isinstance(patch := recorded.get("input"), str):
        return {"changes": changes_of(patch)} if changes_of(patch) else recorded
    if call_name(payload) != "shell":
        return recorded
    command = recorded.get("cmd", recorded.get("command"))
    words = [str(word) for word in command] if isinstance(command, list) else None
    shell = recorded.get("shell")
    if isinstance(shell, str) and isinstance(command, str) and shell not in _BASH:
        words = [shell, "-c", command]
    named = recorded.get("workdir", recorded.get("working_directory"))
    live = {
        "command": _script(words) if words else command,
        "cwd": os.path.normpath(os.path.join(folder, named)) if isinstance(named, str) else folder or None,
        "escalated": recorded.get("sandbox_permissions", "use_default") != "use_default" or None,
        "reason": recorded.get("justification"),
    }
    others = {name: value for name, value in recorded.items() if name not in _SHOWN_OTHERWISE}
    return {**others, **{name: value for name, value in live.items() if value is not None}}


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


class CodexUsageLog(UsageLog):
    """The rollout of a session, and those of the threads that it started."""

    def below(self, main: Path) -> Iterable[Path]:
        for day in main.parents[3].glob("*/*/*"):
            if day >= main.parent:
                yield from _threads(main, day)

    def has_call(self, call_id: str) -> bool:
        """Of a call that a script makes: whether the script runs, or the call that waits for it, with its tokens."""
        if not call_id.startswith(FROM_SCRIPT):
            return super().has_call(call_id)
        return self.main_log is not None and bool(self.main_log.calls) and not self.main_log.calls_ahead

    def read_line(self, line: bytes) -> Used | None:
        if not any(kind in line for kind in _KINDS):
            return None
        found = LINES.decode(line)
        payload = msgspec.convert(found.payload, _Payload) if found.type in _PAYLOADS else _Payload()
        if found.type == "turn_context":
            return Used(model=payload.model or "", at=found.timestamp)
        if found.type == "token_usage_record":
            tokens = payload.usage.tokens() if payload.usage is not None else LoggedTokens()
            below = payload.thread_id != payload.session_id
            return Used(payload.response_id or "", "", tokens, found.timestamp, below=below)
        if payload.type.endswith("_call") and payload.call_id:
            return Used(at=found.timestamp, calls=(payload.call_id,))
        if payload.type in OUTPUTS and payload.call_id:
            return Used(at=found.timestamp, ended=(payload.call_id,))
        if payload.type == "message" and payload.role == "assistant":
            return Used(at=found.timestamp, text="".join(_texts(payload.content)))
        return None


def without_subagents(paths: Iterable[Path]) -> list[Path]:
    """These files, without those that are read as part of another one of them."""
    given = list(paths)
    mains = {(path.parent, path.stem[-_ID:]): path.name for path in sorted(given, reverse=True) if _is_rollout(path)}
    return [path for path in given if path.name <= mains.get((path.parent, _owner_of(path)), path.name)]


def _beside(main: Path) -> list[Path]:
    """The rollouts of the threads that a session started, in its folder."""
    session = main.stem[-_ID:]
    logs = main.parent.glob("rollout-*.jsonl") if _is_rollout(main) else ()
    return sorted(log for log in logs if log.name > main.name and _owner_of(log) == session)


def _is_rollout(path: Path) -> bool:
    return path.name.startswith("rollout-")


def _owner_of(log: Path) -> str:
    """The session that a rollout names in its first line; "" for any other file."""
    if _is_rollout(log) and log.suffix == ".jsonl":
        with suppress(EOFError, EventError):
            return _session_of(log) or ""
    return ""


def _threads(main: Path, folder: Path) -> Iterator[Path]:
    """The rollouts in a folder of the threads that a session started. Raises EventError."""
    session = main.stem[-_ID:]
    for log in folder.glob("rollout-*.jsonl"):
        with suppress(EOFError):
            if log.name > main.name and _session_of(log) == session:
                yield log


_ID = 36
"""The length of a thread's id, with which its rollout's name ends."""
_ROLLOUTS = 4096
"""For how many rollouts the session is cached, as every hook looks it up, repeatedly while it waits."""
_PAYLOADS = ("turn_context", "token_usage_record", "response_item")
_KINDS = (b'"turn_context"', b'"token_usage_record"', b'_call"', b'_call_output"', b'"assistant"')


@lru_cache(_ROLLOUTS)
def _session_of(log: Path) -> str | None:
    """The session that a thread belongs to, by the first line, which never changes.

    Raises EOFError while that line is being written, EventError if it cannot be read.
    """
    with reading(log), log.open("rb") as file:
        first = file.readline()
        if not first.endswith(b"\n"):
            raise EOFError
        return msgspec.convert(LINES.decode(first).payload, _Payload).session_id


def _texts(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "output_text":
            yield str(block.get("text", ""))


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_output_tokens: int = 0

    def tokens(self) -> LoggedTokens:
        cached = self.cached_input_tokens + self.cache_write_input_tokens
        return LoggedTokens(
            max(0, self.input_tokens - cached),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.reasoning_output_tokens,
        )


class _Payload(msgspec.Struct):
    type: str = ""
    model: str | None = None
    response_id: str | None = None
    thread_id: str | None = None
    session_id: str | None = None
    usage: _Usage | None = None
    call_id: str | None = None
    role: str | None = None
    content: Any = None
