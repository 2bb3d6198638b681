"""The client's running totals as usage events.

The client counts a whole session, over every run that resumed it and with its sub-agents; a run is what
came on top of the totals it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.policies.stream.events import TokenUsageUpdated

from ...kit.usage_figures import check_growth, dollars, tokens

_FIELDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_tokens",
    "cacheCreationInputTokens": "cache_write_tokens",
    "thinkingTokens": "reasoning_tokens",
    "costUSD": "cost_usd",
}
_COST = "cost_usd"


class SessionMeter:
    """Turns totals per model into what was added since the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, float]] = {}
        self._run: dict[str, float] = dict.fromkeys(_FIELDS.values(), 0)

    def begin(self, model_usage: Mapping[str, Any]) -> None:
        """Take the totals a run begins with."""
        for model, totals in model_usage.items():
            self._seen[model] = dict.fromkeys(_FIELDS.values(), 0) | _numbers(totals)

    def take(self, model_usage: Mapping[str, Any]) -> Iterator[TokenUsageUpdated]:
        """What was added since the last look, one event a model.

        Raises EventError for a value that is not a figure, and for one that fell.
        """
        for model, totals in model_usage.items():
            before = self._seen.setdefault(model, dict.fromkeys(_FIELDS.values(), 0))
            now = before | _numbers(totals)
            check_growth(before, now)
            added = {name: value - before[name] for name, value in now.items()}
            self._seen[model] = now
            if any(added.values()):
                for name, value in added.items():
                    self._run[name] += value
                yield _event(model, added)

    def run_totals(self) -> dict[str, float]:
        """What this run used so far, all models together, in the words of usage events."""
        cached = self._run["cache_read_tokens"] + self._run["cache_write_tokens"]
        return {**self._run, "input_tokens": self._run["input_tokens"] + cached}


def _numbers(totals: Mapping[str, Any]) -> dict[str, float]:
    numbers: dict[str, float] = {ours: tokens(totals, theirs) for theirs, ours in _FIELDS.items() if ours != _COST}
    if totals.get("costBasis") != "unknown":  # the client guesses for models it has no price of
        numbers[_COST] = dollars(totals, "costUSD")
    return numbers


def _event(model: str, added: Mapping[str, float]) -> TokenUsageUpdated:
    read, written = int(added["cache_read_tokens"]), int(added["cache_write_tokens"])
    return TokenUsageUpdated(
        scope="delta",
        model=model,
        input_tokens=int(added["input_tokens"]) + read + written,
        output_tokens=int(added["output_tokens"]),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=int(added["reasoning_tokens"]),
        cost_usd=added["cost_usd"] or None,
    )
