"""What the framework counted, as usage events."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RunUsage, UsageBase

from proctor.policies.stream.events import TokenUsageUpdated

from ..loop import LoopGate

_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "output_reasoning_tokens": "reasoning_tokens",
}


class Meter:
    """Reports to the gate of one run each response, then whatever else the run's own total says.

    The total also holds rejected attempts and the sub-agents that were given the run's usage.
    """

    def __init__(self, gate: LoopGate) -> None:
        self.gate = gate
        self._reported = dict.fromkeys(_FIELDS.values(), 0)
        self._model: str | None = None

    def of_response(self, response: ModelResponse) -> TokenUsageUpdated:
        """The usage of one response, with its cost in USD if the framework knows the price."""
        self._model = response.model_name
        return self._event(_numbers(response.usage), cost_usd=_cost(response))

    async def settle(self, total: RunUsage) -> None:
        """Report what the run used that no response told, before anything else is done."""
        now = _numbers(total)
        more = {name: max(0, now[name] - before) for name, before in self._reported.items()}
        if any(more.values()):
            await self.gate.report(self._event(more, cost_usd=None))

    def _event(self, numbers: dict[str, int], *, cost_usd: float | None) -> TokenUsageUpdated:
        for name, value in numbers.items():
            self._reported[name] += value
        fields: dict[str, Any] = dict(numbers)
        return TokenUsageUpdated(scope="delta", model=self._model, cost_usd=cost_usd, **fields)


def _numbers(usage: UsageBase) -> dict[str, int]:
    return {ours: int(getattr(usage, theirs, 0) or 0) for theirs, ours in _FIELDS.items()}


def _cost(response: ModelResponse) -> float | None:
    if not response.model_name or not response.usage.has_values():
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):  # no price is known, or the response did not say what it used
        return None
