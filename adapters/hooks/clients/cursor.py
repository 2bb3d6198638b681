"""Cursor: its events, the fields of its input, its answers, its permissions, as its documentation has them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.supervisor.errors import UsageError

from ...kit.client_tools import HOOKED
from .. import messages
from ..permission_import import READING, WRITING, Decision, Permissions, mapping_at, read_permissions, texts_at

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


def _read_settings(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    permissions = mapping_at(data.get("permissions", {}), file, "permissions")
    lists: tuple[tuple[Decision, str, Mapping[str, Any], str], ...] = (
        ("deny", "{}", permissions, "deny"),
        ("allow", "{}", permissions, "allow"),
        ("allow", "Shell({})", data, "terminalAllowlist"),
        ("allow", "Mcp({})", data, "mcpAllowlist"),
    )
    for decision, form, settings, name in lists:
        for rule in texts_at(settings.get(name, ()), file, name):
            _add_rule(decision, form.format(rule), to, file)


def _add_rule(decision: Decision, rule: str, to: Permissions, file: str) -> None:
    found = re.fullmatch(r"(\w+)\((.*)\)", rule, re.S)
    if found is None:
        raise UsageError(f"{file}: `{rule}` is no permission; one is `Shell(...)`, `Read(...)`, `Write(...)`")
    kind, what = found[1].lower(), found[2].strip()
    if kind == "shell":
        command = f"{what.replace(':', ' ', 1).removesuffix(' *')} *"
        to.add(decision, rule, ["bash"], "any" if what in ("*", "**") else "command", command)
    elif kind in ("read", "write"):
        tools = READING if kind == "read" else WRITING
        to.add(decision, rule, tools, "any" if what in ("*", "**", "**/*") else "path", what)
    elif kind == "webfetch" and "*" not in what:
        to.add(decision, rule, ["fetch"], "url", what.lower())
    elif kind == "mcp":
        server, _, tool = re.sub(r"\s", "", what).replace(",", ":").partition(":")
        to.add(decision, rule, [f"mcp__{server}__{tool or '*'}", f"{server}__{tool or '*'}"])
    else:
        to.add(decision, rule, ["*"], "unsaid")


def _permissions() -> Permissions:
    home = Path.home() / ".cursor"
    places = (home / "cli-config.json", home / "permissions.json", ".cursor/cli.json", ".cursor/permissions.json")
    return read_permissions("cursor", *((place, _read_settings) for place in places))


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
        runs_from=(".cursor", "/etc/cursor"),
        beside_ours=((".cursor/hooks.json", '"command"'),),
    ),
    opens="permission",
    folder_inputs=("working_directory",),
    hears="call",
    permissions=_permissions,
    fails_open=(
        "a folder's own hooks answer before those of `--user` and can allow what these deny",
        "hooks in an untrusted folder don't run",
        *_UNHEARD.values(),
        "versions without `failClosed` run calls whose hook fails",
    ),
    unheard=_UNHEARD,
)
