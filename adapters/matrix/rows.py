"""One row of the matrix for each adapter."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.policies.events.run_context import Capabilities

from ..agents.specs import SPECS
from ..kit.agent_spec import AgentSpec
from .evidence import Shown, read_record, settled

ELSEWHERE = (
    AgentSpec(
        name="mcp",
        about="any MCP server, behind `proctor mcp`",
        install="pip install '.[mcp]'",
        modules=("mcp",),
    ),
    AgentSpec(
        name="hook",
        about="a person's own Claude Code, by `proctor hook`",
        install="npm install -g @anthropic-ai/claude-code",
        programs=("claude",),
    ),
)
"""What a policy holds that somebody else runs."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter with what it can do; `shown` names the capabilities that the suite saw to be so."""

    spec: AgentSpec
    declared: Capabilities
    shown: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """How far a refusal gets there: `prevented`, or only `interrupted` for what is not asked about."""
        return {"all": "prevented", "some": "prevented or interrupted", "none": "interrupted"}[self.declared.gate]


def matrix(record: Mapping[str, Shown] | None = None) -> list[Row]:
    """Every adapter of which something is known; the same wherever it is asked for."""
    records = read_record() if record is None else record
    rows = (_row(spec, records.get(spec.name)) for spec in (*SPECS, *ELSEWHERE))
    return [row for row in rows if row is not None]


def _row(spec: AgentSpec, kept: Shown | None) -> Row | None:
    if kept is not None:
        return Row(spec=spec, declared=kept.declared, shown=kept.shown)
    if spec.command is None:
        return None
    from ..agents.acp import AcpAdapter

    return Row(spec=spec, declared=settled(AcpAdapter([spec.command]).capabilities))
