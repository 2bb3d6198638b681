"""Cursor: its events, the fields of its input, its answers, as its documentation has them."""

from collections.abc import Mapping
from typing import Any, Final

from ...kit.client_tools import HOOKED
from .. import messages

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "beforeSubmitPrompt": "prompt",
    "preToolUse": "call",
    "beforeShellExecution": "permission",
    "beforeMCPExecution": "permission",
    "postToolUse": "completed",
    "postToolUseFailure": "failed",
    "stop": "stop",
    "sessionEnd": "session_end",
}
"""`preToolUse` comes before every call; one more, of commands and MCP tools, may spare a question."""
_TIMEOUT_S: Final = 600
_NAMES: Final = {
    "session_id": "conversation_id",
    "prompt_id": "generation_id",
    "tool_response": "tool_output",
    "error": "error_message",
}
"""The client's names of fields that `HookInput` names otherwise."""


class _Input(messages.HookMessage, frozen=True, kw_only=True, rename=_NAMES):
    session_id: str
    prompt_id: str = ""
    workspace_roots: tuple[str, ...] = ()
    command: str | None = None
    tool_input: Any = None
    tool_use_id: str = ""
    tool_response: Any = None
    error: str | None = None


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, CURSOR)
    name, tool_input = message.tool_name, message.tool_input
    if message.event == "beforeShellExecution":
        name, tool_input = "Shell", {"command": message.command or ""}
    elif isinstance(tool_input, str):
        tool_input = messages.decoded(tool_input.encode(), dict, CURSOR)
    cwd = message.workspace_roots[0] if message.workspace_roots else message.cwd
    return messages.hook_input(CURSOR, message, tool_name=name, tool_input=messages.as_object(tool_input), cwd=cwd)


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The hook's output. Before a call something is always said: an output that is none blocks."""
    notes = "\n".join(answer.notes)
    if given.kind == "prompt":
        return {"continue": False, "user_message": answer.reason} if answer.verdict == "deny" else {"continue": True}
    if given.kind == "call":
        if answer.verdict == "allow":
            return {"permission": "allow"}
        return {"permission": "deny", "agent_message": answer.reason, "user_message": notes or answer.reason}
    if given.kind == "permission":
        opened = answer.verdict == "allow" and answer.reason
        return {"permission": "allow" if opened else "deny" if answer.verdict == "deny" else "ask"}
    return {}


def _entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    return {"command": line, "timeout": _TIMEOUT_S, "failClosed": True}


_UNHEARD: Final = {
    "mcp__*": "rules on `mcp__server__tool` don't apply: Cursor doesn't name the server, so deny `MCP:tool`"
}

CURSOR: Final = messages.HookClient(
    name="cursor",
    program="cursor-agent",
    title="Cursor",
    by="cursor",
    tools=HOOKED["cursor"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".cursor/hooks.json",
        user=".cursor/hooks.json",
        managed="/etc/cursor/hooks.json",
        entry=_entry,
        beside=lambda environment: {"version": 1},
        beside_ours=((".cursor/hooks.json", '"command"'),),
    ),
    opens="permission",
    hears="call",
    fails_open=(
        "a folder's own hooks answer before those of `--user` and can allow what these deny",
        "hooks in an untrusted folder don't run",
        *_UNHEARD.values(),
        "versions without `failClosed` run calls whose hook fails",
    ),
    unheard=_UNHEARD,
)
