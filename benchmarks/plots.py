"""Plots for the documentation: what an event, a start or an append costs, against what could make it cost more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from . import events, judging, processes, runs, stores

Curves = Mapping[str, Sequence[tuple[int, float]]]


class Plot(NamedTuple):
    """One picture: its curves, and what its axes are."""

    curves: Callable[[], Curves]
    across: str
    up: str = "microseconds"


PLOTS = {
    "history": Plot(judging.by_history, "earlier calls in the session"),
    "rules": Plot(judging.by_rules, "rules in the policy, two of which name the tool"),
    "runs": Plot(lambda: {"a start": runs.by_running()}, "idle runs beside it", "milliseconds of processor time"),
    "stores": Plot(stores.by_batch, "events in one append", "microseconds an event"),
    "subscribers": Plot(
        lambda: {"an event": list(events.by_subscribers().items())[1:]}, "subscribers that follow its run"
    ),
    "hooks": Plot(processes.by_calls, "earlier calls in the session", "milliseconds of processor time"),
}


def draw(folder: Path, names: Sequence[str] = tuple(PLOTS)) -> dict[str, Curves]:
    """Measure the curves, write them as SVG, and give them. Needs matplotlib, which the extra `dev` brings."""
    pictures = folder / "benchmarks"
    pictures.mkdir(exist_ok=True)
    drawn = {name: PLOTS[name].curves() for name in names}
    for name, curves in drawn.items():
        _plot(pictures / f"{name}.svg", curves, PLOTS[name])
    return drawn


def table(drawn: Mapping[str, Curves]) -> str:
    """Each curve as a row: its first point, its last, and how many times the first that is."""
    lines = ["| curve | at first | at last | last / first |", "|---|---|---|---:|"]
    for name, curves in drawn.items():
        for curve, points in curves.items():
            (first, least), (last, most) = points[0], points[-1]
            lines.append(f"| {name}: {curve} | {first:,} {PLOTS[name].across} | {last:,} | {most / least:.2f} x |")
    return "\n".join(lines)


def _plot(path: Path, curves: Curves, plot: Plot) -> None:
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "proctor"
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=(7, 4), layout="constrained")
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel=plot.across, ylabel=plot.up)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
