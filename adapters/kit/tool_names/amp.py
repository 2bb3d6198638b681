"""The tools of Amp."""

from __future__ import annotations

from typing import Final

from proctor.policies.stream.tools import Tool, tool

TOOLS: Final[tuple[Tool, ...]] = (
    tool("Bash", "bash", "command", "cwd"),
    tool("Read", "read", "path", "read_range"),
    tool("create_file", "write", "path", "content"),
    tool("edit_file", "edit", "path", "old_str", "replace_all", content="$.new_str"),
    tool("undo_edit", "edit", "path"),
    tool("glob", "glob", "path", "limit", "offset", pattern="$.filePattern"),
    tool("Grep", "grep", "pattern", "path", "glob", "caseSensitive"),
    tool("read_web_page", "fetch", "url", "prompt"),
    tool("web_search", "web_search", "query", "max_results"),
    tool("Task", "task", "prompt", "description"),
    tool("oracle", "task", "context", "files", prompt="$.task"),
    tool("finder", "task", prompt="$.query"),
)
