"""What a tool of an MCP server is called in a policy, and what its annotations may add to that.

A call is judged, recorded and narrowed under one name: the tool's own, or `mcp__NAME__tool` where the
server was given a name, as agents spell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.policies.policy import Policy
from proctor.policies.stream.tools import Tool
from proctor.policies.values.globs import matcher

from ..kit.tool_names.frameworks import MOSTLY

READ_ONLY = "read-only"
DESTRUCTIVE = "destructive"
_GLOB = re.compile(r"[*?\[]")


class Naming:
    """Names of one server's tools.

    Args:
        server: the server's name, or None for the tools' own names.
    """

    def __init__(self, server: str | None = None) -> None:
        self._prefix = f"mcp__{server}__" if server else ""

    def judged(self, tool: str) -> str:
        """The name a policy knows the tool by."""
        return self._prefix + tool

    def mostly(self) -> tuple[Tool, ...]:
        """The portable names by which a server's tools go under their own names. Those of a server with a name go by
        none: they are judged as at an agent's own gate, where nobody takes a server's `read_file` for the agent's.
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
