"""The gate of one run with what of its usage was reported."""

from __future__ import annotations

from pydantic_ai.usage import RunUsage

from ..loop import LoopGate
from .meter import Meter


class Gating:
    """Judges what was used before anything else is done."""

    def __init__(self, gate: LoopGate) -> None:
        self.gate = gate
        self.meter = Meter()

    async def settle(self, total: RunUsage) -> None:
        """Report what the run used that no response told."""
        more = self.meter.beyond(total)
        if more is not None:
            await self.gate.report(more)
