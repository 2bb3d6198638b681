"""Everything that is claimed with figures, run again: `python -m benchmarks.evidence [NAME]... [--sessions FOLDER]`.

Each program rewrites the tables of its page in `docs/evidence`, with the date and the machine in words, and says
which lines are others than before. If a program lacks something or fails, that is said, its page stays as it is, and
the next one runs. `--quick` runs all of them on little, and writes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from . import policies, prompts, suggest
from .__main__ import PAGE
from .__main__ import main as benchmarks
from .figures import circumstances, ratios, with_tables
from .timing import ROOT

DOCS: Final = ROOT / "docs"
PAGES: Final = DOCS / "evidence"
SESSIONS: Final = "PROCTOR_SESSIONS"
"""The environment variable that names the folder of recorded sessions."""


class MissingError(Exception):
    """A part that a program needs is not here; the message says how to get it."""


class Program(NamedTuple):
    """What shows something: its page, in words what it shows, and its tables by name; None if it has written them."""

    page: Path
    shows: str
    tables: Callable[[argparse.Namespace], Mapping[str, str] | None]


def _benchmarks(given: argparse.Namespace) -> None:
    if benchmarks(["--quick"] if given.quick else []):
        raise MissingError("a benchmark could not be run, as is said above; those that could are on the page")


def _recorded(given: argparse.Namespace) -> Path:
    folder: Path | None = given.sessions
    if folder is None or not folder.is_dir():
        raise MissingError(f"needs the recorded sessions: --sessions FOLDER or {SESSIONS} (the page says which)")
    return folder


def _simulation(given: argparse.Namespace) -> Mapping[str, str]:
    """The seeds in processes of their own, and the first seed that finds each fault that is put back (quick: one)."""
    command = [sys.executable, "-m", "tests.simulation"]
    done = _printed([*command, "--seeds", str(given.seeds), "--first", str(given.first_seed), "--whole"])
    faults = importlib.import_module("tests.simulation.old_faults").OLD_FAULTS
    first = f"{given.first_seed:,} to {given.first_seed + given.seeds - 1:,}"
    rows = [f"| nothing | {first} | {done} |"]
    rows += [
        f"| {name} | 0 to 499 | {_printed([*command, '--seeds', '500', '--whole', '--put-back', name])} |"
        for name in list(faults)[: 1 if given.quick else None]
    ]
    return {"simulation": "\n".join(["| put back | seeds | |", "|---|---|---|", *rows])}


def _printed(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if not done.stdout:
        raise MissingError(f"`{' '.join(command[1:])}` failed; it needs the development requirements")
    return done.stdout.strip().replace("|", "\\|")


def _soak(given: argparse.Namespace) -> Mapping[str, str]:
    sizes = ["--sessions", str(given.soak_sessions), "--minutes", str(given.soak_minutes)]
    command = [sys.executable, "-m", "tests.fuzz.load", *sizes, "--store"]
    return soaked([json.loads(_printed([*command, store])) for store in ("sqlite", "postgres")])


def soaked(seen: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """The tables of the soak, from what `python -m tests.fuzz.load` has printed for each store."""
    stores = [{"sqlite": "SQLite", "postgres": "PostgreSQL"}[each["store"]] for each in seen]
    counts = seen[0]["counts"]
    rows: list[tuple[str, list[Any]]] = [
        ("minutes", [each["minutes"] for each in seen]),
        *((name, [f"{each['counts'].get(name, 0):,}" for each in seen]) for name in sorted(counts)),
        ("MiB after each tenth of the sessions", [" ".join(map(str, each["memory_mib"])) for each in seen]),
        *((f"{what}, before and after", [f"{each['before'][what]}, {each['after'][what]}" for each in seen])
          for what in seen[0]["before"]),
        ("found", ["; ".join(each["found"]) or "nothing" for each in seen]),
    ]  # fmt: skip
    lines = [f"| | {' | '.join(stores)} |", "|---" * (len(stores) + 1) + "|"]
    return {"soak": "\n".join([*lines, *(f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows)])}


def _ratios(given: argparse.Namespace) -> Mapping[str, str]:
    plots, events = (importlib.import_module(f".{name}", __package__) for name in ("plots", "events"))
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            curves, profile = plots.table(plots.draw(Path(folder), ["rules"])), events.profile(1.0, 200)
    else:
        curves, profile = plots.table(plots.draw(DOCS)), events.profile()
    return {"profile": profile, "curves": curves, "ratios": ratios(PAGE.read_text())}


def _suggest(given: argparse.Namespace) -> Mapping[str, str]:
    files = dict(list(suggest.FILES.items())[: 1 if given.quick else None])
    return {**suggest.tables(_recorded(given), files), "packs": prompts.table(_recorded(given))}


PROGRAMS: Final[dict[str, Program]] = {
    "policies": Program(
        PAGES / "policies.md",
        "what policies prevent and disturb on recorded sessions",
        lambda given: policies.measured(_recorded(given)),
    ),
    "suggest-and-packs": Program(
        PAGES / "suggest-and-packs.md",
        "what `suggest` and the packs ask about and let through on recorded sessions",
        _suggest,
    ),
    "simulation": Program(
        PAGES / "simulation.md", "that promises hold whatever breaks, and that faults are found", _simulation
    ),
    "benchmarks": Program(PAGE, "what proctor costs: `python -m benchmarks`", _benchmarks),
    "ratios": Program(PAGES / "ratios.md", "how costs grow, where the time goes, and every ratio", _ratios),
    "soak": Program(PAGES / "soak.md", "that sessions leave nothing behind", _soak),
}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when a program could not be run."""
    given = _parser().parse_args(arguments)
    if given.quick:
        given.seeds, given.soak_sessions, given.soak_minutes = 20, 40, 0.1
    failed = False
    for name in given.names or PROGRAMS:
        program = PROGRAMS[name]
        print(f"{name} ...", file=sys.stderr, flush=True)
        old, begun = program.page.read_text(), time.monotonic()
        try:
            tables = program.tables(given)
            new = (
                program.page.read_text() if tables is None else with_tables(old, {"when": circumstances(), **tables})
            )
        except Exception as error:
            kind = "" if isinstance(error, MissingError) else f"{type(error).__name__}: "
            print(f"{name} was not run: {kind}{error}", flush=True)
            failed = True
            continue
        took = f"{name}: {time.monotonic() - begun:,.0f} s"
        if given.quick:
            print(f"{took}, it runs", flush=True)
            continue
        program.page.write_text(new)
        changed = list(changes(old, new))
        print("\n".join([*changed, f"{took}, {'its page is changed' if changed else 'as on the page'}"]), flush=True)
    return 1 if failed else 0


def changes(old: str, new: str) -> Iterator[str]:
    """The lines of tables that are others than before, without the lines that say when."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    yield from (line for line in lines if re.match(r"[+-]\|", line))


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name}: {program.shows}" for name, program in PROGRAMS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=f"Run again what the pages of docs/evidence show:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", choices=[*PROGRAMS, []], metavar="NAME", help="all of them if none is named"
    )
    folder = os.environ.get(SESSIONS)
    parser.add_argument(
        "--sessions", type=Path, default=Path(folder) if folder else None, help=f"recorded sessions; or {SESSIONS}"
    )
    parser.add_argument("--quick", action="store_true", help="each on little: shows that it works, writes nothing")
    parser.add_argument("--seeds", type=int, default=20_000, help="how many simulations")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--soak-sessions", type=int, default=10_000, help="how many sessions on each store")
    parser.add_argument("--soak-minutes", type=float, default=60.0, help="over how many minutes they are spread")
    return parser


if __name__ == "__main__":
    sys.exit(main())
