"""What is drawn, whatever draws it."""

from __future__ import annotations

from textwrap import wrap
from typing import Literal, TypeAlias

import msgspec

NodeShape: TypeAlias = Literal["tool", "rule", "fact", "place", "transition"]
"""A tool's calls, a rule between them, something that is no call; and a net's places and transitions."""
NodeState: TypeAlias = Literal["", "open", "shut", "violated"]
"""Where a session stands: `open` may come now, is satisfied or enabled; `shut` may not, or still refuses."""

_INDENT = "\u00a0" * 4
"""Blanks that no renderer takes for one."""


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing of a section; `notes` stand below its text, `tokens` in a place."""

    id: str
    text: str
    shape: NodeShape
    notes: tuple[str, ...] = ()
    tokens: int = 0
    state: NodeState = ""
    action: str = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One arrow; a forbidden one leads to what must not follow, a weak one only warns or asks."""

    source: str
    target: str
    style: Literal["plain", "forbidden", "weak"] = "plain"
    label: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with a title; ids are its own."""

    title: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]
    action: str = ""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The graphs of a policy, and what it says that is no graph, line by line.

    Attributes:
        title: The name of what is drawn.
        sections: The graphs.
        lines: What the policy says that is no graph, line by line.
        standing: It shows how a session stands, not only the policy.
    """

    title: str
    sections: tuple[Section, ...]
    lines: tuple[str, ...] = ()
    standing: bool = False

    def folded(self, width: int) -> list[str]:
        """The lines, those of more letters than `width` in several, all but the first indented."""
        return [part for line in self.lines for part in wrap(line, width, subsequent_indent=_INDENT) or [""]]
