"""A policy as launch options of the client: tools it can be started without.

The client can be started without its shell, its web search, its image viewer, its sub-agents, single MCP tools
or whole MCP servers. `apply_patch` cannot be taken away, and limits, conditions and order have no option: the
gate holds those. The sandbox is left as the caller asked: no part of a policy says what a command may touch.
"""

from __future__ import annotations

from typing import Any, Final

from proctor.policies.policy import Policy
from proctor.policies.stream.tools import PORTABLE
from proctor.policies.values.globs import is_plain, matcher
from proctor.supervisor.ports.adapters import LaunchOptions

from ...kit.launch_options import allow_lists, denied, options_for
from ...kit.tool_names import meant
from ...kit.tool_names.codex import TOOLS
from .items import SHELL, SPAWN_AGENT, VIEW_IMAGE, WEB_SEARCH

COMPILES: Final = ("deny",)

_REMOVED: Final[dict[str, dict[str, dict[str, Any]]]] = {
    SHELL: {"features": {"shell_tool": False}},
    SPAWN_AGENT: {"features": {"multi_agent": False, "multi_agent_v2": False}},
    VIEW_IMAGE: {"features": {"view_image": False}},
    WEB_SEARCH: {"config": {"web_search": "disabled"}},
}
"""The options that take each tool away."""
WITH_SHELL: Final = {"write_stdin": SHELL}
"""What goes with the shell."""


def compile_options(policy: Policy) -> LaunchOptions:
    """The options a policy can be turned into: `features`, `config`, and `denied` MCP tools."""
    gone: set[str] = set()
    done: set[str] = set()
    servers: list[str] = []
    for entry, patterns in denied(policy):
        named = matcher(patterns)
        gone |= {name for name in _REMOVED if any(map(named, _names(name)))}
        held = [_REMOVED.keys() >= _meant(pattern) or _is_one_server_or_tool(pattern) for pattern in patterns]
        done |= {f"deny {entry}"} if all(held) else set()
        servers += [pattern for pattern in patterns if _is_one_server_or_tool(pattern)]
    for _, patterns in allow_lists(policy):
        admits = matcher(patterns)
        gone |= {name for name in _REMOVED if not any(map(admits, _names(name)))}
    options: dict[str, Any] = {"features": {}, "config": {}, "denied": servers}
    for name in sorted(gone):
        for part, settings in _REMOVED[name].items():
            options[part].update(settings)
    return options_for(policy, options, done)


def _names(name: str) -> tuple[str, ...]:
    """What calls of a tool go by."""
    return (name, *(act for each in TOOLS if each.name == name for act in each.acts))


def _meant(pattern: str) -> set[str]:
    """The tools that a portable name means; any other name means itself."""
    if pattern.casefold() not in PORTABLE or any(pattern.casefold() in each.acts_where for each in TOOLS):
        return {pattern.casefold()}
    return {WITH_SHELL.get(name, name) for name in meant(TOOLS, pattern)}


def _is_one_server_or_tool(pattern: str) -> bool:
    """`mcp__server__tool`, or `mcp__server__*`."""
    mark, _, name = pattern.partition("__")
    server, _, tool = name.partition("__")
    return mark.casefold() == "mcp" and bool(server and tool) and is_plain(name.removesuffix("*"))
