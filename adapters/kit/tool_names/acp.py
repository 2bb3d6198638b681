"""Calls of agents of the Agent Client Protocol, by their kinds: the protocol names no tools.

The inputs are those that opencode, Gemini CLI and the bridges to Claude Code and Codex give. An agent that gives no
input (Gemini CLI) has the command in the title, the files in `locations` and `diffs`. What overwrites a file and what
edits it look the same there, and so do searches: such a call may be either. Any agent may speak the protocol: a call
with an input that none of these gives is understood in part.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from proctor.policies.stream.tools import Tool, tool

_FILES: Final = (
    *("$.file_path", "$.filePath", "$.filepath", "$.notebook_path", "$.abs_path"),
    *("$.changes[*].path", "$.locations[*]", "$.diffs[*].path"),
)
_SEARCH: Final = ("$.pattern", "$.title")
_CONTENT: Final = ("$.newString", "$.new_string", "$.new_source", "$.diffs[*].new_text")

_PLACE: Final = ("cwd", "workdir", "dangerouslyDisableSandbox")
_NOTEBOOK: Final = ("cell_id", "cell_type", "edit_mode")
_CODEX: Final = (
    *(
        "approval_id",
        "auto_approved",
        "available_decisions",
        "call_id",
        "parsed_cmd",
        "process_id",
        "source",
        "turn_id",
    ),
    *("proposed_execpolicy_amendment", "started_at_ms"),
)
"""What Codex's bridge says beside."""
_OPENCODE: Final = ("directories", "patterns", "parentDir")
"""Where it would reach outside of its folder, in opencode's question about that; the call's own input says it too."""


def _tool(name: str, act: str, *takes: str, synonyms: tuple[str, ...] = (), **inputs: str | tuple[str, ...]) -> Tool:
    return replace(tool(name, act, *takes, *_CODEX, *_OPENCODE, synonyms=synonyms, **inputs), inferred=True)


TOOLS: Final[tuple[Tool, ...]] = (
    _tool("execute", "bash", "command", *_PLACE, synonyms=("run_shell_command",), command="$.title"),
    _tool("read", "read", "path", synonyms=("read_file",), path=_FILES),
    Tool(
        name="edit",
        acts_where={
            "write": ("$.content", "$.diffs"),
            "edit": ("$.newString", "$.new_string", "$.new_source", "$.diffs"),
        },
        inputs={"path": _FILES, "content": _CONTENT},
        takes=("path", "content", "oldString", "diff", "patchText", *_NOTEBOOK, *_CODEX, *_OPENCODE),
        inferred=True,
    ),
    _tool("delete", "delete", "path", path=_FILES),
    _tool("move", "move", "path", "to", path=_FILES),
    _tool("fetch", "fetch", "url", "prompt", synonyms=("web_fetch",), url="$.title"),
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
