"""Names of an MCP server's tools in a policy, and the facts its annotations may add.

A call is evaluated, recorded and narrowed under one name: the tool's own, or `mcp__NAME__tool` where the
server was given a name, as agents spell it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from proctor.policies.events.run_context import Tool
from proctor.policies.policy import Policy
from proctor.policies.values.globs import matcher

from ..kit.function_tools import MOSTLY
from .messages import is_confusable

READ_ONLY = "read-only"
DESTRUCTIVE = "destructive"
_GLOB = re.compile(r"[*?\[]")


class Naming:
    """Names of one server's tools: with the server's name, or None for the tools' own names."""

    def __init__(self, server: str | None = None) -> None:
        self._prefix = f"mcp__{server}__" if server else ""

    def judged(self, tool: str) -> str:
        """The name a policy knows the tool by."""
        return self._prefix + tool

    def mostly(self) -> tuple[Tool, ...]:
        """The portable names by which a server's tools go under their own names. Those of a server with a name go by
        none: they are evaluated as at an agent's own gate, where nobody takes a server's `read_file` for the agent's.
        """
        return () if self._prefix else MOSTLY


def trusts(policy: Policy, server: str | None) -> bool:
    """Whether a policy's `metadata.trusted_servers` names this server; one without a name is never trusted."""
    trusted = policy.metadata.get("trusted_servers", [])
    names = [trusted] if isinstance(trusted, str) else trusted
    if server is None or not isinstance(names, Sequence):
        return False
    return bool(names) and matcher([str(name) for name in names])(server)


def with_annotations(policies: Iterable[Policy], tools: Sequence[Mapping[str, Any]], naming: Naming) -> list[Policy]:
    """The policies with `read-only` and `destructive` standing for the tools whose server says so of them.

    A tool that says nothing is destructive, as the protocol has it. A policy's own alias of the name stays.
    """
    aliases: dict[str, list[str]] = {READ_ONLY: [], DESTRUCTIVE: []}
    for tool in tools:
        kind = _kind(tool.get("annotations"))
        if kind is not None:
            aliases[kind].append(_literally(naming.judged(str(tool.get("name")))))
    given = {name: tuple(found) for name, found in aliases.items() if found}
    return [msgspec.structs.replace(policy, aliases={**given, **policy.aliases}) for policy in policies]


def _literally(name: str) -> str:
    """A pattern that means this name only, whatever the server calls its tools."""
    return _GLOB.sub(r"[\g<0>]", name)


def _kind(annotations: Any) -> str | None:
    hints = annotations if isinstance(annotations, Mapping) else {}
    if hints.get("readOnlyHint") is True:
        return READ_ONLY
    return None if hints.get("destructiveHint") is False else DESTRUCTIVE


class Visibility:
    """The tools of a list that the clients of one run may see: those of `only` (None: of all) that could be called
    now, by `narrow`.
    """

    def __init__(self, narrow: Callable[[Sequence[str]], list[str]], only: Collection[str] | None = None) -> None:
        self._narrow = narrow
        self._only = None if only is None else frozenset(only)
        self._version = 0
        self._moved = anyio.Event()

    def touch(self) -> None:
        """Note that a call was decided or has ended, so that other tools may be callable."""
        self._version += 1
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def knows(self, name: str) -> bool:
        """Whether a tool of this name may be offered at all."""
        return self._only is None or name in self._only

    def narrow(self, names: Sequence[str]) -> list[str]:
        """The tools among `names` that could be called now."""
        return self._narrow([name for name in names if self.knows(name)])

    async def moved(self, seen: int) -> int:
        """Return when `touch` was called oftener than `seen`, the number returned last; 0 at first."""
        while self._version == seen:
            await self._moved.wait()
        return self._version


def _is_tool(tool: Any) -> bool:
    """Whether it is a tool with a name by which it can be called."""
    name = tool.get("name") if isinstance(tool, dict) else None
    return isinstance(name, str) and not is_confusable(name)


class ToolList:
    """The tools a server offers and those its client may see."""

    def __init__(self, naming: Naming, visibility: Visibility) -> None:
        self._naming = naming
        self._visibility = visibility
        self._names: dict[str, None] = {}
        self._shown: frozenset[str] | None = None

    def page(self, result: dict[str, Any], *, first: bool) -> dict[str, Any]:
        """A page of the server's list without what could not be called; `first` begins the list anew."""
        given = result.get("tools")
        tools = [tool for tool in given if _is_tool(tool)] if isinstance(given, list) else []
        names = [str(tool["name"]) for tool in tools]
        visible = self._visible(names)
        if first or self._shown is None:
            self._names, self._shown = {}, frozenset()
        self._names |= dict.fromkeys(names)
        self._shown |= visible
        return {**result, "tools": [tool for tool, name in zip(tools, names, strict=True) if name in visible]}

    async def changed(self, seen: int) -> int:
        """Return when other tools could be called than were shown or announced last; see `Visibility.moved`."""
        while True:
            seen = await self._visibility.moved(seen)
            visible = self._visible(self._names)
            if self._shown is not None and visible != self._shown:
                self._shown = visible
                return seen

    def _visible(self, names: Iterable[str]) -> frozenset[str]:
        judged = {self._naming.judged(name): name for name in names}
        return frozenset(judged[name] for name in self._visibility.narrow(list(judged)))
