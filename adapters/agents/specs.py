"""Every agent, in the order of the matrix; nothing of an agent is imported but its record."""

from __future__ import annotations

from typing import Final

from ..kit.agent_spec import AgentSpec
from . import acp, amp, claude, codex, loop, openai_agents, pydantic_ai, scripted

SHELL: Final = AgentSpec(
    name="shell",
    about="bash command lines",
    adapter="proctor.adapters.agents.shell:ShellAdapter",
    install="install bash",
    programs=("bash",),
    first_run='shell "make test"',
    goes_on=False,
)


REPLAY: Final = AgentSpec(
    name="replay",
    about="recorded sessions",
    adapter="proctor.adapters.agents.replay:ReplayAdapter",
    goes_on=False,
)


SPECS: Final[tuple[AgentSpec, ...]] = (
    claude.SPEC,
    codex.SPEC,
    *acp.AGENTS,
    acp.SPEC,
    amp.SPEC,
    pydantic_ai.SPEC,
    openai_agents.SPEC,
    loop.SPEC,
    SHELL,
    scripted.SPEC,
    REPLAY,
)
