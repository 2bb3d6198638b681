"""`budgets`: what is used, reserved and left of the budgets that runs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...common import json_option, run_async, store_option
from ...moments import dollars, took
from ...output_file import output_option
from ...terminal.output import console, note, say_json

if TYPE_CHECKING:
    from rich.text import Text

    from proctor.supervisor.ports.ledger import BudgetInfo

_BAR = 20
_NEAR = 0.8
"""From this part on a budget is shown as near its end."""


@click.command()
@click.option("--name", "-n", help="Only budgets whose name, `policy/name`, contains this.")
@click.option("--key", "-k", help="Only those of keys that contain this.")
@store_option
@output_option
@json_option
def budgets(name: str | None, key: str | None, store: str | None, as_json: bool) -> None:
    """List the budgets that runs share: whose each is, what is used of it in this window, what is reserved for
    current runs (`+`), what is left, and when the next window starts.
    """
    from ...store_place import is_there_or_said, opened

    async def listed() -> list[BudgetInfo]:
        async with opened(store, must_exist=True) as opened_store:
            return await opened_store.budgets()

    all_of_them = run_async(listed) if is_there_or_said(store) else []
    found = [b for b in all_of_them if (name or "") in b.budget and (key or "") in b.key]
    if as_json:
        for budget in found:
            say_json(as_data(budget))
        return
    if not found:
        note("no run has drawn on a budget")
    out = console()
    for budget in found:
        out.print(_line(budget))


def as_data(budget: BudgetInfo) -> dict[str, Any]:
    """A budget with what is left of it, as JSON has it."""
    import msgspec

    return {**msgspec.structs.asdict(budget), "left": budget.left}


_WORDS = {
    "total_tokens": (" token", " tokens"),
    "tool_calls": (" call", " calls"),
    "running": (" run", " runs at once"),
}
"""Units that are words: money and time carry their own."""


def _line(budget: BudgetInfo) -> Text:
    from rich.text import Text

    parts = [budget.used / budget.max, budget.reserved / budget.max] if budget.max else [1.0, 0.0]
    full = round(min(parts[0], 1) * _BAR)
    held = min(round(parts[1] * _BAR), _BAR - full)
    bar = f"[{'#' * full}{'+' * held}{' ' * (_BAR - full - held)}]"
    style = "red" if not budget.left else "yellow" if sum(parts) >= _NEAR else ""
    whose = f" {budget.key}" if budget.key else ""
    window = f" {_window(budget.window)}" if budget.window else ""
    line = Text(f"{budget.budget}{whose}{window}\n", "bold")
    words = _WORDS.get(budget.counts, ("", ""))[budget.max != 1]
    amounts = f"{_figure(budget, budget.used)} of {_figure(budget, budget.max)}{words} used"
    if budget.reserved:
        amounts += f", {_figure(budget, budget.reserved)} reserved by {budget.runs} run{'s' * (budget.runs != 1)}"
    amounts += f", {_figure(budget, budget.left)} left"
    again = f"; again {budget.resets_at:%Y-%m-%d %H:%M} UTC" if budget.resets_at is not None else ""
    return line.append(f"  {bar} {amounts}{again}", style)


def _window(window: str) -> str:
    return window if not window.isdigit() else f"in {took(int(window))}"


def _figure(budget: BudgetInfo, figure: float) -> str:
    """An amount as people read it."""
    if budget.counts == "cost_usd":
        return dollars(figure)
    if budget.counts == "duration_ms":
        return took(round(figure))
    return f"{figure:,g}"
