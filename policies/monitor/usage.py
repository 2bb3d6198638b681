"""Adding up token reports: deltas and cumulative ones, repeated ones, resumed threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..errors import EventError, wrong_type
from ..events import TokenUsageUpdated
from ..events.run_context import TOKENS, Usage
from ..policy import Price
from ..stack.merge import PriceTables
from ..values.globs import matcher
from ..values.json_values import is_number

Tokens: TypeAlias = tuple[int, ...]
"""Tokens by kind: uncached input, read from the cache, written to the cache, output, reasoning output."""
Pricer: TypeAlias = Callable[[Tokens], float]
"""USD for so many tokens."""


class PriceSource(NamedTuple):
    """How a model's tokens are priced; `id` says by what."""

    id: str
    usd: Pricer


_Row: TypeAlias = tuple[Callable[[str], bool], PriceSource]
"""A price of a policy, and whether its name, a glob, matches a model's."""


class PriceBook:
    """The prices that hold for one compiled policy; of a policy's, the first that matches counts."""

    def __init__(self, tables: PriceTables) -> None:
        self._open = _rows(tables.open)
        self._locked = [(_rows(prices), caps_cost) for prices, caps_cost in tables.locked]
        self._reject = tables.reject
        self._sources: dict[str, PriceSource | None] = {}

    def source(self, model: str) -> PriceSource | None:
        """How this model is priced; None if its price is unknown."""
        if model not in self._sources:
            if len(self._sources) > 1000:  # a stream may name any number of models
                self._sources.clear()
            self._sources[model] = self._find(model)
        return self._sources[model]

    def _find(self, model: str) -> PriceSource | None:
        found = []
        for table, caps_cost in self._locked:
            own = _first(table, model)
            counted = own or (_public_source(model) if caps_cost else None)
            if counted is None and caps_cost and self._reject:
                return None
            found.append(counted)
        sources = [source for source in (*found, _first(self._open, model)) if source is not None]
        return _highest_price(dict.fromkeys(sources)) if sources else _public_source(model)


def _rows(prices: Mapping[str, Price]) -> list[_Row]:
    sources = (PriceSource(f"policy:{name}", partial(_table_usd, price)) for name, price in prices.items())
    return list(zip((matcher([name]) for name in prices), sources, strict=True))


def _first(rows: list[_Row], model: str) -> PriceSource | None:
    return next((source for matches, source in rows if matches(model)), None)


def _highest_price(sources: Iterable[PriceSource]) -> PriceSource:
    """Of several prices for one model, the highest for what is to be priced."""
    first, *others = sources
    if not others:
        return first
    pricers = [first.usd, *(source.usd for source in others)]
    id = f"dearest of {', '.join(source.id for source in (first, *others))}"
    return PriceSource(id, lambda tokens: max(usd(tokens) for usd in pricers))


def _table_usd(price: Price, tokens: Tokens) -> float:
    """Tokens at a policy's rates."""
    return sum(count * rate for count, rate in zip(tokens, price.rates, strict=True)) / 1_000_000


@lru_cache(maxsize=256)
def _public_source(model: str) -> PriceSource | None:
    try:
        import genai_prices
    except ImportError:
        return None

    def priced(tokens: Tokens) -> Any:
        input, read, written, output, reasoning = tokens
        usage = genai_prices.Usage(
            input_tokens=input + read + written,
            output_tokens=output + reasoning,
            cache_read_tokens=read,
            cache_write_tokens=written,
        )
        return genai_prices.calc_price(usage, model_ref=model)

    try:
        found = priced((1, 0, 0, 0, 0))
    except LookupError:
        return None

    def usd(tokens: Tokens) -> float:
        return float(priced(tokens).total_price)

    return PriceSource(f"genai-prices:{found.provider.id}/{found.model.id}", usd)


REPORTS_KEPT = 1_024
"""How many event ids of reports are remembered, so that a repeated report counts once."""


class TokenMeter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Totals of the run and of the session; `model` is the run's, for reports that name none.

    `reported` is the session's known cumulative figure: the last cumulative report plus the increments since; `paid`
    how much of it was priced. `fresh` until the run's first cumulative report, which may continue
    the session's figure or start anew.
    """

    model: str = ""
    run: Usage = msgspec.field(default_factory=Usage)
    session: Usage = msgspec.field(default_factory=Usage)
    reported: Usage = msgspec.field(default_factory=Usage)
    paid: Tokens = (0, 0, 0, 0, 0)
    fresh: bool = True
    seen: list[str] = []
    unpriced: tuple[str, ...] = ()
    priced_by: tuple[str, ...] = ()

    def new_run(self, model: str) -> None:
        """Begin a run: its totals are zero, and the session's cumulative figure stays as the baseline."""
        self.model = model
        self.run = Usage()
        self.fresh = True
        self.unpriced = ()

    def has_counted(self, event: TokenUsageUpdated) -> bool:
        """Whether a report of that id was counted."""
        return bool(event.event_id) and event.event_id in self.seen

    def add(self, event: TokenUsageUpdated, prices: PriceBook | None) -> None:
        """Count one report; `prices` is None if costs are not needed.

        Raises EventError for an impossible report, naming the field.
        """
        _check(event)
        if self.has_counted(event):
            return
        if event.event_id:
            self.seen.append(event.event_id)
            del self.seen[:-REPORTS_KEPT]
        delta = self._delta(event)
        cost = self._cost(event, self._added_tokens(event), prices)
        for name in TOKENS:
            grown = delta[name]
            for usage in (self.run, self.session, self.reported):
                setattr(usage, name, getattr(usage, name) + grown)
        for usage in (self.run, self.session, self.reported):
            usage.cost_usd += cost

    def _delta(self, event: TokenUsageUpdated) -> dict[str, int]:
        if event.scope == "delta":
            return {name: getattr(event, name) for name in TOKENS}
        if self.fresh:
            self.fresh = False
            total = event.input_tokens + event.output_tokens
            if total < self.reported.total_tokens - self.run.total_tokens:
                # Lower than the thread was: this client counts each run from zero.
                self.reported = msgspec.structs.replace(self.run)
                self.paid = _kinds(self.run)
        return {name: max(0, getattr(event, name) - getattr(self.reported, name)) for name in TOKENS}

    def _cost(self, event: TokenUsageUpdated, unpaid: Tokens, prices: PriceBook | None) -> float:
        if event.cost_usd is not None:
            stated = event.cost_usd if event.scope == "delta" else event.cost_usd - self.reported.cost_usd
            return max(0.0, stated)
        if prices is None or not any(unpaid):
            return 0.0
        model = event.model or self.model
        source = prices.source(model)
        if source is None:
            if (model or "unknown") not in self.unpriced:
                self.unpriced += (model or "unknown",)
            return 0.0
        if source.id not in self.priced_by:
            self.priced_by += (source.id,)
        return source.usd(unpaid)

    def _added_tokens(self, event: TokenUsageUpdated) -> Tokens:
        """The tokens that a report adds, each kind by itself, so that nothing is priced too low."""
        now = _kinds(event)
        if event.scope == "delta":
            self.paid = tuple(map(sum, zip(self.paid, now, strict=True)))
            return now
        paid, self.paid = self.paid, tuple(map(max, self.paid, now))
        return tuple(after - before for after, before in zip(self.paid, paid, strict=True))


def _kinds(usage: TokenUsageUpdated | Usage) -> Tokens:
    read, written, reasoning = usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    plain = max(0, usage.input_tokens - read - written), max(0, usage.output_tokens - reasoning)
    return plain[0], read, written, plain[1], reasoning


def _check(event: TokenUsageUpdated) -> None:
    for name in TOKENS:
        count = getattr(event, name)
        if type(count) is not int:
            raise EventError(f"`{event.type}` event: `{name}`: {wrong_type('a whole number', count)}")
        if count < 0:
            raise EventError(f"`{event.type}` event: `{name}` is {count}, below zero")
    cost = event.cost_usd
    if cost is not None and not is_number(cost):
        raise EventError(f"`{event.type}` event: `cost_usd`: {wrong_type('an amount in USD', cost)}")
    if cost is not None and cost < 0:
        raise EventError(f"`{event.type}` event: `cost_usd` is {cost}, below zero")
    if event.scope not in ("delta", "cumulative"):
        raise EventError(f"`{event.type}` event: `scope` is neither `delta` nor `cumulative`")
