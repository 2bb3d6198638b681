"""Tools as the developer of a loop gives them: names, functions, a framework's tools, schemas for a model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proctor.policies.stream.tools import Tool
from proctor.supervisor.errors import UsageError

from .frameworks import MOSTLY, own_tool, parameters_of

_USUAL = {each.name.casefold(): each for each in MOSTLY}
_SCHEMAS = ("params_json_schema", "input_schema", "inputSchema", "parameters", "args")
"""Where frameworks, model APIs and MCP have the schema of a tool's input, or (langchain) its properties."""


def tools_given(tools: Iterable[Any]) -> tuple[Tool, ...]:
    """The tools of a list, with the portable names of what they do where that can be told.

    One of which no more than the name is known goes by what each call of it has as its input.

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
