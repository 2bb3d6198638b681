"""Everything that is claimed with figures, run again: `python -m benchmarks.evidence [NAME]... [--sessions FOLDER]`.

Each program rewrites the tables of its page in `docs/evidence`, with the date and the machine in words, and says
which lines are others than before. What a program lacks is said, and its page stays as it is.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import policies
from .command import PAGE
from .log import circumstances
from .table import ratios

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "evidence"
SESSIONS = "PROCTOR_SESSIONS"
"""The environment variable that names the folder of recorded sessions."""


class MissingError(Exception):
    """A part that a program needs is not here; the message says how to get it."""


class Program(NamedTuple):
    """What shows something: the page it writes, what it needs, and its tables by name."""

    page: Path
    shows: str
    tables: Callable[[argparse.Namespace], Mapping[str, str]]


def _policies(given: argparse.Namespace) -> Mapping[str, str]:
    if given.sessions is None or not given.sessions.is_dir():
        raise MissingError(f"needs the recorded sessions: --sessions FOLDER or {SESSIONS} (the page says which)")
    return policies.measured(given.sessions)


def _soak(given: argparse.Namespace) -> Mapping[str, str]:
    sizes = ["--sessions", str(given.soak_sessions), "--minutes", str(given.soak_minutes)]
    seen = []
    for store in ("sqlite", "postgres"):
        command = [sys.executable, "-m", "tests.fuzz.load", "--store", store, *sizes]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=False)
        if not done.stdout:
            raise MissingError(f"`{' '.join(command[1:])}` failed; it needs the development requirements")
        seen.append(json.loads(done.stdout))
    return soaked(seen)


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
    plots = importlib.import_module(".plots", __package__)
    return {"curves": plots.table(plots.draw(ROOT / "docs")), "ratios": ratios(PAGE.read_text())}


PROGRAMS: dict[str, Program] = {
    "policies": Program(PAGES / "policies.md", "what policies prevent and disturb on recorded sessions", _policies),
    "ratios": Program(PAGES / "ratios.md", "how costs grow, and every ratio that was measured", _ratios),
    "soak": Program(PAGES / "soak.md", "that sessions leave nothing behind", _soak),
}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when a program could not be run."""
    given = _parser().parse_args(arguments)
    failed = False
    for name in given.names or PROGRAMS:
        program = PROGRAMS[name]
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            tables = program.tables(given)
        except MissingError as missing:
            print(f"{name} was not run: {missing}")
            failed = True
            continue
        old = program.page.read_text()
        new = with_tables(old, {"when": circumstances(), **tables})
        print("\n".join(changes(old, new)) or f"{name}: as on the page")
        program.page.write_text(new)
    return 1 if failed else 0


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables replaced, each between `<!-- name -->` and `<!-- end of name -->`.

    Raises ValueError for a table that the page has no place for.
    """
    for name, table in tables.items():
        between = re.compile(rf"<!-- {re.escape(name)} -->\n.*?<!-- end of {re.escape(name)} -->", re.DOTALL)
        text = f"<!-- {name} -->\n{table}\n\n<!-- end of {name} -->"
        page, places = between.subn(lambda _, text=text: text, page)  # type: ignore[misc]
        if places != 1:
            raise ValueError(f"the page has {places} places for the table `{name}`")
    return page


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
    parser.add_argument("--soak-sessions", type=int, default=10_000, help="how many sessions on each store")
    parser.add_argument("--soak-minutes", type=float, default=60.0, help="over how many minutes they are spread")
    return parser


if __name__ == "__main__":
    sys.exit(main())
