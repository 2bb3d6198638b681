"""The command: which benchmarks to run, and where their figures go."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from .log import circumstances, noted
from .rows import Row, Size
from .table import on_terminal, rewritten

NAMES = (
    "judging",
    "history",
    "engines",
    "stream",
    "postgres",
    "memory",
    "starts",
    "gate",
    "redaction",
    "subscribers",
    "deadline",
    "startup",
    "lists",
    "hook",
    "telemetry",
    "disk",
    "fleet",
    "prove",
)
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 when a benchmark could not be run."""
    options = _parser().parse_args(arguments)
    names = options.names or NAMES
    results: dict[str, list[Row]] = {}
    failures: dict[str, str] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            results[name] = _benchmark(name)(Size(quick=options.quick))
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
    if options.json:
        print(msgspec.json.encode(results).decode())
    else:
        print(on_terminal(results))
    for name, message in failures.items():
        print(f"{name} could not be run: {message}", file=sys.stderr)
    if not options.quick:
        noted(results)
        _document(results)
    return 1 if failures else 0


def _document(results: Mapping[str, list[Row]]) -> None:
    page = PAGE.read_text()
    for name, rows in results.items():
        page = rewritten(page, name, rows, circumstances())
    PAGE.write_text(page)
    sizing = PAGE.parent / "operate" / "sizing.md"
    sizing.write_text(importlib.import_module("docs.page_facts").written(sizing))
    if set(results) == set(NAMES):
        importlib.import_module(".plots", __package__).draw(PAGE.parent)


def _benchmark(name: str) -> Callable[[Size], list[Row]]:
    run: Callable[[Size], list[Row]] = importlib.import_module(f".{name}", __package__).run
    return run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what proctor costs.")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="a few rounds: shows that it works, measures nothing")
    parser.add_argument("--json", action="store_true", help="the rows as JSON, by benchmark")
    return parser
