"""Tokens used, from the running total the client repeats after each model response."""

from __future__ import annotations

from typing import Any

from proctor.policies.stream.events import TokenUsageUpdated

from ...kit.usage_figures import check_growth, tokens

_FIELDS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_tokens": "cachedInputTokens",
    "cache_write_tokens": "cacheWriteInputTokens",
    "reasoning_tokens": "reasoningOutputTokens",
}


_RECORDED = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_input_tokens",
    "reasoningOutputTokens": "reasoning_output_tokens",
}


def in_messages(recorded: dict[str, Any]) -> dict[str, Any]:
    """Tokens as the client's record has them, in the words of its messages."""
    return {name: recorded.get(theirs) for name, theirs in _RECORDED.items()}


class UsageCount:
    """What one thread has used in this run, out of its running total.

    The total goes on over resumes and forks, so a thread with a past has a baseline: the total the client
    repeats when it takes the thread up, or else what was there before the first response of this run.

    Args:
        fresh: the thread starts with this run, so its baseline is zero.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._seen: dict[str, int] | None = dict.fromkeys(_FIELDS, 0) if fresh else None
        self._before: dict[str, int] = {}
        self._totals: set[tuple[int, ...]] = set()

    def past(self, total: dict[str, Any]) -> None:
        """Take in the thread's total from before this run."""
        self._seen = self._before = _read(total)

    def update(self, total: dict[str, Any], last: dict[str, Any], model: str | None) -> TokenUsageUpdated | None:
        """What was used since the last update; `last` is the newest response's own usage.

        Raises EventError for a value that is not a figure, and for one that fell. A total that was told before, or
        that a newer one was added to, is a message that was late: what it tells is counted.
        """
        now, newest = _read(total), _read(last)
        if total.get("totalTokens") and not any(now.values()):
            self._seen, self._before = now, {}
            self._totals.clear()
            return None  # the context is full: the client says its size for a total, and counts from zero again
        is_late = self._is_late(now)
        self._totals.add(tuple(now[name] - newest[name] for name in now))
        if is_late:
            return None
        seen = self._seen or {name: now[name] - newest[name] for name in now}
        self._seen = now
        self._totals.add(tuple(now.values()))
        check_growth(seen, now)
        used: dict[str, Any] = {name: now[name] - seen[name] for name in now}
        return TokenUsageUpdated(scope="delta", model=model, **used) if any(used.values()) else None

    def _is_late(self, now: dict[str, int]) -> bool:
        if tuple(now.values()) in self._totals:
            return True
        return any(now.values()) and all(now[name] <= self._before.get(name, -1) for name in now)


def _read(breakdown: dict[str, Any]) -> dict[str, int]:
    return {name: tokens(breakdown, theirs) for name, theirs in _FIELDS.items()}
