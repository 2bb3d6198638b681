"""What is known of an agent before it is started: the protocol leaves much to the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec

from proctor.supervisor.errors import UsageError


class AgentTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent behaves.

    `gate` is `all` only where the agent asks before every call, which its own settings decide.
    `deny_ends_turn`: a refusal ends the agent's turn. `loads`: it takes up its earlier sessions.
    `partial_usage`: the tokens it tells are not all that it used; they are not reported. `switches`: members of
    JSON objects in its environment that turn off what would act unasked and unseen. `environment`: variables that
    keep it from the settings of the workspace, where the environment does not say otherwise.
    """

    gate: Literal["all", "some", "none"] = "some"
    deny_ends_turn: bool = False
    usage: Literal["at_end", "none"] = "none"
    partial_usage: bool = False
    reports_cost: bool = False
    loads: bool = False
    switches: dict[str, dict[str, Any]] = {}
    environment: dict[str, str] = {}


KNOWN: Final[dict[str, AgentTraits]] = {
    "claude-agent-acp": AgentTraits(usage="at_end", reports_cost=True, loads=True),
    "codex-acp": AgentTraits(deny_ends_turn=True, usage="at_end", loads=True),
    "gemini": AgentTraits(usage="at_end", loads=True, environment={"GEMINI_CLI_TRUST_WORKSPACE": "false"}),
    "opencode": AgentTraits(
        deny_ends_turn=True,
        # of the tokens of a prompt it only tells those of the last model response
        partial_usage=True,
        reports_cost=True,
        loads=True,
        # it neither asks about a sub-agent's calls nor tells of them
        switches={"OPENCODE_PERMISSION": {"task": "deny"}},
        environment={
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        },
    ),
}
"""Agents by the name of their executable."""


def switched(env: Mapping[str, str], traits: AgentTraits) -> dict[str, str]:
    """An agent's environment with what its traits set. Raises UsageError where a switch holds no JSON object."""
    set_so: dict[str, str] = {}
    for name, members in traits.switches.items():
        try:
            own = msgspec.json.decode(env.get(name) or "{}", type=dict[str, Any])
        except msgspec.DecodeError:
            raise UsageError(
                f"the environment variable `{name}` is not a JSON object; `{members}` is added to it"
            ) from None
        kept = {key: value for key, value in own.items() if key not in members}
        set_so[name] = msgspec.json.encode({**kept, **members}).decode()
    return {**traits.environment, **env, **set_so}


def traits_of(command: Sequence[str]) -> AgentTraits:
    """The traits of the agent a command starts; of one that is not known, the least is assumed."""
    names = (PurePath(word).name for word in command)
    return next((KNOWN[name] for name in names if name in KNOWN), AgentTraits())
