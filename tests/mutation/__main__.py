"""Run mutants, and list those that no test noticed.

python -m tests.mutation --minutes 10                  # of all areas, continuing where it stopped
python -m tests.mutation gate limits --minutes 5       # of two
python -m tests.mutation --again --seconds 60          # the survivors, under more tests
python -m tests.mutation stores --under tests/adapters/stores   # of one, under these tests
python -m tests.mutation --show 'policies/rules/count.py ...'   # one mutant, as a diff
"""

import argparse
import ast
import difflib
import random
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

from .areas import AREAS, QUICK, ROOT, area_of_modules
from .arena import Arena, can_contain
from .mutants import Mutant, mutants
from .results import PAGE, RESULTS, Result, equivalent, page_with, read_results, write_results
from .trials import Trials, reach_of


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
    found = _in_turn(found, owners, random.Random(given.seed))
    survived = {n for n, r in results.items() if r.fate == "survived" and n not in same}
    chosen = [each for each in found if given.only in each.name]
    chosen = [each for each in chosen if (each.name in survived if given.again else each.name not in results)]
    with tempfile.TemporaryDirectory(prefix="proctor-mutants-") as folder:
        arena = Arena(Path(folder))
        tests = given.under or QUICK
        trials = Trials(arena, reach_of(arena, tests), tests=tests, seconds=given.seconds)
        for each in found:
            if each.name in results and results[each.name].by:
                trials.learn(each, results[each.name].by)
        last = time.monotonic() + given.minutes * 60
        for mutant in chosen:
            if time.monotonic() > last:
                break
            answer = trials.answer(mutant)
            results[mutant.name] = Result(owners[mutant.file], mutant.name, answer.fate, answer.by)
            write_results(results.values(), given.results)
            if answer.fate == "survived" and mutant.name not in same:
                print(f"SURVIVED {mutant.file}:{mutant.line} {mutant.name}", flush=True)
        wrong = trials.failing({each.by for each in results.values() if each.fate == "killed"})
        results = {name: each for name, each in results.items() if each.by not in wrong}
        trials.close()
        for test in wrong:
            print(f"FAILS WITHOUT A MUTANT {test}")
        write_results(results.values(), given.results)
    if given.results == RESULTS:
        PAGE.write_text(page_with(PAGE.read_text(), results.values(), same, f"{date.today():%Y-%m-%d}"))
    left = [n for n, r in results.items() if r.fate == "survived" and n not in same]
    print(f"{len(results)} of {len(found)} run, {len(left)} survived")
    return 1 if left else 0


def _mutants(module: str) -> list[Mutant]:
    return list(mutants(module, (ROOT / module).read_text()))


def _in_turn(found: list[Mutant], owners: dict[str, str], order: random.Random) -> list[Mutant]:
    """One of each area in turn, drawn at random: any number of them is a sample of every area."""
    order.shuffle(found)
    drawn: Counter[str] = Counter()
    turns: dict[str, int] = {}
    for each in found:
        area = owners[each.file]
        turns[each.name] = drawn[area]
        drawn[area] += 1
    return sorted(found, key=lambda each: turns[each.name])


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
    parser.add_argument("--again", action="store_true", help="those that survived")
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name contains this")
    parser.add_argument("--under", metavar="PATH", nargs="+", help="under these tests, those that reach it")
    parser.add_argument("--seconds", type=float, default=12, help="of tests that reach it, for each mutant")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--show", metavar="NAME", help="show the mutants whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
