"""The tools of Claude Code."""

from __future__ import annotations

from typing import Final

from proctor.policies.stream.tools import Tool, tool

_NO_PORTABLE_NAME = """
    AskUserQuestion BashOutput CronDelete CronList EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree KillShell
    ListAgents ReportFindings ScheduleWakeup SendMessage Skill SlashCommand TaskCreate TaskGet TaskList TaskOutput
    TaskStop TaskUpdate TodoWrite ToolSearch
"""

_AGENT = ("prompt", "description", "subagent_type", "model", "run_in_background")

TOOLS: Final[tuple[Tool, ...]] = (
    tool("Bash", "bash", "command", "timeout", "description", "run_in_background", "dangerouslyDisableSandbox"),
    tool("Monitor", "bash", "command", "description", "timeout_ms", "persistent"),
    tool("Read", "read", "offset", "limit", "pages", path="$.file_path"),
    tool("Write", "write", "content", path="$.file_path"),
    tool("Edit", "edit", "old_string", "replace_all", path="$.file_path", content="$.new_string"),
    tool("MultiEdit", "edit", path="$.file_path", content="$.edits[*].new_string"),
    tool("NotebookEdit", "edit", "cell_id", "cell_type", "edit_mode", path="$.notebook_path", content="$.new_source"),
    tool("Glob", "glob", "pattern", "path"),
    tool("Grep", "grep", "pattern", "path", "glob", "type", "output_mode", "multiline", "head_limit"),
    tool("WebFetch", "fetch", "url", "prompt"),
    tool("WebSearch", "web_search", "query", "allowed_domains", "blocked_domains"),
    tool("Agent", "task", *_AGENT),
    tool("Task", "task", *_AGENT),
    tool("Workflow", "task", "name", "args", prompt="$.script"),
    tool("CronCreate", "task", "prompt", "cron"),
    *(Tool(name=name) for name in _NO_PORTABLE_NAME.split()),
)
