"""Impossible usage reports are errors that name the field, and no report is priced below its own figures."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.adapters.agents.acp.translation import CostMeter, prompt_usage
from proctor.adapters.agents.amp.translation import AmpTranslation
from proctor.adapters.agents.claude.translation import SessionMeter
from proctor.adapters.agents.codex.translation import UsageCount
from proctor.policies import EventError, Monitor, compile_policy, decode_event, parse_policies
from proctor.policies import events as ev

RATES = {
    "input_usd_per_mtok": 4_000_000,
    "output_usd_per_mtok": 8_000_000,
    "cache_read_usd_per_mtok": 1_000_000,
    "cache_write_usd_per_mtok": 5_000_000,
    "reasoning_usd_per_mtok": 9_000_000,
}
"""USD 4 per input token, and so on."""


def start() -> Monitor:
    policy = {"name": "p", "limits": {"max_cost_usd": 10**9}, "prices": {"*": RATES}}
    monitor = compile_policy(parse_policies(policy)[0]).monitor()
    monitor.observe(ev.RunStarted(run_id="r", model="m"))
    return monitor


COUNTS = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"]
WRONG = ["12", None, True, 1.5, math.nan, [1], -1]


@pytest.mark.parametrize("scope", ["delta", "cumulative"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("field", COUNTS)
def test_an_invalid_count_is_an_error_that_names_it(field: str, value: Any, scope: Any) -> None:
    """Nothing of the report is counted."""
    monitor = start()
    with pytest.raises(EventError, match=field):
        monitor.observe(ev.TokenUsageUpdated(**{"scope": scope, "input_tokens": 7, field: value, "event_id": "e"}))

    assert monitor.usage.total_tokens == 0

    monitor.observe(ev.TokenUsageUpdated(input_tokens=7, event_id="e"))

    assert monitor.usage.total_tokens == 7


@pytest.mark.parametrize("value", ["1", True, math.nan, math.inf, -0.01, [1]], ids=repr)
def test_an_invalid_cost_is_an_error_that_names_it(value: Any) -> None:
    """A provider's own cost is trusted, so it must be valid."""
    with pytest.raises(EventError, match="cost_usd"):
        start().observe(ev.TokenUsageUpdated(cost_usd=value))


@pytest.mark.parametrize("text", ['"12"', "1.5", "null", "true"])
def test_an_event_with_an_invalid_count_is_an_error_that_names_it(text: str) -> None:
    """When it is decoded."""
    with pytest.raises(EventError, match="input_tokens"):
        decode_event('{"type": "token_usage_updated", "input_tokens": ' + text + "}")


def test_a_total_that_falls_lowers_nothing() -> None:
    """Totals never fall, and nothing is counted twice."""
    monitor = start()
    for total in (100, 40, 90, 110):
        monitor.observe(ev.TokenUsageUpdated(scope="cumulative", input_tokens=total))

    assert (monitor.usage.input_tokens, monitor.usage.cost_usd) == (110, 440)


def priced(report: dict[str, int]) -> int:
    """The cost of a report's tokens at its rates."""
    read, written, reasoning = (report.get(f"{n}_tokens", 0) for n in ("cache_read", "cache_write", "reasoning"))
    plain = max(0, report.get("input_tokens", 0) - read - written)
    answered = max(0, report.get("output_tokens", 0) - reasoning)
    return 4 * plain + read + 5 * written + 8 * answered + 9 * reasoning


def test_tokens_that_are_later_reported_as_uncached_are_charged() -> None:
    """The total did not grow, but its cost did."""
    monitor = start()
    for cached in (100, 0):
        monitor.observe(ev.TokenUsageUpdated(scope="cumulative", input_tokens=100, cache_read_tokens=cached))

    assert monitor.usage.cost_usd >= priced({"input_tokens": 100})


reports = st.fixed_dictionaries({name: st.integers(0, 9) for name in COUNTS})


@pytest.mark.parametrize("scope", ["cumulative", "delta"])
@given(figures=st.lists(reports, min_size=1, max_size=5))
def test_no_report_is_priced_below_its_figures(scope: Any, figures: list[dict[str, Any]]) -> None:
    """Even if parts and totals contradict each other: a part that exceeds its total is charged in full."""
    monitor, least = start(), 0
    for report in figures:
        monitor.observe(ev.TokenUsageUpdated(scope=scope, **report))
        least = priced(report) + (least if scope == "delta" else 0)

        assert monitor.usage.cost_usd >= least


LIES: list[Any] = ["12", True, 1.5, math.nan, -1, [1], {}]


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_a_clients_invalid_figure_is_an_error_that_names_it(lie: Any) -> None:
    """If it were counted as zero, its usage would be free."""
    with pytest.raises(EventError, match="inputTokens"):
        UsageCount(fresh=True).update({"inputTokens": lie}, {}, None)
    with pytest.raises(EventError, match="inputTokens"):
        list(SessionMeter().usage_of({"m": {"inputTokens": lie}}))
    with pytest.raises(EventError, match="outputTokens"):
        list(prompt_usage({"usage": {"inputTokens": 1, "outputTokens": lie}}, None))
    with pytest.raises(EventError, match="output_tokens"):
        list(prompt_usage({"_meta": {"quota": {"token_count": {"output_tokens": lie}}}}, None))


@pytest.mark.parametrize("lie", ["12", 12, True, [1]], ids=repr)
def test_a_clients_report_without_figures_is_an_error(lie: Any) -> None:
    """It may stand for any usage."""
    with pytest.raises(EventError, match="has no figures"):
        UsageCount(fresh=True).update(lie, {}, None)
    with pytest.raises(EventError, match="has no figures"):
        list(SessionMeter().usage_of({"m": lie}))
    with pytest.raises(EventError, match="has no figures"):
        list(prompt_usage({"usage": lie}, None))
    with pytest.raises(EventError, match="has no figures"):
        CostMeter(0.0).usage_of({"cost": lie})
    with pytest.raises(EventError, match="has no figures"):
        list(AmpTranslation([]).events({"type": "result", "usage": lie}))


@pytest.mark.parametrize("lie", ["1", True, math.nan, math.inf, -0.01, [1]], ids=repr)
def test_a_clients_invalid_cost_is_an_error_that_names_it(lie: Any) -> None:
    """As in a usage report."""
    with pytest.raises(EventError, match="amount"):
        CostMeter(0.0).usage_of({"cost": {"currency": "USD", "amount": lie}})
    with pytest.raises(EventError, match="costUSD"):
        list(SessionMeter().usage_of({"m": {"costUSD": lie}}))


def test_a_clients_running_total_that_falls_is_an_error_that_names_it() -> None:
    """Otherwise the usage that follows the lower figure would be free."""
    count, meter, cost = UsageCount(fresh=True), SessionMeter(), CostMeter(0.0)
    count.update({"inputTokens": 100, "outputTokens": 1}, {}, None)
    list(meter.usage_of({"m": {"outputTokens": 100, "costUSD": 1.0}}))
    cost.usage_of({"cost": {"currency": "USD", "amount": 1.0}})

    with pytest.raises(EventError, match="`input_tokens` fell from 100 to 40"):
        count.update({"inputTokens": 40, "outputTokens": 1}, {}, None)
    with pytest.raises(EventError, match="`cost_usd` fell"):
        list(meter.usage_of({"m": {"outputTokens": 100, "costUSD": 0.5}}))
    with pytest.raises(EventError, match="`cost` fell"):
        cost.usage_of({"cost": {"currency": "USD", "amount": 0.5}})
