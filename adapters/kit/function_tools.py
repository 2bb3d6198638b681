"""The tools of framework agents: those of the framework, and the developer's own, by name and parameters.

A developer's tool has a portable name if its name is a usual one: `write_file(path, content)` is `write`. If it has
unknown parameters (`directory`), or lacks one that the act needs (`write_file(text)`), rules that deny `write` deny
it, but only its own name allows it.
"""

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from proctor.policies.events.run_context import HARMLESS, PORTABLE, Tool, needed, tool
from proctor.supervisor.errors import UsageError

CALLED: Final[dict[str, str]] = {
    "bash": "bash bash_tool shell shell_tool run_shell_command execute_command run_command run_bash terminal",
    "read": "read read_file read_text_file",
    "write": "write write_file create_file",
    "edit": "edit edit_file replace",
    "delete": "delete delete_file file_delete remove_file",
    "move": "move move_file rename_file",
    "glob": "glob glob_search",
    "grep": "grep grep_search",
    "fetch": "fetch web_fetch fetch_url requests_get",
    "web_search": "web_search google_web_search duckduckgo_search tavily_search exa_search",
    "task": "task",
}
"""Usual names of functions for each portable tool."""
_ACTS: Final = {name: act for act, names in CALLED.items() for name in names.split()}

PLACES: Final[dict[str, str]] = {
    "command": "command commands cmd command_line",
    "path": "path file_path filePath filepath file filename file_name absolute_path source_path source paths",
    "to": "to destination_path destination new_path",
    "content": "content contents text file_text new_str new_string newString new new_text newText",
    "pattern": "pattern query regex",
    "url": "url uri urls",
    "query": "query queries",
    "prompt": "prompt",
}
"""Usual names of parameters, by their portable input."""
_MANY: Final = ("paths", "urls", "queries")
"""Lists of such inputs. A list of commands is not split, as it may be the words of one."""
Function: TypeAlias = tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], str]
"""A tool's name, the JSON schema of its input, and the path of the object that is of this schema (`$`)."""

OPENAI_AGENTS: Final[tuple[Tool, ...]] = (
    Tool(
        name="web_search",
        acts_where={"web_search": ("$.action.query", "$.action.queries"), "fetch": ("$.action.url",)},
        inputs={"query": ("$.action.query", "$.action.queries[*]"), "url": ("$.action.url",)},
        takes=("action",),
    ),
    tool("local_shell", "bash", command="$.action.command"),
    Tool(
        name="apply_patch",
        acts_where={
            "write": ("$[?@.type == 'create_file']",),
            "edit": ("$[?@.type == 'update_file']",),
            "delete": ("$[?@.type == 'delete_file']",),
        },
        inputs={"path": ("$.operation.path", "$.operation.move_to"), "content": ("$.operation.diff",)},
        takes=("operation",),
    ),
    tool("shell", "bash", command="$.action.commands[*]"),
    *(Tool(name=name) for name in ("file_search", "code_interpreter", "image_generation", "computer", "mcp")),
)
"""The SDK's own tools."""

PYDANTIC_AI: Final[tuple[Tool, ...]] = (
    Tool(
        name="web_search",
        acts_where={"web_search": ("$.query", "$.queries"), "fetch": ("$.url",)},
        inputs={"query": ("$.query", "$.queries[*]"), "url": ("$.url",)},
        takes=("query", "queries", "url", "type"),
    ),
    tool("web_fetch", "fetch", url=("$.url", "$.urls[*]")),
    *(Tool(name=name) for name in ("code_execution", "file_search", "image_generation", "memory", "x_search")),
)
"""pydantic-ai's names for tools that the model provider runs."""


def _usual(name: str, act: str) -> Tool:
    """A tool of this name, each of whose calls is read by its own input."""
    return Tool(
        name=name,
        acts=(act,),
        inputs={each: tuple(_places(PLACES[each].split())) for each in PORTABLE[act]},
        inferred=True,
    )


def _places(names: Iterable[str], below: str = "$") -> Iterator[str]:
    return (f"{below}.{place}{'[*]' if place in _MANY else ''}" for place in names)


MOSTLY: Final[tuple[Tool, ...]] = tuple(_usual(name, act) for name, act in _ACTS.items())
"""The usual kinds of tools with these names, if nobody knows beforehand what they take: decided by the input of each
call."""


def own_tool(name: str, parameters: Iterable[str], below: str = "$") -> Tool:
    """A developer's tool, with a portable name if its name and the names of its parameters show one; `below` is the
    path of the object that has them.
    """
    takes = tuple(parameters)
    act = _ACTS.get(name.casefold())
    if act is None:
        return Tool(name=name, takes=takes)
    places = {each: tuple(place for place in PLACES[each].split() if place in takes) for each in PORTABLE[act]}
    inputs = {each: tuple(_places(found, below)) for each, found in places.items() if found}
    understood = {place for found in places.values() for place in found} | HARMLESS[act]
    lacking = [each for each in needed(act) if not places[each]]
    unclear = (*(each for each in takes if each not in understood), *lacking)
    return Tool(name=name, acts=(act,), inputs=inputs, takes=takes, unclear=unclear)


def parameters_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The property names of an object's schema; `additionalProperties` stands for others that it allows."""
    more = ("additionalProperties",) if schema.get("additionalProperties") else ()
    return (*(schema.get("properties") or ()), *more)


def own_tools(functions: Iterable[Function], brought: Iterable[Tool], present: Collection[str]) -> tuple[Tool, ...]:
    """The tools of an agent: the developer's functions, and those the framework brought.

    Functions with the same name, as in several agents of a run, become one tool with the inputs of all. A framework's
    tool with the name of a function counts only if the agent has it (`present`).
    """
    found: dict[str, Tool] = {}
    for name, schema, *below in functions:
        one = own_tool(name, parameters_of(schema), *below)
        found[name] = both(found[name], one) if name in found else one
    for each in brought:
        if each.name not in found:
            found[each.name] = each
        elif each.name in present:
            found[each.name] = both(found[each.name], each)
    return tuple(found.values())


def both(one: Tool, other: Tool) -> Tool:
    """A tool that may be either one, with the inputs of both."""
    keys = dict.fromkeys((*one.inputs, *other.inputs))
    return Tool(
        name=one.name,
        acts=_union(one.acts, other.acts),
        acts_where={**one.acts_where, **other.acts_where},
        synonyms=_union(one.synonyms, other.synonyms),
        inputs={key: _union(one.inputs.get(key, ()), other.inputs.get(key, ())) for key in keys},
        takes=_union(one.takes, other.takes),
        unclear=_union(one.unclear, other.unclear),
        inferred=one.inferred or other.inferred,
    )


def _union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


_USUAL = {each.name.casefold(): each for each in MOSTLY}
_SCHEMAS = ("params_json_schema", "input_schema", "inputSchema", "parameters", "args")
"""The attributes in which frameworks, model APIs and MCP keep a tool's input schema, or (langchain) its properties.
"""


def tools_given(tools: Iterable[Any]) -> tuple[Tool, ...]:
    """The tools of a list, with portable names if their names and parameters show one.

    A tool without a schema is read by the input of each call.

    Raises: UsageError: one of them is not a tool, or the list is a text.
    """
    if isinstance(tools, str):
        raise UsageError(f"`tools` is a list, not the text `{tools[:80]}`")
    return tuple(_given(each) for each in tools)


def _given(tool: Any) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, str):
        return _named(tool)
    if isinstance(tool, Mapping):
        written = tool.get("function", tool)
        return _of(written.get("name"), [written.get(key) for key in _SCHEMAS], tool)
    if isinstance(name := getattr(tool, "name", None), str):
        return _of(name, [getattr(tool, key, None) for key in _SCHEMAS], tool)
    if callable(tool) and isinstance(called := getattr(tool, "__name__", None), str):
        parameters = inspect.signature(tool).parameters.values()
        return own_tool(called, [each.name for each in parameters])
    raise UsageError(f"`{str(tool)[:80]}` is not a tool: it has no name")


def _of(name: Any, schemas: Iterable[Any], tool: Any) -> Tool:
    if not isinstance(name, str) or not name:
        raise UsageError(f"`{str(tool)[:80]}` is not a tool: it has no name")
    schema = next((each for each in schemas if isinstance(each, Mapping)), None)
    if schema is None:
        return _named(name)
    written = "properties" in schema or schema.get("type") == "object"
    return own_tool(name, parameters_of(schema) if written else schema)


def _named(name: str) -> Tool:
    usual = _USUAL.get(name.casefold())
    return Tool(name=name) if usual is None else msgspec.structs.replace(usual, name=name)
