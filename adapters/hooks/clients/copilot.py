"""GitHub Copilot CLI: its events, the fields of its input, its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec

from ...kit import usage_log
from ...kit.client_tools import HOOKED, certain_changes_of
from ...kit.trace_lines import parsed
from .. import messages

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PostToolUse": "completed",
    "PostToolUseFailure": "failed",
    "Stop": "stop",
    "SessionEnd": "session_end",
}
"""Under these names its input names the event, and tools as Claude Code does; under its own (`preToolUse`) it names
tools by its own names, and no event.
"""
_LOWEST: Final = "1.0.70"
"""Since it, a hook that fails denies its call."""
_TIMEOUT_S: Final = 120


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    result_type: str = ""
    text_result_for_llm: Any = None


class _Input(messages.HookMessage, frozen=True, kw_only=True):
    parent_agent_id: str = ""
    transcript_path: str = ""
    tool_input: Any = None
    tool_result: _Result = _Result()
    error: Any = None


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, COPILOT)
    kind, result, tool_input = EVENTS.get(message.event), message.tool_result, messages.as_object(message.tool_input)
    text = result.text_result_for_llm
    end = _command_end(message.tool_name, text)
    if kind == "completed" and (result.result_type not in ("", "success") or (end and end[1] != "0")):
        kind = "failed"
    elif message.parent_agent_id and kind in ("prompt", "stop", "session_end"):
        kind = None  # of a subagent, whose session is its own
    if isinstance(message.tool_input, str) and message.tool_name in ("Edit", "apply_patch"):
        tool_input["changes"] = certain_changes_of(message.tool_input)
    return messages.hook_input(
        COPILOT,
        message,
        kind=kind,
        parent_id=message.parent_agent_id,
        tool_input=tool_input,
        tool_response=_output(message.tool_name, text[: end.start()] if end else text),
        error=message.error or text,
        by_person=not (is_continued := message.prompt.startswith(_GOES_ON)),
        woken=is_continued,
    )


def _output(tool_name: str, text: Any) -> Any:
    """What a call returned: of an MCP server its structured content, which follows on its text as a line."""
    if COPILOT.tool(tool_name) is not None:
        return text
    last = text.rpartition("\n")[2] if isinstance(text, str) else ""
    return last if last.startswith("{") and isinstance(parsed(last), dict) else text


_GOES_ON: Final = "You have not yet marked the task as complete using the task_complete tool."
"""How the client's own prompt begins on autopilot."""
_STOPPED: Final = b'"hookType":"agentStop"'
"""What the log has once it is as far as the hook of a response that is over."""
_TURNS: Final = (b'{"type":"session.mode_changed"', b'{"type":"session.task_complete"', b'{"type":"user.message"')


def _continues(log: str, latest: messages.LastOutput | None) -> bool:
    """Whether the client is on autopilot, and its task is not complete."""
    continues, _ = messages.awaited(lambda: _logged_turns(log), itemgetter(1), usage_log.WAIT_AT_THE_END_S)
    return continues


def _logged_turns(log: str) -> tuple[bool, bool]:
    """Whether it goes on by the log as it is now, and whether that is as far as the end of the response."""
    autopilot = complete = is_whole = False
    for line in messages.log_lines(log, _STOPPED, *_TURNS):
        if line.startswith(_TURNS[0]):
            autopilot = b'"newMode":"autopilot"' in line
        elif line.startswith(_TURNS):
            complete, is_whole = line.startswith(_TURNS[1]), False
        else:
            is_whole = True
    return autopilot and not complete, is_whole


_ENDED: Final = re.compile(r"\n?<shellId: \S+ completed with exit code ([^>]*)>\s*$")
"""How a command's result ends, with its exit code; the client says no other word of it."""


def _command_end(tool_name: str, text: Any) -> re.Match[str] | None:
    tool = COPILOT.tool(tool_name)
    is_command = isinstance(text, str) and tool is not None and "bash" in tool.acts
    return _ENDED.search(text) if is_command else None


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The hook's output; only those of a call and a prompt are heard."""
    if given.kind == "call" and (answer.verdict != "allow" or answer.reason):
        return {"permissionDecision": answer.verdict, "permissionDecisionReason": answer.reason}
    if given.kind == "prompt" and answer.verdict == "deny":
        return {"decision": "block", "reason": answer.reason}
    return {}


def _entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "command", "bash": line, "timeoutSec": _TIMEOUT_S}


COPILOT: Final = messages.HookClient(
    name="copilot",
    program="copilot",
    title="Copilot CLI",
    by="copilot",
    tools=HOOKED["copilot"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".github/hooks/proctor.json",
        user=".copilot/hooks/proctor.json",
        managed="/etc/github-copilot/policy.d/proctor.json",
        home_variable="COPILOT_HOME",
        logs="session-state",
        entry=_entry,
        beside=lambda environment: {"version": 1},
        runs_from=(
            ".copilot",
            *(f".github/{name}" for name in ("hooks", "copilot", "extensions", "agents", "mcp.json", "lsp.json")),
            "/etc/github-copilot",
        ),
        overriding=tuple(
            f"{folder}/settings{local}.json" for folder in (".github/copilot", ".claude") for local in (".local", "")
        ),
        off=("disableAllHooks",),
        beside_ours=tuple(
            (file, '"hooks"') for file in (".github/hooks/*.json", ".github/copilot/*.json", ".claude/settings*.json")
        ),
    ),
    asks=True,
    opens="call",
    for_the_person=("ask_user", "AskUserQuestion", "exit_plan_mode"),
    continues=_continues,
    ends_by=("task_complete",),
    rests_for=("complete",),
    lowest=_LOWEST,
    fails_open=(
        f"versions before {_LOWEST} run calls whose hook fails",
        "versions before 1.0.102 give each subagent limits of its own",
        "a trusted folder's settings, also those in `.claude`, can switch off hooks that aren't managed "
        "(`disableAllHooks`)",
        "a trusted folder's own hooks can change a call after the decision",
        "a trusted folder's MCP servers start without a hook",
        "a folder's hooks don't run while it isn't trusted",
    ),
)
