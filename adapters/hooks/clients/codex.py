"""Codex: its events, the fields of its input, its answers, its permissions."""

import ast
import os
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from datetime import datetime
from itertools import product
from operator import itemgetter
from pathlib import Path
from posixpath import join
from typing import Any, Final

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.rules.machine import EvaluatedCall
from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import UsageError

from ...agents.codex.session_log import CALLS, FROM_SCRIPT, OUTPUTS, CodexOutput, CodexUsageLog
from ...kit.client_tools import HOOKED, certain_changes_of, mcp_output, shell_changes_of
from ...kit.trace_lines import text_of
from ...kit.usage_log import WAIT_S, whole_lines
from .. import messages
from ..permission_import import (
    EVERYTHING,
    READING,
    WRITING,
    Decision,
    Permissions,
    mapping_at,
    one_line,
    read_permissions,
)
from .codex_trust import TRUST

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PermissionRequest": "permission",
    "PostToolUse": "completed",
    "Stop": "stop",
    "Interrupt": "interrupt",
    "SessionEnd": "session_end",
}


class _Input(messages.HookMessage, frozen=True, kw_only=True, rename={"prompt_id": "turn_id"}):
    prompt_id: str = ""
    agent_id: str | None = None
    permission_mode: str = ""
    transcript_path: str | None = None
    tool_input: Any = None
    tool_use_id: str = ""
    tool_response: Any = None
    last_assistant_message: str | None = None


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, CODEX)
    tool_input = messages.as_object(message.tool_input)
    if message.tool_name == "apply_patch":
        patch = tool_input.get("command")
        tool_input = {**tool_input, "changes": certain_changes_of(patch) if isinstance(patch, str) else []}
    result = message.tool_response
    if EVENTS.get(message.event) in ("call", "completed") and message.tool_name == "Bash":
        folder = _folder(message)
        changes = shell_changes_of(str(tool_input.get("command")), folder)
        own = {"workdir": folder, "changes": changes}
        tool_input = {**tool_input, **{name: value for name, value in own.items() if value}}
    if message.tool_name.startswith("mcp__") and isinstance(result, dict):
        result = mcp_output(result)
    elif message.tool_name == "apply_patch" and tool_input.get("changes"):
        result = {"changes": [join(message.cwd, change["path"]) for change in tool_input["changes"]]}
    changed: dict[str, Any] = {
        "tool_input": tool_input,
        "tool_response": result,
        "transcript_path": message.transcript_path or "",
    }
    if message.agent_id:  # a subagent has turns of its own
        changed["prompt_id"] = ""
    return messages.hook_input(CODEX, message, **changed)


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The hook's output; a field that Codex does not know would make it go on as if there were no hook."""
    fields: dict[str, Any] = {}
    if answer.notes:
        fields["systemMessage"] = "\n".join(answer.notes)
    if given.kind == "call" and answer.verdict != "allow":
        fields["hookSpecificOutput"] = {
            "hookEventName": given.event,
            "permissionDecision": "deny",
            "permissionDecisionReason": answer.reason,
        }
    elif given.kind == "permission" and (answer.verdict == "deny" or (answer.verdict == "allow" and answer.reason)):
        why = {"message": answer.reason} if answer.verdict == "deny" else {}
        decision = {"behavior": answer.verdict, **why}
        fields["hookSpecificOutput"] = {"hookEventName": given.event, "decision": decision}
    elif given.kind == "prompt" and answer.verdict == "deny":
        fields |= {"decision": "block", "reason": answer.reason}
    if answer.stop and given.kind == "completed":
        fields |= {"continue": False, "stopReason": messages.STOPPED}
    return fields


class _Goal(msgspec.Struct, frozen=True):
    status: str = ""


class _OfGoal(msgspec.Struct, frozen=True):
    goal: _Goal = _Goal()


class _Item(msgspec.Struct, frozen=True):
    type: str = ""
    id: str = ""
    status: str = ""
    exit_code: int | None = None
    result: Any = None
    changes: dict[str, Any] = {}


class _Sandbox(msgspec.Struct, frozen=True):
    type: str = ""


class _Action(msgspec.Struct, frozen=True):
    working_directory: str | None = None


class _Payload(msgspec.Struct, frozen=True):
    type: str = ""
    sandbox_policy: _Sandbox = _Sandbox()
    name: str = ""
    arguments: str = ""
    call_id: str = ""
    output: Any = None
    goal: _Goal = _Goal()
    item: _Item = _Item()
    action: _Action = _Action()


class _LogLine(msgspec.Struct, frozen=True):
    timestamp: datetime | None = None
    payload: _Payload = _Payload()


def _lines(log: str, *marks: str, last: int | None = None) -> Iterator[_LogLine]:
    for line in messages.log_lines(log, *map(str.encode, marks), last=last):
        with suppress(msgspec.MsgspecError, UnicodeError):
            yield msgspec.json.decode(line, type=_LogLine)


def _payloads(log: str, *marks: str, last: int | None = None) -> Iterator[_Payload]:
    return (line.payload for line in _lines(log, *marks, last=last))


class _Written(msgspec.Struct, frozen=True):
    sandbox_permissions: str = "use_default"
    workdir: str | None = None


class _Waits(msgspec.Struct, frozen=True):
    cell_id: str = ""


_RUNS_ON: Final = re.compile(r"Script running with cell ID (\S+)")


class _Log(msgspec.Struct):
    """What a log has, as far as it was read. `written`: what the model wrote of each command that has no output yet,
    by the id of its call, or of several if it gave them one id. `sandbox` is the latest. `scripts` are those that
    have begun and not ended; one that the model was told runs on may be waited for, by its number.
    """

    offset: int = 0
    written: dict[str, list[_Written]] = {}
    sandbox: str = ""
    scripts: set[str] = set()
    numbered: dict[str, str] = {}
    waits: dict[str, str] = {}

    def add(self, line: _Payload) -> None:
        self.sandbox = line.sandbox_policy.type or self.sandbox
        if line.type in OUTPUTS:
            self.written.pop(line.call_id, None)  # ids may come again
            self._put_out(line)
        elif line.type == "local_shell_call":
            self._called(line.call_id, _Written(workdir=line.action.working_directory))
        elif line.type == "function_call":
            with suppress(msgspec.MsgspecError):
                self._called(line.call_id, msgspec.json.decode(line.arguments, type=_Written))
            if line.name == "wait":
                with suppress(msgspec.MsgspecError):
                    self.waits[line.call_id] = msgspec.json.decode(line.arguments, type=_Waits).cell_id
        elif line.type == "custom_tool_call" and line.name == "exec":
            self.scripts.add(line.call_id)
        elif line.type == "turn_aborted":
            self.scripts.clear()

    def _called(self, call_id: str, written: _Written) -> None:
        self.written.setdefault(call_id, []).append(written)

    def _put_out(self, line: _Payload) -> None:
        script = self.numbered.get(self.waits.get(line.call_id, ""), line.call_id)
        if runs_on := _RUNS_ON.match(str(text_of(line.output))):
            self.numbered[runs_on[1]] = script
        else:
            self.scripts.discard(script)


_LOGS: Final[dict[str, _Log]] = {}
"""By their paths, the logs that were read last. Each of their lines is read once, because every command asks."""
_MOST_LOGS: Final = 256
_MARKS: Final = (b'"turn_context"', b'"turn_aborted"', b'_call"', b'_call_output"')


def _log_now(log: str) -> _Log:
    """What a log has now."""
    found = _LOGS.pop(log, None) or _Log()
    with suppress(OSError, ValueError):
        if Path(log).is_file():  # a pipe would keep every hook waiting
            with open(log, "rb") as file:
                if file.seek(0, os.SEEK_END) < found.offset:  # the client wrote it anew
                    found = _Log()
                for line in whole_lines(file, found):
                    if any(mark in line for mark in _MARKS):
                        with suppress(*NOT_JSON):
                            found.add(msgspec.json.decode(line, type=_LogLine).payload)
    _LOGS[log] = found
    if len(_LOGS) > _MOST_LOGS:
        del _LOGS[next(iter(_LOGS))]
    return found


def _folder(message: _Input) -> str | None:
    """The folder that a command names, which no hook says: by the model's call in the log; "" for none. What a script
    of the model wrote is not known.

    Raises EventError for a call that the log does not have, or another one with its id, too.
    """
    log, call_id = message.transcript_path or "", message.tool_use_id
    if not log or call_id.startswith(FROM_SCRIPT):
        return None
    begins = EVENTS[message.event] == "call"
    written = messages.awaited(lambda: _log_now(log).written.get(call_id, []), bool, WAIT_S if begins else 0)
    folders = {each.workdir for each in written}
    if len(folders) > 1 or (begins and not folders):
        raise EventError(f"the log has {'two calls' if folders else 'no call'} with the id `{call_id}`")
    return next(iter(folders)) or "" if folders else None


def _exit_code(given: messages.HookInput) -> int | None:
    """That of a command, which the client logs as it starts the hook; of any other tool that ran, 0."""
    if given.tool_name != "Bash":
        return 0
    wait_s = WAIT_S if given.transcript_path else 0
    return messages.awaited(lambda: _logged_exit_code(given), lambda code: code is not None, wait_s)


def _logged_exit_code(given: messages.HookInput) -> int | None:
    """By the log as it is now, since the call: ids may come again."""
    code, call_id = None, given.tool_use_id
    for found in _payloads(given.transcript_path, call_id, last=_END):
        if found.type in CALLS and found.call_id == call_id:
            code = None
        elif found.item.type == "CommandExecution" and found.item.id == call_id:
            code = found.item.exit_code
    return code


def _logged_ends(given: messages.HookInput, runs: Mapping[str, EvaluatedCall]) -> dict[str, messages.LoggedEnd]:
    """Those with a result in the log, which comes after the hook of a call that has worked; a command that is a patch
    has none. Any other that runs on has a result, too, and its exit code is heard of.
    """
    waits = {call_id for call_id, call in runs.items() if call.name != "Bash" or "changes" in call.given}
    if not waits:
        return {}
    is_late = given.transcript_path and given.tool_use_id and not given.tool_use_id.startswith(FROM_SCRIPT)
    found, _ = messages.awaited(lambda: _logged_results(given, waits), itemgetter(1), WAIT_S if is_late else 0)
    return found


def _logged_results(given: messages.HookInput, call_ids: Set[str]) -> tuple[dict[str, messages.LoggedEnd], bool]:
    """What the log has now of these calls, and whether it is as far as the call that the hook is of."""
    found: dict[str, messages.LoggedEnd] = {}
    is_whole = False
    for line in _payloads(given.transcript_path, *filter(None, (given.tool_use_id, *call_ids))):
        if line.type in OUTPUTS and line.call_id in call_ids:
            if line.call_id not in found and not CodexOutput(line.output).running:
                found[line.call_id] = messages.LoggedEnd(line.output)
        elif line.item.id in call_ids and line.item.status == "failed":  # a script's calls have no output in the log
            found[line.item.id] = messages.LoggedEnd(line.item.result)
        elif line.item.id in call_ids and line.item.type == "FileChange" and line.item.status == "completed":
            found[line.item.id] = messages.LoggedEnd({"changes": [*line.item.changes]}, failed=False)
        elif line.type in CALLS:
            found.pop(line.call_id, None)
            is_whole = is_whole or line.call_id == given.tool_use_id
    return found, is_whole


def _may_leave_sandbox(given: messages.HookInput, call_id: str) -> bool:
    """Whether a command may: it leaves it where the model wrote so, and the question does not say that unless the
    model gave a reason, too. What a script of the model wrote is not known.
    """
    if given.tool_name != "Bash":
        return False
    log = _log_now(given.transcript_path)
    if log.sandbox == "danger-full-access":  # there is none
        return False
    written = log.written.get(call_id, [])
    return not written or any(each.sandbox_permissions != _Written().sandbox_permissions for each in written)


def _scripts(given: messages.HookInput) -> frozenset[str]:
    """Those that run, for a call that one of them makes."""
    by_script = given.tool_use_id.startswith(FROM_SCRIPT)
    return frozenset(_log_now(given.transcript_path).scripts if by_script else ())


_GOAL_SET_BY: Final = ("create_goal", "update_goal")


def _continues(log: str, latest: messages.LastOutput | None) -> bool:
    """Whether there is a goal that is not reached: the client then goes on, and no hook tells of that. What a script
    of the model does about it, the log does not have.
    """
    goal, calls, at = _Goal(), set[str](), None
    for line in _lines(log, "goal"):
        found = line.payload
        with suppress(msgspec.MsgspecError, UnicodeError, TypeError):
            if found.type == "function_call" and found.name in _GOAL_SET_BY:
                calls.add(found.call_id)
            elif found.type == "function_call_output" and found.call_id in calls:
                goal, at = msgspec.json.decode(found.output, type=_OfGoal).goal, line.timestamp
            elif found.type.startswith("thread_goal"):
                goal, at = found.goal, line.timestamp
    if latest is not None and (at is None or latest.at > at):
        with suppress(msgspec.MsgspecError, UnicodeError):
            of_goal = latest.output if isinstance(latest.output, dict) else msgspec.json.decode(str(latest.output))
            goal = msgspec.convert(of_goal, _OfGoal).goal
    return goal.status == "active"


def _read_settings(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    mode, approval = data.get("sandbox_mode", "read-only"), data.get("approval_policy", "on-request")
    to.add("allow", f"sandbox_mode {mode}", READING)
    if approval == "never":
        to.others = "deny"
    if mode == "workspace-write":
        to.add("allow", "sandbox_mode workspace-write", WRITING, "path", "./**")
        for root in mapping_at(data.get("sandbox_workspace_write", {}), file, mode).get("writable_roots", ()):
            to.add("allow", f"writable_roots {root}", WRITING, "path", f"{root}/**")
    elif mode == "danger-full-access":
        to.unsaid.append(f"`sandbox_mode: danger-full-access`: {EVERYTHING}")
    to.unsaid.append(
        "commands that Codex runs in its sandbox unasked: a policy has no sandbox, so they are asked about"
    )


def _read_rules(text: str, to: Permissions, file: str) -> None:
    """`prefix_rule(pattern=[...], decision=...)`; the language is a part of Python's."""
    try:
        tree = ast.parse(text)
        decisions: dict[str, Decision] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
        for statement in tree.body:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "prefix_rule":
                to.unsaid.append(f"{file}:{statement.lineno}: {one_line(ast.unparse(statement))[:80]}")
                continue
            arguments = {
                key.arg: ast.literal_eval(key.value) for key in call.keywords if key.arg in ("pattern", "decision")
            }
            words = [each if isinstance(each, list) else [each] for each in arguments["pattern"]]
            decision = decisions[arguments.get("decision", "allow")]
            for one in product(*words):
                to.add(decision, ast.unparse(call), ["bash"], "command", f"{' '.join(one)} *")
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise UsageError(f"{file}: not a file of rules: {error}") from None


def _permissions() -> Permissions:
    settings = CODEX.settings
    return read_permissions(
        "codex",
        (settings.of_user(".codex/config.toml"), _read_settings),
        (settings.of_user(".codex/rules/*.rules"), _read_rules),
        (".codex/rules/*.rules", _read_rules),
    )


_END: Final = 1 << 22
"""So many bytes of the log have the end of a command: of its output the client logs 64 KiB, at most six times that
where it is escaped.
"""
_TIMEOUT_S: Final = 600
"""The client lets a call run when its hook takes longer; a hook ends itself before that."""
_SHORT_S: Final = 3
"""The most it gives these."""
_SHORT: Final = ("Interrupt", "SessionEnd")


def _entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    timeout_s = _SHORT_S if event in _SHORT else _TIMEOUT_S
    return {"hooks": [{"type": "command", "command": line, "timeout": timeout_s}]}


_UNHEARD: Final = {
    "write_stdin": "text typed into a running command (`write_stdin`) uses no hook, unless `unified_exec_tty` is off",
    "web_search": "searches of the web (`web_search`) use no hook, unless they are off",
}

CODEX: Final = messages.HookClient(
    name="codex",
    program="codex",
    title="Codex",
    by="codex",
    tools=HOOKED["codex"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".codex/hooks.json",
        user=".codex/hooks.json",
        home_variable="CODEX_HOME",
        logs="sessions",
        runs_from=(".codex",),
        entry=_entry,
        own_shell=True,
        beside_ours=((".codex/hooks.json", '"PreToolUse"'), (".codex/config.toml", "PreToolUse")),
    ),
    trust=TRUST,
    opens="permission",
    hears="call",
    may_leave_sandbox=_may_leave_sandbox,
    exit_code=_exit_code,
    folder_inputs=("workdir",),
    for_the_person=("request_user_input",),
    own_inputs={"Bash": ("workdir", "changes")},
    logged_ends=_logged_ends,
    scripts=_scripts,
    continues=_continues,
    continues_by=_GOAL_SET_BY,
    ends_by=("update_goal",),
    usage=CodexUsageLog,
    permissions=_permissions,
    fails_open=(
        "the folder that a command names (`workdir`) isn't known in a script, or without a log",
        messages.NOT_STARTED,
        messages.CHANGED,
        "hooks are ignored if your shell prints text as it starts, or has no `||` (`hook status` tests that)",
        *_UNHEARD.values(),
        "untrusted hooks are skipped, and a folder's own hooks while the folder isn't trusted",
        "a trusted folder's `.codex/config.toml` can switch hooks off (`hooks` under `[features]`)",
        "a trusted folder's MCP servers start without a hook",
    ),
    unheard=_UNHEARD,
)
