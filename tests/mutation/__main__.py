"""Run mutants, and say which of them no test noticed.

python -m tests.mutation --minutes 10                  # of all areas, going on from where it stopped
python -m tests.mutation gate limits --minutes 5       # of two
python -m tests.mutation --again                       # those that survived, under all tests
python -m tests.mutation --show 'policies/rules/counting/count.py ...'   # one mutant, as a difference
"""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import sys
import tempfile
import time
from pathlib import Path

from .areas import AREAS, ROOT, area_of_modules
from .arena import Arena, Fate, can_contain, seconds_of
from .mutants import Mutant, mutants
from .results import PAGE, RESULTS, Result, equivalent, page_with, read_results, write_results

QUICK = 3
"""Lists of tests that a mutant meets at first; most are noticed by them in seconds."""


def main() -> int:
    """Run them; the exit code is 1 if one survived that is not known to change nothing."""
    given = _arguments()
    owners = area_of_modules()
    areas = given.areas or list(AREAS)
    found = [each for module, area in owners.items() if area in areas for each in _mutants(module)]
    if given.show:
        return _show(found, given.show)
    if not can_contain():
        sys.exit("needs Linux and `unshare`: a mutant of the process tree ends whatever it can see")
    present = {each.name for each in found}
    results = {n: r for n, r in read_results(given.results).items() if n in present or r.area not in areas}
    same = equivalent()
    random.Random(given.seed).shuffle(found)
    survived = {n for n, r in results.items() if r.fate == "survived" and n not in same}
    chosen = [each for each in found if (each.name in survived if given.again else each.name not in results)]
    with tempfile.TemporaryDirectory(prefix="proctor-mutants-") as folder:
        runner = _Runner(Arena(Path(folder)), owners, quick=None if given.again else QUICK)
        last = time.monotonic() + given.minutes * 60
        for mutant in chosen:
            if time.monotonic() > last:
                break
            fate = runner.fate(mutant)
            results[mutant.name] = Result(owners[mutant.file], mutant.name, fate)
            write_results(results.values(), given.results)
            if fate == "survived" and mutant.name not in same:
                print(f"SURVIVED {mutant.file}:{mutant.line} {mutant.name}", flush=True)
    if given.results == RESULTS:
        PAGE.write_text(page_with(PAGE.read_text(), results.values()))
    left = [n for n, r in results.items() if r.fate == "survived" and n not in same]
    print(f"{len(results)} of {len(found)} run, {len(left)} survived")
    return 1 if left else 0


class _Runner:
    """Runs mutants under the tests of their areas, until some notice: under the `quick` lists of them, or all."""

    def __init__(self, arena: Arena, owners: dict[str, str], *, quick: int | None) -> None:
        self._quick = quick
        self._arena = arena
        self._owners = owners
        self._limits: dict[tuple[str, ...], float] = {}

    def fate(self, mutant: Mutant) -> Fate:
        area = AREAS[self._owners[mutant.file]]
        for tests in area.tests[: self._quick]:
            if tests not in self._limits:
                self._limits[tests] = 20 + 2 * seconds_of(self._arena, tests)
            fate = self._arena.fate(mutant.file, mutant.text(), tests, self._limits[tests])
            if fate != "survived":
                return fate
        return "survived"


def _mutants(module: str) -> list[Mutant]:
    return list(mutants(module, (ROOT / module).read_text()))


def _show(found: list[Mutant], name: str) -> int:
    for each in found:
        if name in each.name:
            print(each.name)
            text = ast.unparse(ast.parse((ROOT / each.file).read_text()))
            sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), each.text().splitlines(True), n=2))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.split("\n")[0])
    parser.add_argument("areas", nargs="*", choices=[*AREAS, []], help="all of them if none is named")
    parser.add_argument("--minutes", type=float, default=10, help="no mutant is begun after that")
    parser.add_argument("--seed", type=int, default=1, help="the order in which they are taken")
    parser.add_argument("--again", action="store_true", help="those that survived, under all tests of their areas")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--show", metavar="NAME", help="show the mutants whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
