"""`python -m benchmarks [--quick] [--json] [NAME]...`: what proctor costs, all of it or by name."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from .figures import Row, Size, as_table, noted, on_terminal, with_tables
from .timing import ROOT

BENCHMARKS: Final = {
    "judging": "judging",
    "history": "judging",
    "engines": "engines",
    "stream": "stores",
    "postgres": "stores",
    "memory": "runs",
    "starts": "runs",
    "gate": "events",
    "redaction": "events",
    "subscribers": "events",
    "deadline": "runs",
    "startup": "processes",
    "lists": "processes",
    "hook": "processes",
    "telemetry": "processes",
    "disk": "stores",
    "fleet": "fleet",
    "prove": "prove",
}
"""The file of each; in it is a function of its name."""
PAGE: Final = ROOT / "docs" / "benchmarks.md"


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 when a benchmark could not be run."""
    options = _parser().parse_args(arguments)
    results: dict[str, list[Row]] = {}
    failures: dict[str, str] = {}
    for name in options.names or BENCHMARKS:
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
    PAGE.write_text(with_tables(PAGE.read_text(), {name: as_table(rows) for name, rows in results.items()}))
    sizing = PAGE.parent / "operate" / "sizing.md"
    sizing.write_text(importlib.import_module("docs.page_facts").written(sizing))


def _benchmark(name: str) -> Callable[[Size], list[Row]]:
    run: Callable[[Size], list[Row]] = getattr(importlib.import_module(f".{BENCHMARKS[name]}", __package__), name)
    return run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what proctor costs.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a few rounds: shows that it works, measures nothing")
    parser.add_argument("--json", action="store_true", help="the rows as JSON, by benchmark")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
