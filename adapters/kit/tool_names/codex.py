"""The tools of Codex, live and in its rollouts."""

from __future__ import annotations

from typing import Final

from proctor.policies.stream.tools import Tool, tool

_NO_PORTABLE_NAME = """
    close_agent followup_task interrupt_agent list_agents request_user_input resume_agent send_input send_message
    update_plan wait_agent
"""

APPLY_PATCH: Final = Tool(
    name="apply_patch",
    acts_where={
        "write": ("$.changes[?@.kind == 'add']",),
        "edit": ("$.changes[?@.kind == 'update']",),
        "delete": ("$.changes[?@.kind == 'delete']",),
        "move": ("$.changes[*].move_path",),
    },
    inputs={
        "path": ("$.changes[*].path", "$.changes[*].move_path"),
        "to": ("$.changes[*].move_path",),
        "content": ("$.changes[*].diff",),
    },
    takes=("changes", "escalated"),
)
"""A patch writes, edits, deletes and moves files, each as it says; where a file is moved to is a path of it too."""

TOOLS: Final[tuple[Tool, ...]] = (
    tool("shell", "bash", "command", "cwd", "escalated", "reason", "workdir", "timeout_ms"),
    tool("write_stdin", "bash", "session_id", command="$.chars"),
    APPLY_PATCH,
    tool("view_image", "read", "path"),
    tool("web_search", "web_search", "query"),
    tool("spawn_agent", "task", "model", "agent", prompt=("$.prompt", "$.message")),
    *(Tool(name=name) for name in _NO_PORTABLE_NAME.split()),
)
