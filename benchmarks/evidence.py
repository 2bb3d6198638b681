"""Everything that is claimed with figures, run again: `python -m benchmarks.evidence [NAME]... [--sessions FOLDER]`.

Each program rewrites the tables of its page in `docs/evidence`, with the date and the machine in words, and says
which lines are others than before. What a program lacks is said, and its page stays as it is.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from . import policies
from .log import circumstances

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


PROGRAMS: dict[str, Program] = {
    "policies": Program(PAGES / "policies.md", "what policies prevent and disturb on recorded sessions", _policies),
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
    return parser


if __name__ == "__main__":
    sys.exit(main())
