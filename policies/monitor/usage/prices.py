"""What tokens cost: the policies' own tables, then public prices from the `prices` extra.

The data of `genai-prices` is loaded when first needed; a model it does not know has no price, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...policy import Price
from ...stack.price_tables import PriceTables
from ...stream.events import TokenUsageUpdated
from ...values.globs import matcher

Pricer: TypeAlias = Callable[[TokenUsageUpdated], float]
"""USD for the tokens of one report."""


class PriceSource(NamedTuple):
    """How a model's tokens are priced; `id` says by what."""

    id: str
    usd: Pricer


class PriceBook:
    """The prices that hold for one compiled policy; models match a table's names as globs, without case."""

    def __init__(self, tables: PriceTables) -> None:
        self._open = _Table(tables.open)
        self._locked = [(_Table(table.prices), table.caps_cost) for table in tables.locked]
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
            own = table.source(model)
            counted = own or (_public_source(model) if caps_cost else None)
            if counted is None and caps_cost and self._reject:
                return None
            found.append(counted)
        sources = [source for source in (*found, self._open.source(model)) if source is not None]
        return _dearest(dict.fromkeys(sources)) if sources else _public_source(model)


class _Table:
    """The prices of one policy, by names that are globs; the first that matches counts."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._rows = [(matcher([name]), _OfTable(name, price)) for name, price in prices.items()]

    def source(self, model: str) -> PriceSource | None:
        named = (row for matches, row in self._rows if matches(model))
        return next((PriceSource(f"policy:{row.name}", row.usd) for row in named), None)


class _OfTable(NamedTuple):
    """A row of a table."""

    name: str
    price: Price

    def usd(self, report: TokenUsageUpdated) -> float:
        """What the tokens of a report cost."""
        return _table_usd(self.price, report)


def _dearest(sources: Iterable[PriceSource]) -> PriceSource:
    """Of several prices for one model, for each report the one that makes it dearest."""
    first, *others = sources
    if not others:
        return first
    pricers = [first.usd, *(source.usd for source in others)]
    id = f"dearest of {', '.join(source.id for source in (first, *others))}"
    return PriceSource(id, lambda report: max(usd(report) for usd in pricers))


def _table_usd(price: Price, report: TokenUsageUpdated) -> float:
    """A report at a table's rates; cached and reasoning tokens are part of input and output."""

    def rate(given: float | None, default: float) -> float:
        return default if given is None else given

    plain_input = max(0, report.input_tokens - report.cache_read_tokens - report.cache_write_tokens)
    plain_output = max(0, report.output_tokens - report.reasoning_tokens)
    usd = (
        plain_input * price.input_usd_per_mtok
        + report.cache_read_tokens * rate(price.cache_read_usd_per_mtok, price.input_usd_per_mtok)
        + report.cache_write_tokens * rate(price.cache_write_usd_per_mtok, price.input_usd_per_mtok)
        + plain_output * price.output_usd_per_mtok
        + report.reasoning_tokens * rate(price.reasoning_usd_per_mtok, price.output_usd_per_mtok)
    )
    return usd / 1_000_000


@lru_cache(maxsize=256)
def _public_source(model: str) -> PriceSource | None:
    try:
        import genai_prices
    except ImportError:
        return None

    def usage(report: TokenUsageUpdated) -> Any:
        return genai_prices.Usage(
            input_tokens=report.input_tokens,
            output_tokens=report.output_tokens,
            cache_read_tokens=report.cache_read_tokens,
            cache_write_tokens=report.cache_write_tokens,
        )

    try:
        found = genai_prices.calc_price(usage(TokenUsageUpdated(input_tokens=1)), model_ref=model)
    except LookupError:
        return None

    def usd(report: TokenUsageUpdated) -> float:
        return float(genai_prices.calc_price(usage(report), model_ref=model).total_price)

    return PriceSource(f"genai-prices:{found.provider.id}/{found.model.id}", usd)
