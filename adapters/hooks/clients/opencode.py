"""opencode: a plugin that starts a hook for each event, the fields of what it says, its permissions."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.policies.events import TokenUsageUpdated
from proctor.supervisor.errors import UsageError

from ...kit.client_tools import HOOKED, certain_changes_of, mcp_output
from ...kit.usage_log import LoggedTokens
from .. import messages
from ..permission_import import STRICT, WRITING, Permissions, acts_of, mapping_at, read_permissions

EVENTS: Final[Mapping[str, messages.Kind]] = {
    "chat.message": "prompt",
    "tool.execute.before": "call",
    "tool.execute.after": "completed",
    "session.idle": "stop",
    "session.deleted": "session_end",
}

_NAMES: Final = {
    "session_id": "session",
    "cwd": "directory",
    "tool_name": "tool",
    "tool_use_id": "call",
    "tool_input": "args",
    "tool_response": "result",
    "agent_id": "agent",
}
"""The plugin's names of fields that `HookInput` names otherwise."""


class _Used(msgspec.Struct, frozen=True):
    """What one response used since it was last said."""

    model: str
    below: bool
    tokens: LoggedTokens


class _Input(msgspec.Struct, frozen=True, kw_only=True, rename=_NAMES):
    """The plugin's message."""

    event: str
    session_id: str
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = {}
    tool_response: Any = None
    agent_id: str | None = None
    used: tuple[_Used, ...] = ()


def read(data: bytes) -> messages.HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message = messages.decoded(data, _Input, OPENCODE)
    tool_input = message.tool_input
    if message.tool_name == "apply_patch" and isinstance(patch := tool_input.get("patchText"), str):
        tool_input = {**tool_input, "changes": certain_changes_of(patch)}
    changed: dict[str, Any] = {"tool_input": tool_input, "used": tuple(map(_usage, message.used))}
    if isinstance(result := message.tool_response, dict):
        if result.get("exit", 0) != 0:  # null: interrupted
            changed |= {"kind": "failed", "error": result}
        elif "content" in result:
            changed["tool_response"] = mcp_output(result)
        else:
            changed["tool_response"] = result.get("output", result)
    return messages.hook_input(OPENCODE, message, **changed)


def _usage(used: _Used) -> TokenUsageUpdated:
    by_subagents = used.tokens.all if used.below else 0
    return TokenUsageUpdated(model=used.model, **used.tokens.figures(), subagent_tokens=by_subagents)


def output(answer: messages.HookAnswer, given: messages.HookInput) -> dict[str, Any]:
    """The answer to the plugin: the reason to refuse, or nothing."""
    return {"deny": answer.reason or "denied"} if answer.verdict != "allow" else {}


_SWITCHES: Final = ('"plugin"', '"permission"')
"""Settings of a folder that can change what is decided, or who decides."""


def plugin(line: str) -> str:
    """The plugin, which starts this line for each event, and refuses whatever is not answered."""
    text = Path(__file__).with_name("opencode_plugin.js").read_text(encoding="utf-8")
    return text.replace("PROCTOR_HOOK", json.dumps(shlex.split(line)))


def _read_settings(data: Mapping[str, Any], to: Permissions, file: str) -> None:
    to.ordered = True
    given = data.get("permission", {})
    given = mapping_at({"*": given} if isinstance(given, str) else given, file, "permission")
    names: Mapping[str, Sequence[str]] = {**acts_of(HOOKED["opencode"]), "edit": WRITING}
    for name, enabled in mapping_at(data.get("tools", {}), file, "tools").items():
        if enabled is False:
            to.add("deny", f"tools.{name}: false", names.get(name, [name]))
    for name, value in given.items():
        for pattern, decision in (value if isinstance(value, dict) else {"*": value}).items():
            if decision not in STRICT:
                raise UsageError(f"{file}: `permission.{name}` is allow, ask or deny, not `{decision}`")
            tools, written = names.get(name, [name]), f"{name}: {pattern} {decision}"
            about = {"bash": "command", "edit": "path", "read": "path"}.get(name, "unsaid")
            pattern = f"{pattern}*" if about == "path" and pattern.endswith("/*") else pattern
            to.add(decision, written, tools, "any" if pattern == "*" else about, pattern)
    to.unsaid.append("opencode allows what no setting names; the policy asks about it")


def _permissions() -> Permissions:
    user = Path.home() / ".config/opencode/opencode.json*"
    return read_permissions("opencode", (user, _read_settings), ("opencode.json*", _read_settings))


OPENCODE: Final = messages.HookClient(
    name="opencode",
    program="opencode",
    title="opencode",
    by="opencode",
    tools=HOOKED["opencode"],
    events=EVENTS,
    read=read,
    output=output,
    settings=messages.ClientSettings(
        project=".opencode/plugin/proctor.js",
        user=".config/opencode/plugin/proctor.js",
        entry=lambda event, line, environment: {"command": line},
        in_shell=False,
        text=plugin,
        runs_from=(".opencode", ".config/opencode", "opencode.json", "tui.json"),
        beside_ours=(
            (".opencode/plugin*/*.[jt]s", ""),
            *((f"{folder}opencode.json*", word) for folder in ("", ".opencode/") for word in _SWITCHES),
            *((f"{folder}tui.json*", _SWITCHES[0]) for folder in ("", ".opencode/")),
        ),
    ),
    hears="call",
    folder_inputs=("workdir",),
    for_the_person=("question", "plan_enter", "plan_exit"),
    tells_usage=True,
    permissions=_permissions,
    fails_open=(
        "shell commands of a slash command, and a folder's formatters, language servers and MCP servers use no hook",
        "another plugin, also a folder's, can change a call after the decision",
        "a folder's `permission` decides on calls that proctor leaves to opencode",
        "a plugin that can't be loaded is skipped",
    ),
)
