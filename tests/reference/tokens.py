"""Tokens and their cost, added again from all reports of the session."""

from typing import NamedTuple

from .moments import Moment, runs

PRICES = {"priced": {"input_usd_per_mtok": 250_000, "output_usd_per_mtok": 500_000}}
"""The models with a price."""


class Spent(NamedTuple):
    """The usage of a run; `unpriced` if some of it has no known price."""

    input: int = 0
    output: int = 0
    usd: float = 0.0
    unpriced: bool = False


def spent(past: list[Moment], cumulative: bool) -> list[Spent]:
    """The usage of each run: the sum of deltas, or the increase of the thread's total."""
    reports = _once(past)
    return _grown(reports) if cumulative else [_added(run) for run in reports]


def _once(past: list[Moment]) -> list[list[Moment]]:
    """The reports of each run; a duplicate, by its id, counts once."""
    seen = set[str]()
    found = []
    for run in runs(past):
        reports = []
        for moment in run:
            if moment.what == "tokens" and not (moment.id and moment.id in seen):
                reports.append(moment)
                seen.add(moment.id)
        found.append(reports)
    return found


def _added(reports: list[Moment]) -> Spent:
    costs = [_cost(m.input, m.output, m) for m in reports]
    return Spent(
        sum(m.input for m in reports), sum(m.output for m in reports), sum(c or 0.0 for c in costs), None in costs
    )


def _grown(lived: list[list[Moment]]) -> list[Spent]:
    """A run's first report below the thread's total counts from zero: the client restarted."""
    thread, found = (0, 0, 0.0), []
    for reports in lived:
        if reports and reports[0].input + reports[0].output < thread[0] + thread[1]:
            thread = (0, 0, 0.0)
        base = thread
        for m in reports:
            thread = max(thread[0], m.input), max(thread[1], m.output), max(thread[2], m.cost or 0.0)
        input, output = thread[0] - base[0], thread[1] - base[1]
        cost = (
            _cost(input, output, reports[0]._replace(cost=thread[2] - base[2]))
            if reports and _states(reports)
            else (_cost(input, output, reports[0]) if reports else 0.0)
        )
        found.append(Spent(input, output, cost or 0.0, cost is None))
    return found


def _states(reports: list[Moment]) -> bool:
    return reports[0].cost is not None


def _cost(input: int, output: int, report: Moment) -> float | None:
    """The provider's own cost, else tokens at their price; None without a known price."""
    if report.cost is not None or not (input or output):
        return report.cost or 0.0
    if report.model not in PRICES:
        return None
    price = PRICES[report.model]
    return (input * price["input_usd_per_mtok"] + output * price["output_usd_per_mtok"]) / 1e6
