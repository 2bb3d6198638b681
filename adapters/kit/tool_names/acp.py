"""Calls of agents of the Agent Client Protocol, by their kinds: the protocol names no tools.

The inputs are those that opencode, Gemini CLI and the bridges to Claude Code and Codex give. An agent that gives no
input (Gemini CLI) has the command in the title, the files in `locations` and `diffs`. What overwrites a file and what
edits it look the same there, and so do searches: such a call may be either.
"""

from __future__ import annotations

from typing import Final

from proctor.policies.stream.tools import Tool, tool

_FILES: Final = (
    *("$.file_path", "$.filePath", "$.filepath", "$.notebook_path", "$.abs_path"),
    *("$.changes[*].path", "$.locations[*]", "$.diffs[*].path"),
)
_SEARCH: Final = ("$.pattern", "$.title")
_CONTENT: Final = ("$.newString", "$.new_string", "$.new_source", "$.diffs[*].new_text")

TOOLS: Final[tuple[Tool, ...]] = (
    tool("execute", "bash", "command", "description", "cwd", synonyms=("run_shell_command",), command="$.title"),
    tool("read", "read", "path", synonyms=("read_file",), path=_FILES),
    Tool(
        name="edit",
        acts_where={
            "write": ("$.content", "$.diffs"),
            "edit": ("$.newString", "$.new_string", "$.new_source", "$.diffs"),
        },
        inputs={"path": _FILES, "content": _CONTENT},
        takes=("path", "content", "oldString"),
    ),
    tool("delete", "delete", "path", path=_FILES),
    tool("move", "move", "path", "to", path=_FILES),
    tool("fetch", "fetch", "url", "prompt", synonyms=("web_fetch",), url="$.title"),
    Tool(
        name="search",
        acts_where={"glob": _SEARCH, "grep": _SEARCH, "web_search": ("$.query", "$.title")},
        inputs={"path": ("$.dir_path", "$.locations[*]")},
        takes=("pattern", "path", "query"),
    ),
    Tool(name="think"),
    Tool(name="switch_mode"),
    Tool(name="other"),
)
