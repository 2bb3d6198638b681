"""The client's items, with their tool names and inputs in policies.

item of the client      tool name               input
commandExecution        shell                   command, cwd, escalated, reason
fileChange              apply_patch             changes: [{path, kind, diff, move_path}], escalated
mcpToolCall             mcp__<server>__<tool>   the tool's own arguments
webSearch               web_search              query
imageView               view_image              path
collabAgentToolCall     spawn_agent, ...        prompt, model
subAgentActivity        spawn_agent, ...        agent, model
anything else a tool    its item type           the item's own fields
"""

import os
import shlex
from typing import Any, Final

from proctor.policies.events import ToolCallCompleted, ToolCallFailed

from ...kit.client_tools import RETURN_AT_ONCE, mcp_output, mcp_tool_name
from .session_log import CodexOutput

CodexItem = dict[str, Any]
SHELL: Final = "shell"
APPLY_PATCH: Final = "apply_patch"
WEB_SEARCH: Final = "web_search"
VIEW_IMAGE: Final = "view_image"
SPAWN_AGENT: Final = "spawn_agent"

NO_CALLS: Final = frozenset(
    {
        "userMessage",
        "agentMessage",
        "hookPrompt",
        "functionCallOutput",
        "plan",
        "reasoning",
        "enteredReviewMode",
        "exitedReviewMode",
        "contextCompaction",
    }
)
"""Items that are no tool calls."""
ASKED: Final = frozenset({"commandExecution", "fileChange", "mcpToolCall"})
"""Items the client asks about before they run."""
RESOURCE_SERVER: Final = "codex"
"""The server name the client gives its own MCP resource tools, which it never asks about."""
_BASH: Final = ("/bin/bash", "/usr/bin/bash")
"""Only bash's commands are shown bare; a command for another shell is shown with that shell."""
_AGENT_TOOLS: Final = {
    "spawnAgent": SPAWN_AGENT,
    "resumeAgent": "resume_agent",
    "sendInput": "send_input",
    "sendMessage": "send_message",
    "followupTask": "followup_task",
    "wait": "wait_agent",
    "interruptAgent": "interrupt_agent",
    "closeAgent": "close_agent",
    "listAgents": "list_agents",
}
_AGENT_ACTIVITIES: Final = {"started": SPAWN_AGENT, "interacted": "send_message", "interrupted": "interrupt_agent"}
"""Calls that are reported only when they end; no other activity is a call."""
_NAMES: Final = {
    "commandExecution": SHELL,
    "fileChange": APPLY_PATCH,
    "webSearch": WEB_SEARCH,
    "imageView": VIEW_IMAGE,
}
_BOOKKEEPING: Final = frozenset({"id", "type", "status", "durationMs", "result", "results", "error", "success"})


def is_call(item: CodexItem) -> bool:
    if item.get("type") == "subAgentActivity":
        return item.get("kind") in _AGENT_ACTIVITIES
    return item.get("type") not in NO_CALLS


def agent_threads(item: CodexItem) -> list[str]:
    """The threads of the subagents that a call is about."""
    if item.get("type") == "subAgentActivity":
        return [str(item.get("agentThreadId"))]
    return [str(thread) for thread in item.get("receiverThreadIds") or ()]


def starts_agents(item: CodexItem) -> bool:
    """Whether a call starts the subagents that it is about."""
    return tool_name(item) == SPAWN_AGENT


def tool_name(item: CodexItem) -> str:
    kind = str(item.get("type"))
    if kind == "collabAgentToolCall":
        tool = str(item.get("tool"))
        return _AGENT_TOOLS.get(tool, tool)
    if kind == "subAgentActivity":
        return _AGENT_ACTIVITIES[str(item.get("kind"))]
    if kind == "mcpToolCall":
        return mcp_tool_name(str(item.get("server")), str(item.get("tool")))
    if kind == "dynamicToolCall":
        return str(item.get("tool"))
    return _NAMES.get(kind, kind)


def tool_input(item: CodexItem) -> dict[str, Any]:
    match item.get("type"):
        case "commandExecution":
            return {"command": bare_command(str(item.get("command"))), "cwd": item.get("cwd")}
        case "fileChange":
            return {"changes": [_change(change) for change in item.get("changes") or ()]}
        case "mcpToolCall" | "dynamicToolCall":
            arguments = item.get("arguments")
            return arguments if isinstance(arguments, dict) else {"arguments": arguments}
        case "webSearch":
            return {"query": item.get("query")}
        case "imageView":
            return {"path": item.get("path")}
        case "collabAgentToolCall":
            return _given(prompt=item.get("prompt"), model=item.get("model"))
        case "subAgentActivity":
            return _given(agent=item.get("agentPath"), model=item.get("model"))
    return {name: value for name, value in item.items() if name not in _BOOKKEEPING and value is not None}


def bare_command(command: str) -> str:
    """The script within `/bin/bash -lc '...'`, if that is the whole command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == 3 and words[0] in _BASH and words[1] in ("-c", "-lc"):
        return words[2]
    return command


def leaves(item: CodexItem, folder: str) -> bool:
    """Whether a file change touches anything outside a folder."""
    root = os.path.realpath(folder)
    changes = item.get("changes") or ()
    targets = [path for change in changes for path in (change.get("path"), _moved_to(change)) if path]
    resolved = (os.path.realpath(os.path.join(root, path)) for path in targets)
    return any(path != root and not path.startswith(root + os.sep) for path in resolved)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _moved_to(change: dict[str, Any]) -> str | None:
    kind = change.get("kind")
    return kind.get("move_path") if isinstance(kind, dict) else None


def _change(change: dict[str, Any]) -> dict[str, Any]:
    kind = change.get("kind")
    plain = {
        "path": change.get("path"),
        "kind": kind.get("type") if isinstance(kind, dict) else kind,
        "diff": change.get("diff"),
    }
    moved = _moved_to(change)
    return {**plain, "move_path": moved} if moved else plain


def outcome(item: CodexItem) -> ToolCallCompleted | ToolCallFailed:
    """A call's outcome, from its completed item."""
    call_id, name = str(item.get("id")), tool_name(item)
    if item.get("status") in ("failed", "declined", "interrupted") or item.get("success") is False:
        return ToolCallFailed(tool_call_id=call_id, tool_name=name, error=_error(item))
    return ToolCallCompleted(
        tool_call_id=call_id, tool_name=name, tool_output=_output(item), unfinished=name in RETURN_AT_ONCE
    )


def exited(item: CodexItem, text: str) -> CodexItem | None:
    """A command's item as the client would complete it, from its output for the model; None if it has not ended."""
    output = CodexOutput(text)
    if output.exit_code is None or item.get("type") != "commandExecution":
        return None
    status = "failed" if output.failed else "completed"
    return {**item, "status": status, "exitCode": output.exit_code, "aggregatedOutput": output.value}


def _error(item: CodexItem) -> Any:
    if item.get("status") == "declined":
        return {"message": "the client did not run it"}
    if item.get("type") == "commandExecution":
        return {"exit_code": item.get("exitCode"), "output": _output(item)}
    return _output(item)


def _output(item: CodexItem) -> Any:
    match item.get("type"):
        case "commandExecution":
            return item.get("aggregatedOutput") or ""
        case "fileChange":
            return {"changes": [change.get("path") for change in item.get("changes") or ()]}
        case "mcpToolCall":
            return item.get("error") or mcp_output(item.get("result") or {})
    return {name: item[name] for name in ("result", "results", "action") if item.get(name) is not None}
