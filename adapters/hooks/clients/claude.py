"""Claude Code: its events, the fields of its input, its answers, its permissions."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.shell.parser import read_commands
from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import UsageError

from ...agents.claude.session_log import (
    OTHERS,
    SCHEDULED,
    USER_REJECTED,
    WOKEN,
    CallResult,
    ClaudeUsageLog,
    logs_below,
)
from ...kit import usage_log
from ...kit.client_tools import HOOKED, plain_output
from .. import messages
from ..permission_import import (
    EVERYTHING,
    READING,
    WRITING,
    Decision,
    Permissions,
    mapping_at,
    read_permissions,
    texts_at,
)

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PermissionRequest": "permission",
    "PostToolUse": "completed",
    "PostToolUseFailure": "failed",
    "PostToolBatch": "batch",
    "Stop": "stop",
    "StopFailure": "stop",
    "SessionEnd": "session_end",
    "ConfigChange": "settings",
}
"""A prompt that is not seen begins its run with its first call."""


class _Task(msgspec.Struct, frozen=True):
    type: str = ""


class _Input(messages.HookMessage, frozen=True, kw_only=True):
    prompt_id: str = ""
    agent_id: str | None = None
    permission_mode: str = ""
    transcript_path: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""
    tool_response: Any = None
    error: Any = None
    tool_calls: tuple[messages.BatchCall, ...] = ()
    last_assistant_message: str | None = None
    source: str = ""
    background_tasks: tuple[_Task, ...] = ()


_PERSONS: Final = ("", "user", "sdk")
"""Sources of prompts that a person wrote; not every version names one."""
_AGENTS: Final = ("subagent", "workflow")


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, CLAUDE)
    if EVENTS.get(message.event) in ("call", "completed") and not message.tool_use_id:
        raise EventError("the hook names no call")
    tool_input = message.tool_input
    if message.tool_name in _SHELLS and isinstance(line := tool_input.get("command"), str):
        tool_input = {**tool_input, **_aliased(line, message.transcript_path)}
    return messages.hook_input(
        CLAUDE,
        message,
        tool_input=tool_input,
        tool_response=_output(message.tool_name, message.tool_response),
        by_person=message.source in _PERSONS and not message.prompt.startswith(OTHERS),
        woken=message.prompt.startswith(WOKEN),
        awaits=any(task.type in _AGENTS for task in message.background_tasks),
        own_settings=message.source == "policy_settings",
    )


_SHELLS: Final = tuple(each.name for each in HOOKED["claude"] if "aliased" in each.takes)


def _output(tool: str, result: Any) -> Any:
    """A call's output as it is when Claude Code is run: of a server its text, of a command, unless it goes on, and of
    a text file what is read; of a change that it was made.
    """
    match result:
        case {"backgroundTaskId": str(task)} if task:
            return result
        case {"stdout": str(out), "stderr": str(err)} if tool in _SHELLS:
            return "\n".join(filter(None, (out.strip("\n"), err.strip("\n"))))
        case {"type": "text", "file": {"content": str(text), "startLine": int(first)}} if tool == "Read":
            return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), first))
        case {"type": "create", "filePath": str(path)} if tool == "Write":
            return f"File created successfully at: {path}{_IN_CONTEXT}"
        case {"filePath": str(path)} if tool in ("Edit", "MultiEdit", "Write"):
            suffix = "" if result.get("contentNotInModelContext") else _IN_CONTEXT
            return f"The file {path} has been updated successfully.{suffix}"
    return plain_output(result)


_IN_CONTEXT: Final = " (file state is current in your context \N{EM DASH} no need to Read it back)"


_ALIAS: Final = re.compile(
    r"""^alias (?:-- )?([^\s='"]+)=((?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])*)""", re.MULTILINE | re.DOTALL
)
_MOST_SNAPSHOTS: Final = 64
"""Of the person's shell, those that were taken last."""
_MOST_LINES: Final = 32
_UNKNOWN_LINE: Final = "$_"


def _aliased(line: str, log: str) -> dict[str, str]:
    """What aliases of the person's shell make of a command line, as an input beside it: the client runs a snapshot of
    that shell before. One that only adds words to the program of its name changes nothing.
    """
    aliases = _aliases(log)
    lines = [line]
    for each in lines if aliases else ():
        for made in _with_values(each, aliases):
            if made not in lines:
                lines.append(made)
            if len(lines) > _MOST_LINES:
                return {"aliased": _UNKNOWN_LINE}
    return {"aliased": "\n".join(lines[1:])} if len(lines) > 1 else {}


def _with_values(line: str, aliases: Mapping[str, Collection[str]]) -> Iterator[str]:
    """The commands of a line with what an alias stands for, at each place that may be its program's: what is set
    before that, or a file that it is redirected to, may have the alias's name, too.
    """
    for part in read_commands(line).parts:
        name, command = part.argv[0] if part.argv else "", part.command
        for value in sorted(aliases.get(name, ())):
            if value.split()[:1] != [name]:
                found = re.finditer(rf"(?<![\w\\'\"./-]){re.escape(name)}(?![\w'\"])", command)
                yield from (command[: one.start()] + value + command[one.end() :] for one in found)


_SEEN: Final[dict[str, tuple[set[tuple[float, str]], dict[str, set[str]]]]] = {}
"""By their folder, the snapshots that are there and were read, each with its time, and the aliases of all so far: a
client takes one for its first command, and removes it.
"""


def _aliases(log: str) -> dict[str, set[str]]:
    """What each alias stands for, in any snapshot; each is read once, as every command asks."""
    folder = os.path.join(CLAUDE.settings.home(log) or "/nowhere", "shell-snapshots")
    read, found = _SEEN.get(folder, ((), {}))
    latest = nlargest(_MOST_SNAPSHOTS, _snapshots(folder))
    for snapshot in latest:
        if snapshot not in read:
            for name, value in _aliases_in(Path(snapshot[1])):
                found.setdefault(name, set()).add(value)
    _SEEN[folder] = set(latest), found
    return found


def _snapshots(folder: str) -> Iterator[tuple[float, str]]:
    """The snapshots of a folder, each with the time of its last change."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("snapshot-") and entry.name.endswith(".sh"):
                yield _changed_at(entry), entry.path


def _aliases_in(path: Path) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for name, value in _ALIAS.findall(path.read_text(encoding="utf-8", errors="replace")):
            with suppress(ValueError):
                yield name, " ".join(shlex.split(value))


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The hook's output; empty when there is nothing to say."""
    fields: dict[str, Any] = {}
    if answer.notes:
        fields["systemMessage"] = "\n".join(answer.notes)
    if answer.stop:
        fields |= {"continue": False, "stopReason": messages.STOPPED}
    if (answer.verdict != "allow" or answer.reason) and given.kind == "call":
        fields["hookSpecificOutput"] = {
            "hookEventName": given.event,
            "permissionDecision": answer.verdict,
            "permissionDecisionReason": answer.reason,
        }
    elif given.kind == "permission" and answer.reason:
        why = {"message": answer.reason} if answer.verdict == "deny" else {}
        fields["hookSpecificOutput"] = {"hookEventName": given.event, "decision": {"behavior": answer.verdict, **why}}
    elif answer.verdict == "deny" and given.kind in ("prompt", "settings"):
        fields |= {"decision": "block", "reason": answer.reason}
    return fields


LOWEST: Final = "2.1.295"
"""Since it, a hook without a shell that cannot be started refuses (`onFailure`)."""
LOWEST_KEY: Final = "requiredMinimumVersion"
TIMEOUT_S: Final = 120
"""The client lets a call run when its hook takes longer; a hook ends itself long before."""
UNSET: Final = (*messages.NEVER_SET, "CLAUDE_CODE_SHELL_PREFIX")
"""The variables that a settings file of a repository must not set."""
GUARDS: Final[Mapping[str, Any]] = {"disableAllHooks": False, "disableSkillShellExecution": True}
"""A skill's or a slash command's own shell commands ask no hook."""


def _fails_closed(event: str) -> dict[str, Any]:
    """Before a call, at a prompt and of settings, a hook that fails refuses."""
    kind = EVENTS[event]
    closed = {"onFailure": "block"} if kind in ("call", "prompt", "settings") else {}
    return {"timeout": messages.QUESTION_S if kind == "permission" else TIMEOUT_S, **closed}


def entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """A hook as the settings have it: started without a shell, which variables of a repository could keep from it."""
    program, *arguments = shlex.split(line)
    return {"hooks": [{"type": "command", "command": program, "args": arguments, **_fails_closed(event)}]}


def http_entry(event: str, url: str, authorization: str) -> dict[str, Any]:
    """A hook that the client sends itself; one that nobody takes refuses."""
    sent = {"type": "http", "url": url, "headers": {"Authorization": authorization}}
    return {"hooks": [{**sent, **_fails_closed(event)}]}


def guards(environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings that keep the hooks on, and foreign code out of them.

    A project's own settings go before those its repository brings: variables that are not used here are empty.
    """
    return {**GUARDS, "env": messages.emptied(UNSET, environment)}


def ended(log: str, call_ids: Collection[str], is_whole: bool) -> dict[str, bool]:
    """Of these calls, those that a person refused or interrupted, each with whether it ran: by the ends of the logs
    of a session and of its subagents. Once hooks have told all they will, any other that has a result has run, too.
    """
    found: dict[str, bool] = {}
    for row in _results(log, *_MARKS, *(call_id.encode() for call_id in call_ids if is_whole)):
        if is_whole or row.is_end:
            found |= {part.tool_use_id: row.ran or not row.is_end for part in row.message.content}
    return {call_id: found[call_id] for call_id in call_ids if call_id in found}


def _results(log: str, *marks: bytes) -> Iterator[_LogRow]:
    """The results of calls that have one of these, at the ends of the logs of a session and of its subagents."""
    below = nlargest(_MOST_LOGS, logs_below(Path(log)), key=_changed_at) if log else ()
    for path in (Path(log), *below):
        rows = map(_row, messages.log_lines(str(path), *marks, last=_END))
        yield from (row for row in rows if row is not None)


def _changed_at(path: Path | os.DirEntry[str]) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _row(line: bytes) -> _LogRow | None:
    try:
        return msgspec.json.decode(line, type=_LogRow)
    except NOT_JSON:  # no result of a call, or cut
        return None


class _LogResult(msgspec.Struct, frozen=True):
    tool_use_id: str = ""


class _LogMessage(msgspec.Struct, frozen=True):
    content: list[_LogResult]


class _LogRow(CallResult, kw_only=True):
    """The result of a call."""

    message: _LogMessage


_MARKS: Final = (b"toolDenialKind", USER_REJECTED.encode())
_END: Final = 1 << 18
_MOST_LOGS: Final = 16
"""Of subagents, those that wrote last."""
_SCHEDULED: Final = f'"subtype":"{SCHEDULED}"'.encode()
_PROMPTED: Final = b'"promptSource":'


def scheduled(log: str, waits: bool) -> bool:
    """Whether no prompt is in the log after the latest line that says that a schedule prompts."""

    def latest() -> bool:
        found = [*messages.log_lines(log, _SCHEDULED, _PROMPTED, last=_END)]
        return bool(found) and _SCHEDULED in found[-1]

    return messages.awaited(latest, bool, usage_log.WAIT_AT_THE_END_S if waits else 0)


def hook_answered(log: str, call_id: str) -> bool:
    """Whether a hook has answered the question about a call that is over, and not its person."""

    def answered() -> bool | None:
        rows = _results(log, call_id.encode())
        of_call = (row for row in rows if any(part.tool_use_id == call_id for part in row.message.content))
        return next((row.by_hook for row in of_call), None)

    wait_s = usage_log.WAIT_AT_THE_END_S if log else 0
    return bool(messages.awaited(answered, lambda by_hook: by_hook is not None, wait_s))


def _read_settings(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    settings = mapping_at(data.get("permissions", {}), file, "permissions")
    mode = settings.get("defaultMode", "default")
    if mode in ("acceptEdits", "auto"):
        to.add("allow", f"defaultMode {mode}", WRITING, "path", "./**")
    elif mode == "bypassPermissions":
        to.unsaid.append(f"`defaultMode: bypassPermissions`: {EVERYTHING}")
    elif mode == "dontAsk":
        to.others = "deny"
    for folder in settings.get("additionalDirectories", ()):
        to.unsaid.append(f"`additionalDirectories`: `{folder}`; name it in a rule `Read(...)` or `Edit(...)`")
    decisions: tuple[Decision, ...] = ("deny", "ask", "allow")
    for decision in decisions:
        for rule in texts_at(settings.get(decision, ()), file, f"permissions.{decision}"):
            _add_rule(decision, rule, to, file)


def _add_rule(decision: Decision, rule: str, to: Permissions, file: str) -> None:
    found = re.fullmatch(r"([\w*-]+)(?:\((.*)\))?", rule.strip(), re.S)
    if found is None:
        raise UsageError(f"{file}: `{rule}` is no permission rule; one is `Tool` or `Tool(what)`")
    name, what = found[1], (found[2] or "").strip()
    tools = _tools_of(name)
    if what in ("", "*", "**", ":*"):
        to.add(decision, rule, tools)
    elif name == "Bash":
        to.add(decision, rule, tools, "command", f"{what[:-2]} *" if what.endswith(":*") else what)
    elif name in ("Write", "MultiEdit", "NotebookEdit"):  # the client asks rules of `Edit` only
        to.add(decision, rule, WRITING, "unsaid" if decision == "allow" else "path", what.lstrip("/"))
    elif name in ("Read", "Edit"):
        to.add(decision, rule, tools, "path", _path_of(what, file))
    elif name == "WebFetch" and what.startswith("domain:") and "*" not in what:
        to.add(decision, rule, tools, "url", what.removeprefix("domain:").lower())
    else:
        to.add(decision, rule, tools, "unsaid")


def _tools_of(name: str) -> Sequence[str]:
    portable = {
        "bash": ["bash"],
        "read": READING,
        "edit": WRITING,
        "webfetch": ["fetch"],
        "websearch": ["web_search"],
    }
    is_server = re.fullmatch(r"mcp__[^_]+(_[^_]+)*", name)
    return portable.get(name.lower(), [f"{name}__*", name] if is_server else [name])


def _path_of(written: str, file: str) -> str:
    """A path of a rule: `//` begins at the root, `/` at the folder of the settings, which in a home may be any."""
    if written.startswith("//"):
        return written[1:]
    if written.startswith("/"):
        return f"**{written}" if Path(file).is_absolute() else f".{written}"
    return written


_UNASKED: Final = """
    Agent AskUserQuestion BashOutput EnterPlanMode ExitPlanMode KillShell ListAgents ReportFindings TaskCreate
    TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite ToolSearch
"""


def _permissions() -> Permissions:
    """Its permissions, and what it permits whatever they are."""
    user, project = CLAUDE.settings.of_user(CLAUDE.settings.user), ".claude/settings.json"
    places: list[Path | str] = [user, project, CLAUDE.settings.project]
    found = read_permissions("claude", *((place, _read_settings) for place in places))
    found.add("allow", "reading in the folder", READING, "path", "./**")
    found.add("allow", "tools that Claude Code does not ask about", _UNASKED.split())
    return found


_OWN_INPUTS: Final = {
    **dict.fromkeys(_SHELLS, ("aliased",)),
    "AskUserQuestion": ("questions", "answers", "annotations", "response", "followUp", "afkTimeoutMs"),
    "ExitPlanMode": ("plan", "planFilePath"),
    "SendMessage": ("type", "recipient", "recipient_kind", "content"),
}
"""The person's answers and their plan, and other words for whom a message is to."""
_DECIDING: Final = ("PermissionRequest", "PreToolUse")
"""Hooks that can change what is decided."""
CLAUDE: Final = messages.HookClient(
    name="claude",
    program="claude",
    title="Claude Code",
    by="claude-code",
    tools=HOOKED["claude"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".claude/settings.local.json",
        user=".claude/settings.json",
        managed="/etc/claude-code/managed-settings.json",
        home_variable="CLAUDE_CONFIG_DIR",
        logs="projects",
        entry=entry,
        in_shell=False,
        http_entry=http_entry,
        beside=guards,
        beside_managed={"allowManagedHooksOnly": True, LOWEST_KEY: LOWEST},
        overriding=(".claude/settings.local.json", ".claude/settings.json"),
        runs_from=(".claude", ".mcp.json", "managed-settings", "/etc/claude-code"),
        off=("disableAllHooks",),
        beside_ours=(
            *((".claude/settings.json", f'"{name}"') for name in (*_DECIDING, "LD_TRACE_LOADED_OBJECTS")),
            *((f".claude/{at}/**/*.md", name) for at in ("skills", "commands", "agents") for name in _DECIDING),
        ),
    ),
    asks=True,
    opens="call",
    hears="permission",
    lowest=LOWEST,
    fails_open=(
        f"versions before {LOWEST} run calls without these hooks; "
        "managed settings keep only 2.1.163 and newer from starting",
        f"without managed settings, {messages.CHANGED}",
        "a subagent in the cloud (`isolation: remote`) has no hooks",
        "functions of your shell are evaluated by their names, and so are its aliases until a first command has run",
    ),
    ended=ended,
    hook_answered=hook_answered,
    leaves_sandbox=("dangerouslyDisableSandbox",),
    worktrees=".claude/worktrees",
    for_the_person=("AskUserQuestion", "EnterPlanMode", "ExitPlanMode"),
    own_inputs=_OWN_INPUTS,
    schedules={"CronCreate": "prompt", "ScheduleWakeup": "prompt"},
    scheduled=scheduled,
    usage=ClaudeUsageLog,
    permissions=_permissions,
)
