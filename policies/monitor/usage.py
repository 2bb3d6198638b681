"""Adding up token reports: deltas and cumulative ones, repeated ones, resumed threads."""

from __future__ import annotations

import msgspec

from ..stream.calls import Usage
from ..stream.events import TokenUsageUpdated
from .prices import PriceBook

REPORTS_KEPT = 1_024
"""How many event ids of reports are remembered, so that the same report twice counts once."""

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


class Meter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Totals of the run and of the session; `model` is the run's, for reports that name none.

    `reported` is what the thread's cumulative figure is known to be: the last cumulative report, plus the
    deltas since. `fresh` until the run's first cumulative report, which may go on from the thread's figure or
    start anew.
    """

    model: str = ""
    run: Usage = msgspec.field(default_factory=Usage)
    session: Usage = msgspec.field(default_factory=Usage)
    reported: Usage = msgspec.field(default_factory=Usage)
    fresh: bool = True
    seen: list[str] = []
    unpriced: list[str] = []
    priced_by: list[str] = []

    def new_run(self, model: str) -> None:
        """A run begins: its totals are zero, the thread's figure stays as the baseline."""
        self.model = model
        self.run = Usage()
        self.fresh = True
        self.unpriced = []

    def add(self, event: TokenUsageUpdated, prices: PriceBook | None) -> None:
        """Count one report. `prices` is None where nobody asks what it costs."""
        if event.event_id:
            if event.event_id in self.seen:
                return
            self.seen.append(event.event_id)
            del self.seen[:-REPORTS_KEPT]
        delta = self._delta(event)
        cost = self._cost(event, delta, prices)
        for name in _COUNTS:
            grown = getattr(delta, name)
            for usage in (self.run, self.session, self.reported):
                setattr(usage, name, getattr(usage, name) + grown)
        for usage in (self.run, self.session, self.reported):
            usage.cost_usd += cost

    def _delta(self, event: TokenUsageUpdated) -> TokenUsageUpdated:
        if event.scope == "delta":
            return msgspec.structs.replace(event, **{name: max(0, getattr(event, name)) for name in _COUNTS})
        if self.fresh:
            self.fresh = False
            total = event.input_tokens + event.output_tokens
            if total < self.reported.total_tokens - self.run.total_tokens:
                # Lower than the thread was: this client counts each run from zero.
                self.reported = msgspec.structs.replace(self.run)
        grown = {name: max(0, getattr(event, name) - getattr(self.reported, name)) for name in _COUNTS}
        return msgspec.structs.replace(event, **grown)

    def _cost(self, event: TokenUsageUpdated, delta: TokenUsageUpdated, prices: PriceBook | None) -> float:
        if event.cost_usd is not None:
            stated = event.cost_usd if event.scope == "delta" else event.cost_usd - self.reported.cost_usd
            return max(0.0, stated)
        if prices is None or not (delta.input_tokens or delta.output_tokens):
            return 0.0
        model = event.model or self.model
        source = prices.source(model)
        if source is None:
            if (model or "unknown") not in self.unpriced:
                self.unpriced.append(model or "unknown")
            return 0.0
        if source.id not in self.priced_by:
            self.priced_by.append(source.id)
        return source.usd(delta)
