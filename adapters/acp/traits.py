"""What is known of an agent before it is started: the protocol leaves much to the agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Literal

import msgspec


class AgentTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent behaves.

    `gate` is `all` only where the agent asks before every call, which its own settings decide.
    `deny_ends_turn`: a refusal ends the agent's turn. `loads`: it takes up its earlier sessions.
    `partial_usage`: the tokens it tells are not all that it used; they are not reported.
    """

    gate: Literal["all", "some", "none"] = "some"
    deny_ends_turn: bool = False
    usage: Literal["at_end", "none"] = "none"
    partial_usage: bool = False
    reports_cost: bool = False
    loads: bool = False


KNOWN: Final[dict[str, AgentTraits]] = {
    "claude-agent-acp": AgentTraits(usage="at_end", reports_cost=True, loads=True),
    "codex-acp": AgentTraits(deny_ends_turn=True, usage="at_end", loads=True),
    "gemini": AgentTraits(usage="at_end", loads=True),
    # of the tokens of a prompt it only tells those of the last model response
    "opencode": AgentTraits(deny_ends_turn=True, partial_usage=True, reports_cost=True, loads=True),
}
"""Agents by the name of their executable."""


def traits_of(command: Sequence[str]) -> AgentTraits:
    """The traits of the agent a command starts; of one that is not known, the least is assumed."""
    names = (PurePath(word).name for word in command)
    return next((KNOWN[name] for name in names if name in KNOWN), AgentTraits())
