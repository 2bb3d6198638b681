"""Each client's names for its tools, by their portable names, and the files that its patches touch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from proctor.policies.events import Event, RunStarted, ToolCallRequested, ToolCallStarted
from proctor.policies.events.run_context import Capabilities, Tool, recorded, tool
from proctor.policies.shell.program_options import SYNONYMS
from proctor.policies.values.globs import matcher

from . import function_tools
from .function_tools import MOSTLY, both

if TYPE_CHECKING:
    from proctor.policies import Policy
    from proctor.policies.analysis import Findings


def plain_output(content: Any) -> Any:
    """A result as rules see it: its text if all its blocks are texts, else its content as it came."""
    blocks = content if isinstance(content, list) else []
    texts = [text for block in blocks if (text := _text_in(block)) is not None]
    return "\n".join(texts) if texts and len(texts) == len(blocks) else content


def _text_in(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def mcp_output(result: Mapping[str, Any]) -> Any:
    """What the tool of an MCP server returned, as rules see it: its structured content, or else its content."""
    structured = result.get("structuredContent")
    return plain_output(result.get("content") or "") if structured is None else structured


def mcp_tool_name(server: str, tool: str) -> str:
    """The name that policies have for a tool of an MCP server that is part of an agent."""
    return f"mcp__{server}__{tool}"


def _servers(name: str) -> Tool:
    """The tools of MCP servers, where a client names them otherwise than policies."""
    return Tool(name=name, acts=(mcp_tool_name("*", "*"),))


_NO_PORTABLE_NAME = """
    AskUserQuestion CronDelete CronList EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree PushNotification
    ReportFindings ScheduleWakeup SendMessage Skill SlashCommand TaskCreate TaskGet TaskList TaskUpdate TodoWrite
    ToolSearch WaitForMcpServers
"""
_OTHER_NAMES: Final = {
    "ListAgents": ("ListPeers",),
    "ListMcpResourcesTool": ("ListMcpResources",),
    "ReadMcpResourceDirTool": ("ReadMcpResourceDir",),
    "ReadMcpResourceTool": ("ReadMcpResource",),
    "REPL": ("Eval",),
    "SendUserMessage": ("Brief",),
    "SetGoal": ("ProposeGoal",),
    "TaskOutput": ("AgentOutputTool", "BashOutput", "BashOutputTool"),
    "TaskStop": ("KillBash", "KillShell"),
}
"""Tools by the other names that a model may call them by, or that they had before; hooks have one name of each."""
# No `isolation`, which nobody understands: with `remote` a subagent works where no hook runs.
_AGENT = ("prompt", "description", "subagent_type", "model", "effort", "run_in_background")
_SHELL = ("command", "timeout", "description", "run_in_background", "dangerouslyDisableSandbox")


def _in_part(name: str, act: str, unclear: str, *takes: str) -> Tool:
    """A tool with an input that nobody understands, such as a line of PowerShell: conditions on it deny the call."""
    return Tool(name=name, acts=(act,), takes=(unclear, *takes), unclear=(unclear,))


CLAUDE_TOOLS: Final[tuple[Tool, ...]] = (
    tool("Bash", "bash", *_SHELL),
    _in_part("PowerShell", "bash", *_SHELL),
    Tool(
        name="Monitor",
        acts_where={"bash": ("$.command",), "fetch": ("$.ws",)},
        inputs={"command": ("$.command",), "url": ("$.ws.url",)},
        takes=("command", "description", "timeout_ms", "persistent", "ws"),
    ),
    tool("Read", "read", "offset", "limit", "pages", "allow_large", path="$.file_path"),
    tool("LSP", "read", "operation", "line", "character", "query", path="$.filePath"),
    tool("SendUserFile", "read", "caption", "status", "display", path="$.files[*]"),
    tool("Write", "write", "content", path="$.file_path"),
    tool("Edit", "edit", "old_string", "replace_all", path="$.file_path", content="$.new_string"),
    tool("MultiEdit", "edit", path="$.file_path", content="$.edits[*].new_string"),
    tool("NotebookEdit", "edit", "cell_id", "cell_type", "edit_mode", path="$.notebook_path", content="$.new_source"),
    tool("Glob", "glob", "pattern", "path"),
    tool("Grep", "grep", "pattern", "path", "glob", "type", "output_mode", "multiline", "head_limit"),
    tool("WebFetch", "fetch", "url", "prompt", "offset"),
    tool("WebSearch", "web_search", "query", "allowed_domains", "blocked_domains"),
    tool("Agent", "task", *_AGENT),
    tool("Task", "task", *_AGENT),
    tool(
        "Workflow",
        "task",
        "name",
        "args",
        "resumeFromRunId",
        synonyms=("RunWorkflow",),
        prompt=("$.script", "$.scriptPath", "$.name"),
    ),
    tool("CronCreate", "task", "prompt", "cron", "recurring"),
    _in_part("RemoteTrigger", "task", "prompt", "body", "action", "trigger_id", "session_id", "cursor"),
    *(Tool(name=name, synonyms=names) for name, names in _OTHER_NAMES.items()),
    *(Tool(name=name) for name in _NO_PORTABLE_NAME.split()),
)

_CODEX_NO_PORTABLE_NAME = """
    close_agent create_goal followup_task get_goal interrupt_agent list_agents list_mcp_resource_templates
    list_mcp_resources read_mcp_resource request_user_input resume_agent send_input send_message tool_search
    update_goal update_plan wait_agent
"""
_CODEX_AGENT = ("model", "agent", "task_name", "fork_turns", "reasoning_effort")

APPLY_PATCH: Final = Tool(
    name="apply_patch",
    acts_where={
        "write": ("$.changes[?@.kind == 'add']",),
        "edit": ("$.changes[?@.kind == 'update']",),
        "delete": ("$.changes[?@.kind == 'delete']",),
        "move": ("$.changes[*].move_path", "$.changes[?@.kind == 'move']"),
    },
    inputs={
        "path": ("$.changes[*].path", "$.changes[*].move_path"),
        "to": ("$.changes[*].move_path",),
        "content": ("$.changes[*].diff",),
    },
    takes=("changes", "escalated"),
)
"""A patch writes, edits, deletes and moves files, as its headers say; the target of a move is one of its paths."""
CODEX_TOOLS: Final[tuple[Tool, ...]] = (
    tool("shell", "bash", "command", "cwd", "escalated", "reason", "workdir", "timeout_ms"),
    tool("write_stdin", "bash", "session_id", command="$.chars"),
    APPLY_PATCH,
    tool("view_image", "read", "path"),
    tool("web_search", "web_search", "query"),
    tool("spawn_agent", "task", *_CODEX_AGENT, prompt=("$.prompt", "$.message", "$.items[*].text")),
    *(Tool(name=name) for name in _CODEX_NO_PORTABLE_NAME.split()),
)
_FILES: Final = (
    *("$.file_path", "$.filePath", "$.filepath", "$.fileName", "$.notebook_path", "$.abs_path"),
    *APPLY_PATCH.inputs["path"],
    *("$.locations[*]", "$.diffs[*].path"),
)
_SEARCH: Final = ("$.pattern", "$.title")
_NEW_TEXT: Final = ("$.newString", "$.new_string", "$.new_str", "$.new_source")
_CONTENT: Final = (*_NEW_TEXT, "$.file_text", "$.diffs[*].new_text", *APPLY_PATCH.inputs["content"])
_UNCLEAR_CHANGE: Final = ("$.diffs", "$.locations", "$.title")
"""Inputs of a call that changes files which do not say whether it writes or edits them."""
_PLACE: Final = ("cwd", "workdir", "dangerouslyDisableSandbox")
_NOTEBOOK: Final = ("cell_id", "cell_type", "edit_mode")

_CODEX: Final = (
    *("approval_id", "auto_approved", "available_decisions", "call_id", "parsed_cmd", "process_id", "source"),
    *("turn_id", "proposed_execpolicy_amendment", "started_at_ms"),
)
"""Additional inputs of Codex's bridge."""
_OPENCODE: Final = ("directories", "patterns", "parentDir")
"""Inputs of opencode's question about a path outside its folder, which the call's own input names too."""


def _tool(name: str, act: str, *takes: str, synonyms: tuple[str, ...] = (), **inputs: str | tuple[str, ...]) -> Tool:
    return replace(tool(name, act, *takes, *_CODEX, *_OPENCODE, synonyms=synonyms, **inputs), inferred=True)


ACP_TOOLS: Final[tuple[Tool, ...]] = (
    _tool(
        "execute", "bash", "command", *_PLACE, synonyms=("run_shell_command",), command=("$.commands[*]", "$.title")
    ),
    _tool("read", "read", "path", synonyms=("read_file",), path=_FILES),
    Tool(
        name="edit",
        acts_where={
            "write": ("$.content", "$.file_text", *_UNCLEAR_CHANGE, *APPLY_PATCH.acts_where["write"]),
            "edit": (*_NEW_TEXT, *_UNCLEAR_CHANGE, *APPLY_PATCH.acts_where["edit"]),
            "delete": APPLY_PATCH.acts_where["delete"],
            "move": APPLY_PATCH.acts_where["move"],
        },
        inputs={"path": _FILES, "content": _CONTENT, "to": APPLY_PATCH.inputs["to"]},
        takes=("path", "content", "oldString", "old_str", "diff", *_NOTEBOOK, *_CODEX, *_OPENCODE),
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

AMP_TOOLS: Final[tuple[Tool, ...]] = (
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

_OF_ONE_CLIENT: Final = (tool("web_fetch", "fetch", url="$.prompt"),)


def _tools() -> Iterator[Tool]:
    """The usual kinds of tools, and those of clients whose name has the same meaning in all of them."""
    by_name: dict[str, list[Tool]] = {}
    for each in (*CLAUDE_TOOLS, *CODEX_TOOLS, *AMP_TOOLS, *_OF_ONE_CLIENT):
        by_name.setdefault(each.name.casefold(), []).append(each)
    usual = {each.name.casefold(): each for each in MOSTLY}
    for name, alike in by_name.items():
        first = alike[0]
        one_act = all((each.acts, each.acts_where) == (first.acts, first.acts_where) for each in alike)
        if one_act and (first.acts or first.acts_where) and name != "bash":
            for other in (*alike[1:], *([usual[name]] if name in usual else ())):
                first = both(first, other)
            usual[name] = first
    yield from usual.values()


GENERIC_TOOLS: Final = tuple(_tools())

CLIENTS: dict[str, tuple[Tool, ...]] = {
    "acp": ACP_TOOLS,
    "amp": AMP_TOOLS,
    "claude": CLAUDE_TOOLS,
    "claude-agent-acp": ACP_TOOLS,
    "codex": CODEX_TOOLS,
    "codex-acp": ACP_TOOLS,
    "gemini": ACP_TOOLS,
    "openai-agents": function_tools.OPENAI_AGENTS,
    "opencode": (*ACP_TOOLS, Tool(name="plan_enter"), Tool(name="plan_exit"), _servers("*_*")),
    "pydantic-ai": function_tools.PYDANTIC_AI,
}
"""The tools of known clients, by their names as `provider` in events."""

_GEMINI_NO_PORTABLE_NAME = """
    activate_skill ask_user complete_task enter_plan_mode exit_plan_mode get_internal_docs list_background_processes
    list_mcp_resources read_background_output read_mcp_resource save_memory tracker_add_dependency tracker_create_task
    tracker_get_task tracker_list_tasks tracker_update_task tracker_visualize update_topic write_todos
"""
_CODEX_COLLABORATION = frozenset(
    ("followup_task", "interrupt_agent", "list_agents", "send_message", "spawn_agent", "wait_agent")
)
"""The tools that newer models have in a group, whose name hooks put in front."""
_GEMINI_EDIT = ("instruction", "old_string", "allow_multiple")
_GEMINI_GREP = ("include_pattern", "include")
_OPENCODE_SEARCH = ("numResults", "livecrawl", "type", "contextMaxCharacters")
_COPILOT_NO_PORTABLE_NAME = """
    ask_user AskUserQuestion context_board exit_plan_mode extensions_manage extensions_reload
    fetch_copilot_cli_documentation list_agents list_bash read_agent read_bash read_inbox report_intent
    session_store_sql skill sql stop_bash store_memory task_complete TodoWrite update_todo vote_memory write_agent
"""


def _with_aliases(each: Tool) -> Tool:
    """A tool whose commands run in the person's shell: `aliased` is what the aliases there make of one."""
    inputs = {**each.inputs, "command": (*each.inputs.get("command", ("$.command",)), "$.aliased")}
    return replace(each, inputs=inputs, takes=(*each.takes, "aliased"))


_COPILOT_BASH = ("command", "description", "mode", "sessionId", "shellId", "initial_wait", "detach")
_COPILOT_TASK = ("prompt", "description", "agent_type", "name", "model", "reasoning_effort", "context_tier", "mode")
HOOKED: Final[dict[str, tuple[Tool, ...]]] = {
    "claude": tuple(_with_aliases(each) if each.name in ("Bash", "Monitor") else each for each in CLAUDE_TOOLS),
    "codex": (
        replace(
            APPLY_PATCH,
            name="Bash",
            acts_where={"bash": ("$.command",), **APPLY_PATCH.acts_where},
            takes=("command", "workdir", "changes"),
        ),
        replace(APPLY_PATCH, takes=("changes", "command")),
        *(
            replace(each, synonyms=(f"collaboration{each.name}",)) if each.name in _CODEX_COLLABORATION else each
            for each in CODEX_TOOLS
            if each.name not in ("shell", "apply_patch")
        ),
        *(Tool(name=name) for name in ("clockcurr_time", "clocksleep", "request_user_input_async")),
    ),
    "gemini": (
        tool("run_shell_command", "bash", "command", "description", "dir_path", "is_background", "delay_ms"),
        tool("read_file", "read", "start_line", "end_line", path="$.file_path[*]"),
        tool("read_many_files", "read", "exclude", "recursive", path=("$.include[*]", "$.paths[*]")),
        tool("write_file", "write", "content", path="$.file_path[*]"),
        tool("replace", "edit", *_GEMINI_EDIT, path="$.file_path[*]", content="$.new_string"),
        tool("list_directory", "glob", "ignore", "file_filtering_options", path="$.dir_path[*]"),
        tool("glob", "glob", "pattern", "case_sensitive", path="$.dir_path[*]"),
        tool(
            "grep_search", "grep", "pattern", *_GEMINI_GREP, synonyms=("search_file_content",), path="$.dir_path[*]"
        ),
        tool("web_fetch", "fetch", url="$.prompt"),
        tool("google_web_search", "web_search", "query"),
        tool("invoke_agent", "task", "agent_name", "prompt"),
        *(Tool(name=name) for name in _GEMINI_NO_PORTABLE_NAME.split()),
        _servers("mcp_*_*"),
    ),
    "opencode": (
        tool("bash", "bash", "command", "description", "timeout", "workdir"),
        tool("read", "read", "offset", "limit", path="$.filePath"),
        tool("write", "write", "content", path="$.filePath"),
        tool("edit", "edit", "oldString", "replaceAll", path="$.filePath", content="$.newString"),
        replace(APPLY_PATCH, takes=("changes", "patchText")),
        tool("glob", "glob", "pattern", "path"),
        tool("grep", "grep", "pattern", "path", "include"),
        tool("list", "glob", "path", "ignore"),
        tool("webfetch", "fetch", "url", "format", "timeout"),
        tool("websearch", "web_search", "query", *_OPENCODE_SEARCH),
        tool("task", "task", "prompt", "description", "subagent_type", "task_id", "command", "background"),
        tool("lsp", "read", "operation", "line", "character", "query", path="$.filePath"),
        *(Tool(name=name) for name in ("todowrite", "todoread", "skill", "question", "plan_exit", "plan_enter")),
        _servers("*_*"),
    ),
    "cursor": (
        tool("Shell", "bash", "command", "working_directory", "description", "block_until_ms"),
        tool("Read", "read", "offset", "limit", path=("$.path", "$.file_path")),
        tool("Write", "write", path=("$.path", "$.file_path"), content=("$.contents", "$.content")),
        tool("StrReplace", "edit", "old_string", "replace_all", path="$.path", content="$.new_string"),
        tool("Edit", "edit", "old_string", "replace_all", path=("$.path", "$.file_path"), content="$.new_string"),
        tool("EditNotebook", "edit", path="$.target_notebook", content="$.new_string"),
        tool("Delete", "delete", path=("$.path", "$.file_path")),
        tool("Grep", "grep", "pattern", "path", "glob"),
        tool("Glob", "glob", pattern="$.glob_pattern", path="$.target_directory"),
        tool("WebFetch", "fetch", "url"),
        tool("WebSearch", "web_search", query="$.search_term"),
        tool("Task", "task", "prompt", "description", "subagent_type"),
    ),
    "copilot": (
        tool("bash", "bash", *_COPILOT_BASH),
        _in_part("powershell", "bash", *_COPILOT_BASH),
        tool("write_bash", "bash", "sessionId", "shellId", "delay", command="$.input"),
        tool("view", "read", "path", "view_range", "forceReadLargeFiles", synonyms=("Read",)),
        tool("create", "write", "path", content="$.file_text", synonyms=("Write",)),
        replace(
            APPLY_PATCH,
            name="edit",
            acts_where={**APPLY_PATCH.acts_where, "edit": ("$.path", *APPLY_PATCH.acts_where["edit"])},
            synonyms=("apply_patch",),
            inputs={
                **APPLY_PATCH.inputs,
                "path": ("$.path", *APPLY_PATCH.inputs["path"]),
                "content": ("$.new_str", *APPLY_PATCH.inputs["content"]),
            },
            takes=("changes", "input", "old_str"),
        ),
        tool("glob", "glob", "pattern", path=("$.path", "$.paths", "$.paths[*]")),
        tool("grep", "grep", "pattern", "glob", path=("$.path", "$.paths", "$.paths[*]"), synonyms=("rg",)),
        tool("web_fetch", "fetch", "url", synonyms=("WebFetch",)),
        tool("web_search", "web_search", "query", synonyms=("WebSearch",)),
        tool("task", "task", *_COPILOT_TASK, synonyms=("Agent",)),
        _in_part("manage_schedule", "task", "prompt"),
        *(Tool(name=name) for name in _COPILOT_NO_PORTABLE_NAME.split()),
        _servers("*-*"),
    ),
}
"""The tools of clients, as their hooks name them."""
PROGRAMS: Final = tuple(Tool(name=name, synonyms=names) for name, names in SYNONYMS.items())
"""The programs of a command line that have several names, as tools."""
AGENTS: Final[dict[str, tuple[Tool, ...]]] = {**HOOKED, **CLIENTS, "shell": PROGRAMS}
"""The tools of every known agent: as its hooks name them if it has no adapter."""
_IN_BACKGROUND: Final = ("run_in_background", "is_background", "background", "detach")
"""Inputs of commands and subagents with which their call returns at once."""
RETURN_AT_ONCE: Final = ("Monitor", "spawn_agent", "collaborationspawn_agent")
"""Tools whose calls only start something that continues after them."""
_MOVED: Final = re.compile(
    "Command (running in|is running in|moved to) background|Command was manually backgrounded|"
    "Command .{0,60}was moved to the background|Async agent launched|"
    r"<command with \w+: .{1,60} is still running|<command started in background"
)
"""The results of clients for what continues in the background, also after a timeout or because a person moved it."""


_OF_MANY_CLIENTS = ("sessions", "otel")
_OF_DEVELOPERS = ("function", "openai-agents", "pydantic-ai")
"""Agents with tools of their developers, to which the usual kinds of such tools apply."""
_ALL: Final = tuple(each for tables in (CLIENTS, HOOKED) for tools in tables.values() for each in tools)
KNOWN = frozenset(name.casefold() for each in (*_ALL, *MOSTLY) for name in (each.name, *each.synonyms))
"""All names of tools in any of them, and the usual ones of developers' tools."""
_STARTERS = frozenset(
    name.casefold()
    for each in _ALL
    if not {"bash", "task"}.isdisjoint(each.every_act)
    for name in (each.name, *each.synonyms)
)


def runs_in_background(name: str, input: Mapping[str, Any], output: Any) -> bool:
    """Whether the command or subagent that a call has started continues in the background after the call."""
    if name in RETURN_AT_ONCE:
        return True
    if name.casefold() not in _STARTERS:
        return False
    if any(input.get(each) for each in _IN_BACKGROUND) or input.get("mode") in ("async", "background"):
        return True
    if isinstance(output, dict):
        if output.get("backgroundTaskId") or output.get("status") == "async_launched":
            return True
        output = output.get("llmContent")
    blocks = output if isinstance(output, list) else [{"text": output}]
    texts = (block.get("text") for block in blocks if isinstance(block, dict))
    return any(isinstance(text, str) and _MOVED.search(text) for text in texts)


def tools_of(provider: str) -> tuple[Tool, ...]:
    """The tools of a client; empty for an unknown one, whose tools have no portable names."""
    return CLIENTS.get(provider.casefold(), ())


def tools_matching(tools: Iterable[Tool], pattern: str) -> tuple[str, ...]:
    """The client's names of the tools whose calls all have a name that a pattern matches."""
    matches = matcher([pattern])
    return tuple(each.name for each in tools if any(map(matches, (each.name, *each.synonyms, *each.acts))))


def recorded_tools(events: Sequence[Event], format: str = "") -> tuple[Tool, ...]:
    """The tools of the client of a recorded session: as the record lists them, else as known of the client.

    For a `format` that many clients write (`sessions`, `otel`), and for developers' tools, the usual names apply.
    """
    for event in events:
        if isinstance(event, RunStarted) and (written := event.metadata.get("portable_tools")):
            return _with_others(recorded(written), events, event.provider)
    tables = ((event.provider, AGENTS.get(event.provider.casefold())) for event in events)
    found = next(((provider, tools) for provider, tools in tables if tools), None)
    if found is not None:
        return _with_others(found[1], events, found[0])
    if any(event.provider.casefold() in _OF_DEVELOPERS for event in events[:1]):
        return _called(events, function_tools.MOSTLY)
    return _called(events, GENERIC_TOOLS) if format in _OF_MANY_CLIENTS else ()


def _with_others(tools: tuple[Tool, ...], events: Sequence[Event], provider: str) -> tuple[Tool, ...]:
    if provider.casefold() not in _OF_DEVELOPERS:
        return tools
    names = {each.name.casefold() for each in tools}
    return (*tools, *(each for each in _called(events, function_tools.MOSTLY) if each.name.casefold() not in names))


def _called(events: Sequence[Event], tools: Iterable[Tool]) -> tuple[Tool, ...]:
    names = {event.tool_name.casefold() for event in events if isinstance(event, ToolCallRequested | ToolCallStarted)}
    return tuple(each for each in tools if each.name.casefold() in names)


def tool_capabilities(tools: tuple[Tool, ...], names: Sequence[str] | None) -> dict[str, Any]:
    """The fields of Capabilities for a client's tools: those with these names only, or, with None, maybe others."""
    if names is None:
        return {"tools": tools or None, "other_tools": True, "elsewhere": KNOWN}
    described = {each.name.casefold(): each for each in tools}
    return {"elsewhere": KNOWN, "tools": tuple(described.get(name.casefold(), Tool(name=name)) for name in names)}


_HEADER: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)|\*\*\* Move to: (.+)")
_KINDS: Final = {"Add": "add", "Update": "update", "Delete": "delete"}
_BODY: Final = re.compile(r"[-+].*|@@.*|(?!\s*\*\*\*) .*|\*\*\* End of File|", re.DOTALL)


def changes_of(patch: str) -> list[dict[str, Any]]:
    """The files that a patch touches: `path`, `kind`, `diff`, and `move_path` for a moved one; the `diff` of an added
    one is its text.
    """
    changes: list[dict[str, Any]] = []
    for line in (line.removesuffix("\r") for line in patch.removesuffix("\n").split("\n")):
        header = None if line.startswith(("+", "-")) else _HEADER.fullmatch(line.strip())
        if header is not None and header[1]:
            changes.append({"path": header[2].strip(), "kind": _KINDS[header[1]], "diff": ""})
        elif changes and header is not None:
            changes[-1]["move_path"] = header[3].strip()
        elif changes and not line.startswith("*** "):
            changes[-1]["diff"] += f"{line.removeprefix('+') if changes[-1]['kind'] == 'add' else line}\n"
    return changes


_SHELL_PATCH: Final = re.compile(
    r"""\s*(?:cd[ \t]+(?P<folder>[\w./][\w./-]*|'[^'\n]+')[ \t]*&&[ \t]*)?apply_?patch[ \t]*"""
    r"""<<[ \t]*(?P<quote>['"]?)(?P<end>\w+)(?P=quote)[ \t]*\n(?P<patch>.*\n)(?P=end)\s*""",
    re.DOTALL,
)
_UNKNOWN_CHANGES: Final = tuple({"kind": kind} for kind in (*_KINDS.values(), "move"))


def shell_changes_of(line: str, folder: str | None) -> list[dict[str, Any]]:
    """The files that a command line patches which Codex itself applies, from the folder where it is run, if that is
    known; empty for any other line. Without paths, if nobody knows which.
    """
    starts = (re.split("apply_?patch", each, maxsplit=1) for each in line.replace("\\\n", "").split("\n"))
    if "*** Begin Patch" not in line or not any("<<" in start[-1] for start in starts if len(start) > 1):
        return []
    found = _SHELL_PATCH.fullmatch(line)
    if found is None or found["end"] in found["patch"].split("\n"):
        return [*_UNKNOWN_CHANGES]
    below = posixpath.join(folder or "", (found["folder"] or "").strip("'"))
    changes = certain_changes_of(found["patch"])
    for change in changes:
        paths: dict[str, str] = {
            key: posixpath.join(below, change[key]) for key in ("path", "move_path") if key in change
        }
        if folder is None and not all(map(posixpath.isabs, paths.values())):
            return [*_UNKNOWN_CHANGES]
        change |= paths
    return changes or [*_UNKNOWN_CHANGES]


def certain_changes_of(patch: str) -> list[dict[str, Any]]:
    """The same for a patch that every client reads alike; empty for any other."""
    first, *lines = [line.removesuffix("\r") for line in patch.strip().split("\n")]
    if first != "*** Begin Patch" or not lines or lines.pop() != "*** End Patch":
        return []
    kind = ""
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            if not kind or not _BODY.fullmatch(line):
                return []
            continue
        if not _plain(header[2] or header[3]) or (header[3] and kind != "Update"):
            return []
        kind = header[1] or "moved"
    return changes_of(patch)


def _plain(path: str) -> bool:
    """Whether all clients read a path alike: some end it at a colon, some strip more than blanks."""
    return path.isprintable() and ":" not in path and path == path.strip()


def misspelt_tools(policy: Policy) -> Findings:
    """Names that are nearly those of a tool of a known agent, and no agent's."""
    from proctor.policies.analysis.all_checks import misspelt_names

    return misspelt_names(policy, Capabilities(tools=_ALL, other_tools=True, elsewhere=KNOWN))
