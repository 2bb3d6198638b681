"""What an agent says it used, as usage events.

The answer to a prompt may have the tokens of that prompt (`usage`, or `_meta.quota`). A `usage_update` says
how full the context is, which is no use of tokens, and may have what the session has cost so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.policies.stream.events import TokenUsageUpdated

from ...kit.usage_figures import check_growth, dollars, tokens


def prompt_usage(answer: Mapping[str, Any], model: str | None) -> Iterator[TokenUsageUpdated]:
    """The tokens of one prompt, from the agent's answer to it; nothing if it does not say.

    Raises EventError for a value that is not a figure.
    """
    usage = answer.get("usage")
    if isinstance(usage, dict):
        yield _of_usage(usage, model)
        return
    meta = answer.get("_meta")
    quota = meta.get("quota") if isinstance(meta, dict) else None
    if not isinstance(quota, dict):
        return
    listed = quota.get("model_usage")
    models = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    for entry in models or [{"token_count": quota.get("token_count"), "model": model}]:
        counts = entry.get("token_count")
        if isinstance(counts, dict):
            yield TokenUsageUpdated(
                input_tokens=tokens(counts, "input_tokens"),
                output_tokens=tokens(counts, "output_tokens"),
                cache_read_tokens=tokens(counts, "cached_input_tokens"),
                reasoning_tokens=tokens(counts, "reasoning_output_tokens"),
                model=str(entry["model"]) if entry.get("model") else model,
            )


class CostMeter:
    """What a session's running cost adds up to in this run.

    Args:
        before: the cost of the session before this run; None when its past is not known; the first report then stands
            for it.
    """

    def __init__(self, before: float | None) -> None:
        self.seen = before

    def take(self, update: Mapping[str, Any]) -> TokenUsageUpdated | None:
        """What was added since the last report; costs in another currency than USD are not counted.

        Raises EventError for a value that is not an amount, and for one that fell.
        """
        cost = update.get("cost")
        if not isinstance(cost, dict) or cost.get("currency") != "USD" or cost.get("amount") is None:
            return None
        before, self.seen = self.seen, dollars(cost, "amount")
        check_growth({"cost": before or 0.0}, {"cost": self.seen})
        added = 0.0 if before is None else self.seen - before
        return TokenUsageUpdated(cost_usd=added) if added > 0 else None


def _of_usage(usage: Mapping[str, Any], model: str | None) -> TokenUsageUpdated:
    read, written = tokens(usage, "cachedReadTokens"), tokens(usage, "cachedWriteTokens")
    given, answered = tokens(usage, "inputTokens"), tokens(usage, "outputTokens")
    thought, total = tokens(usage, "thoughtTokens"), tokens(usage, "totalTokens")
    # agents differ in whether cached tokens and thoughts are among the others: their total tells
    cached_apart = total >= given + read + written + answered
    thought_apart = total >= given + answered + thought + (read + written if cached_apart else 0)
    return TokenUsageUpdated(
        input_tokens=given + read + written if cached_apart else given,
        output_tokens=answered + thought if thought_apart else answered,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        model=model,
    )
