"""Claude Code session logs: `~/.claude/projects/<folder>/<session>.jsonl`, and its stream of JSON lines.

`ClaudeUsageLog` reads only the usage, of a session that goes on; `read` gives the whole session as events.
"""

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import merge
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from proctor.policies.events import TokenUsageUpdated, ToolCallRequested, ToolCallStarted, Unrecognized, at_ms
from proctor.policies.values.json_values import NOT_JSON

from ...kit.client_tools import mcp_tool_name, plain_output, runs_in_background
from ...kit.trace_lines import TraceLines, TraceLog, TraceSession, message_kind, open_lines, text_of, tool_input
from ...kit.usage_log import LoggedTokens, UsageLog, Used

WOKEN: Final = "<task-notification>"
OTHERS: Final = (
    *(WOKEN, "<teammate-message", "<cross-session-message", "<channel"),
    *("<bash-stdout>", "<bash-stderr>", "<local-command-"),
)
"""How texts begin that the client passes on as the user's: what subagents and others report, what commands print."""
_NO_PERSONS: Final = ("scheduled", "auto_continuation", "task_notification", "peer", "system", "host_synthetic")
"""Origins of prompts that nobody wrote; not every version names one."""
SCHEDULED: Final = "scheduled_task_fire"
"""The subtype of the line before a prompt that the model has scheduled."""
_UNUSABLE: Final = "<tool_use_error>"
"""How the answer begins to a call that the client could not use."""
_Fate: TypeAlias = Literal["ran", "denied", "unusable"]
NOT_A_MODEL = "<synthetic>"
"""The model's name in the log for messages that the client wrote itself."""


_BELOW: Final = "subagents"


def logs_below(main: Path) -> Iterable[Path]:
    """The logs of the subagents of the session with this log; those of a workflow have a folder of their own."""
    return (main.with_suffix("") / _BELOW).rglob("*.jsonl")


class ClaudeUsageLog(UsageLog):
    """The usage in the log of a session, and in those in the folder of its subagents.

    A turn is written as several lines with one message id, each with the usage so far; the highest figures count.
    """

    def below(self, main: Path) -> Iterable[Path]:
        return logs_below(main)

    def read_line(self, line: bytes) -> Used | None:
        return used(line)


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class LogUsage(msgspec.Struct, kw_only=True):
    """The usage of a response in a line of the log; `input_tokens` leaves out tokens from the cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None

    def tokens(self) -> LoggedTokens:
        """Its tokens by kind."""
        details = self.output_tokens_details
        return LoggedTokens(
            self.input_tokens or 0,
            self.output_tokens or 0,
            self.cache_read_input_tokens or 0,
            self.cache_creation_input_tokens or 0,
            (details.thinking_tokens if details else None) or 0,
        )


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    text: str = ""


class _UsageMessage(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: LogUsage | None = None
    content: list[_Block] | str | None = None


class _UsageLine(msgspec.Struct):
    type: str = ""
    timestamp: datetime | None = None
    message: msgspec.Raw = msgspec.Raw(b"null")


_usage_lines = msgspec.json.Decoder(_UsageLine)
_usage_messages = msgspec.json.Decoder(_UsageMessage)


def used(line: bytes) -> Used | None:
    """The usage in a line; None if the line has none. Raises msgspec.MsgspecError."""
    if b'"usage"' not in line or b'"assistant"' not in line:
        return None
    record = _usage_lines.decode(line)
    if record.type != "assistant":
        return None
    message = _usage_messages.decode(record.message)
    if message.usage is None or message.model == NOT_A_MODEL:
        return None
    blocks = message.content if isinstance(message.content, list) else ()
    calls = tuple(block.id for block in blocks if block.type == "tool_use" and block.id)
    text = "".join(block.text for block in blocks if block.type == "text")
    return Used(message.id or "", message.model or "", message.usage.tokens(), record.timestamp, calls, text)


_FILES: Final = {
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit"), "file_path"),
    "NotebookEdit": "notebook_path",
}
"""The client's own tools for a file, and the input with its path."""


USER_REJECTED: Final = "User rejected tool use"
"""The result of a call that its person refused or interrupted."""
_DENIALS: Final = ("user-rejected", "permission-rule", "automode-blocked")


class CallResult(msgspec.Struct, kw_only=True, rename="camel"):
    """What the client notes beside the result of a call, where no tool can write. Before `tool_denial_kind`, a denial
    was told by the result or the decision alone.
    """

    tool_use_result: Any = None
    tool_denial_kind: str | None = None
    tool_denial_before_run: bool | None = None
    tool_denial_after_run: bool | None = None
    permission_decision: Any = None

    @property
    def is_end(self) -> bool:
        """Whether the call was denied or interrupted; not so one whose result alone was refused."""
        if self.tool_denial_kind is None:
            return self.tool_use_result == USER_REJECTED or self._is_rejected
        return (
            bool(self.tool_denial_before_run or self.tool_denial_kind in _DENIALS) and not self.tool_denial_after_run
        )

    @property
    def ran(self) -> bool:
        """Whether it had begun when its person interrupted it: the client writes of it as of one that was denied."""
        denied = self.tool_denial_before_run or self._is_rejected
        return self.tool_denial_kind == "user-rejected" and self.tool_use_result == USER_REJECTED and not denied

    def is_unusable(self, output: Any) -> bool:
        """Whether the client could not use the call, and ran nothing. It marks what it says then, which it notes here
        without the mark; of what a tool says, it notes all.
        """
        noted = self.tool_use_result
        return str(output).startswith(_UNUSABLE) and isinstance(noted, str) and _UNUSABLE not in noted

    @property
    def by_hook(self) -> bool:
        """Whether a hook has answered the question about it, and not its person."""
        return self._is_decided("source", "hook")

    @property
    def _is_rejected(self) -> bool:
        return self._is_decided("decision", "reject")

    def _is_decided(self, name: str, value: str) -> bool:
        return isinstance(self.permission_decision, dict) and self.permission_decision.get(name) == value


class _Envelope(CallResult, kw_only=True, rename=None):
    """A line without its message. The client's log and its stream spell some names differently."""

    type: str
    uuid: str | None = None
    cwd: str | None = None
    parent_uuid: str | None = msgspec.field(default=None, name="parentUuid")
    session: str | None = msgspec.field(default=None, name="sessionId")
    stream_session: str | None = msgspec.field(default=None, name="session_id")
    timestamp: datetime | None = None
    is_sidechain: bool = msgspec.field(default=False, name="isSidechain")
    is_meta: bool | None = msgspec.field(default=None, name="isMeta")
    is_summary: bool | None = msgspec.field(default=None, name="isCompactSummary")
    agent_id: str | None = msgspec.field(default=None, name="agentId")
    parent_call: str | None = msgspec.field(default=None, name="parent_tool_use_id")
    message: msgspec.Raw = msgspec.Raw(b"null")
    prompt_source: str | None = msgspec.field(default=None, name="promptSource")
    turn_origin: str | None = msgspec.field(default=None, name="turnOrigin")


class Message(msgspec.Struct, kw_only=True):
    role: str = ""
    id: str | None = None
    model: str | None = None
    content: str | list[dict[str, Any]] = ""
    usage: LogUsage | None = None

    def blocks(self) -> list[dict[str, Any]]:
        """The content as blocks; plain text is one."""
        return [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content


class LogRecord(msgspec.Struct, kw_only=True):
    """One line; `raw` is the line itself if its type is unknown."""

    envelope: _Envelope
    message: Message | None = None
    raw: dict[str, Any] | None = None

    @property
    def session_id(self) -> str:
        return self.envelope.session or self.envelope.stream_session or ""

    @property
    def is_subagent(self) -> bool:
        return self.envelope.is_sidechain or self.envelope.parent_call is not None

    @property
    def when(self) -> int:
        """Milliseconds since the epoch, 0 if the line has no time."""
        return at_ms(self.envelope.timestamp) if self.envelope.timestamp else 0

    @property
    def at(self) -> datetime | None:
        return self.envelope.timestamp


_envelopes = msgspec.json.Decoder(_Envelope)
_messages = msgspec.json.Decoder(Message)
_anything = msgspec.json.Decoder(dict[str, Any])


def records(lines: TraceLines) -> Iterator[LogRecord]:
    """The lines of one log, each uuid once. Raises TraceError."""
    seen: set[str] = set()
    for line in lines:
        envelope = lines.decode(_envelopes, line)
        if envelope.uuid is not None and envelope.uuid in seen:
            continue
        if envelope.uuid is not None:
            seen.add(envelope.uuid)
        if envelope.type in ("user", "assistant"):
            yield LogRecord(envelope=envelope, message=lines.decode(_messages, envelope.message))
        else:
            yield LogRecord(envelope=envelope, raw=lines.decode(_anything, line))


def as_proposed(name: str, tool_input: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """A call's input as the client proposes it, with an absolute file path; the log has the path as written.

    A path in the home directory stays as it is, because the log does not name that directory.
    """
    key = _FILES.get(name)
    path = tool_input.get(key) if key else None
    if not isinstance(path, str) or not folder or not posixpath.isabs(folder) or path.strip().startswith("~"):
        return tool_input
    return {**tool_input, str(key): posixpath.normpath(posixpath.join(folder, path.strip()))}


class _Owner(msgspec.Struct, rename="camel"):
    session_id: str = ""


_owner = msgspec.json.Decoder(_Owner)


def subagent_logs(session_log: Path) -> list[Path]:
    """The logs of a session's subagents, kept in its own folder or, by older clients, beside it."""
    beside = [
        path
        for path in sorted(session_log.parent.glob("agent-*.jsonl"))
        if path != session_log and _owner_of(path) == session_log.stem
    ]
    return [*sorted(logs_below(session_log)), *beside]


def without_subagents(paths: Iterable[Path]) -> list[Path]:
    """These files, without those that are read as part of another one of them."""
    given = list(paths)
    present = set(given)
    return [path for path in given if _session_log_of(path) not in present]


def _session_log_of(path: Path) -> Path | None:
    if path.suffix != ".jsonl":
        return None
    if (folder := next((each for each in path.parents if each.name == _BELOW), None)) is not None:
        return folder.parent.with_suffix(".jsonl")
    if path.name.startswith("agent-") and (owner := _owner_of(path)) and owner != path.stem:
        return path.parent / f"{owner}.jsonl"
    return None


def _owner_of(path: Path) -> str:
    """The session that a subagent's log names in its first line; "" without one."""
    try:
        with path.open("rb") as file:
            return _owner.decode(file.readline()).session_id
    except (OSError, *NOT_JSON):
        return ""


def called_tool(block: Mapping[str, Any]) -> str:
    """The tool's name in a block that calls it, also one of an MCP server that the API connects to."""
    server, name = block.get("server_name"), str(block.get("name", ""))
    return mcp_tool_name(str(server), name) if server else name


def read(lines: TraceLines) -> Iterator[TraceSession]:
    """The sessions of one log, with those of the subagents they started. Raises TraceError."""
    for session_records in _by_session(records(lines)):
        path = Path(lines.name)
        logs = [_read_log(log) for log in subagent_logs(path)] if path.is_file() else []
        together = merge(session_records, *logs, key=lambda record: record.when) if logs else session_records
        yield _session(list(together), lines.name)


def _read_log(path: Path) -> list[LogRecord]:
    with open_lines(str(path)) as lines:
        return [record for record in records(lines) if record.message is not None]


def _by_session(found: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    """Split a stream of several logs at each line that begins another session."""
    held: list[LogRecord] = []
    session_id = ""
    for record in found:
        fresh = record.session_id and session_id and record.session_id != session_id
        if fresh and record.envelope.parent_uuid is None:
            yield held
            held = []
        session_id = record.session_id or session_id
        held.append(record)
    if held:
        yield held


def _session(found: list[LogRecord], source: str) -> TraceSession:
    session_id = next((record.session_id for record in found if record.session_id), Path(source).stem)
    reader = _Reader(TraceLog(session_id, "claude"), found)
    for record in found:
        reader.handle_line(record)
    models = (record.message.model for record in found if record.message and record.message.model)
    model = next((name for name in models if name != NOT_A_MODEL), None)
    folder = next((record.envelope.cwd for record in found if record.envelope.cwd), None)
    return reader.log.session(source, "claude", {"model": model, "workspace": folder})


class _Reader:
    """Turns all lines of one session into events.

    A turn is written as several lines with the same message id and the usage so far; only the last of them is
    counted. A subagent's calls belong to the turn of the call that started it.
    """

    def __init__(self, log: TraceLog, found: list[LogRecord]) -> None:
        self.log = log
        self._turns: dict[str, int] = {}
        self._calls: dict[str, tuple[str, int, dict[str, Any]]] = {}
        self._asked_by: dict[str, list[str]] = {}
        self._answers: Counter[str] = Counter()
        self._is_scheduled = False
        self._usage_at = {
            record.message.id: id(record)
            for record in found
            if record.message and record.message.id and record.message.usage
        }
        self._starters = dict(link for record in found for link in _agent_links(record))
        self._fates: dict[str, list[_Fate]] = {}
        for record in found:
            for call, fate in _fates(record):
                self._fates.setdefault(call, []).append(fate)

    def handle_line(self, record: LogRecord) -> None:
        if record.message is None:
            self._is_scheduled = self._is_scheduled or (record.raw or {}).get("subtype") == SCHEDULED
            self.log.add(Unrecognized, at=record.at, raw=record.raw or {})
        elif record.envelope.type == "assistant":
            self._response(record, record.message)
        else:
            self._sent(record, record.message)

    def _response(self, record: LogRecord, message: Message) -> None:
        if message.model == NOT_A_MODEL:
            content = text_of(message.content)
            self.log.add(message_kind("system"), at=record.at, role="system", content=content)
            return
        parent = self._parent(record)
        turn = self._turn(record, message, parent)
        for block in message.blocks():
            if str(block.get("type")).endswith("tool_use"):
                self._call(record, block, turn, parent)
            elif str(block.get("type", "")).endswith("tool_result"):
                self._result(record, block)
            elif block.get("type") == "text":
                self.log.add(message_kind("assistant"), at=record.at, content=block.get("text"))
        if message.usage and self._usage_at.get(message.id or "", id(record)) == id(record):
            self._usage(record, message.usage, message.model)

    def _sent(self, record: LogRecord, message: Message) -> None:
        blocks = message.blocks()
        results = [block for block in blocks if str(block.get("type", "")).endswith("tool_result")]
        for block in results:
            self._result(record, block)
        texts = [block for block in blocks if block.get("type") == "text"]
        if texts:
            content = text_of(texts)
            role = self._role(record, bool(results) or str(content).startswith(OTHERS))
            self.log.add(message_kind("user"), at=record.at, role=role, content=content)

    def _role(self, record: LogRecord, passed_on: bool) -> str:
        """The author of a `user` line: the client may have added it, and the model writes a subagent's prompt."""
        if record.is_subagent:
            return "assistant"
        line, scheduled = record.envelope, False
        if line.prompt_source is not None:
            scheduled, self._is_scheduled = self._is_scheduled, False
        own = passed_on or line.is_meta or line.is_summary or line.prompt_source == "system"
        by_person = not scheduled if line.turn_origin is None else line.turn_origin not in _NO_PERSONS
        return "user" if by_person and not own else "system"

    def _parent(self, record: LogRecord) -> str | None:
        return record.envelope.parent_call or self._starters.get(record.envelope.agent_id or "")

    def _turn(self, record: LogRecord, message: Message, parent: str | None) -> int:
        if record.is_subagent:
            return self._calls[parent][1] if parent in self._calls else max(self.log.turn, 1)
        key = message.id or record.envelope.uuid or str(id(record))
        turn = self._turns.setdefault(key, len(self._turns) + 1)
        self.log.enter_turn(turn, record.at)
        return turn

    def _call(self, record: LogRecord, block: dict[str, Any], turn: int, parent: str | None) -> None:
        call_id, name = str(block.get("id", "")), called_tool(block)
        responses = self._asked_by.setdefault(call_id, [])
        response = (record.message.id if record.message else None) or ""
        if response in responses:
            return  # one response is written on several lines
        responses.append(response)
        given = as_proposed(name, tool_input(block.get("input")), record.envelope.cwd)
        self._calls[call_id] = name, turn, given
        ran = self._fate(call_id, len(responses)) == "ran"
        self.log.add(
            ToolCallStarted if ran else ToolCallRequested,
            at=record.at,
            tool_call_id=call_id,
            tool_name=name,
            turn=turn,
            tool_input=given,
            parent_tool_call_id=parent,
        )

    def _result(self, record: LogRecord, block: dict[str, Any]) -> None:
        call_id = str(block.get("tool_use_id", ""))
        name, _, given = self._calls.get(call_id, ("", 0, {}))
        self._answers[call_id] += 1
        refused = self._fate(call_id, self._answers[call_id]) == "denied"
        output, failed = plain_output(block.get("content")), block.get("is_error")
        unfinished = runs_in_background(name, given, output)
        self.log.end_call(call_id, name, output, at=record.at, failed=failed, refused=refused, unfinished=unfinished)

    def _fate(self, call_id: str, time: int) -> _Fate:
        fates = self._fates.get(call_id, [])
        return fates[time - 1] if time <= len(fates) else "ran"

    def _usage(self, record: LogRecord, usage: LogUsage, model: str | None) -> None:
        tokens = usage.tokens()
        of_subagents = tokens.all if record.is_subagent else 0
        self.log.add(TokenUsageUpdated, at=record.at, model=model, **tokens.figures(), subagent_tokens=of_subagents)


def _agent_links(record: LogRecord) -> Iterator[tuple[str, str]]:
    """A subagent's id and the call that started it, from the line with that call's result."""
    outcome = record.envelope.tool_use_result
    if record.message and isinstance(outcome, dict) and isinstance(outcome.get("agentId"), str):
        yield from ((outcome["agentId"], str(block["tool_use_id"])) for block in _results(record.message))


def _fates(record: LogRecord) -> Iterator[tuple[str, _Fate]]:
    """The calls with results in a line, and what became of each."""
    line = record.envelope
    denied = line.is_end and not line.ran
    for block in _results(record.message) if record.message else ():
        unusable = line.is_unusable(plain_output(block.get("content")))
        yield str(block["tool_use_id"]), "denied" if denied else "unusable" if unusable else "ran"


def _results(message: Message) -> Iterator[dict[str, Any]]:
    yield from (block for block in message.blocks() if "tool_use_id" in block)
