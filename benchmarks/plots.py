"""Two plots for the documentation: the cost of an event against the session's history and the policy's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .history import by_history
from .judging import by_rules

Curves = Mapping[str, Sequence[tuple[int, float]]]


def draw(folder: Path) -> None:
    """Measure both curves and write them as SVG. Needs matplotlib, which the extra `dev` brings."""
    pictures = folder / "benchmarks"
    pictures.mkdir(exist_ok=True)
    _plot(pictures / "history.svg", by_history(), "earlier calls in the session")
    _plot(pictures / "rules.svg", by_rules(), "rules in the policy, two of which name the tool")


def _plot(path: Path, curves: Curves, across: str) -> None:
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "proctor"
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=(7, 4), layout="constrained")
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel="microseconds")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
