"""All long runs, by one command; each continues where it stopped.

python -m tests.fuzz                        # lists the long runs and their results
python -m tests.fuzz commands --shares 100  # a hundred more shares of one
python -m tests.fuzz --minutes 10           # ten minutes of each
"""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from multiprocessing import Pool
from pathlib import Path

from .ledger import PAGE, RESULTS, Result, Share, page_with, read_results, write_results
from .runs import RUNS


def main() -> int:
    """Run them; the exit code is 1 if anything was found."""
    given = _arguments()
    results = read_results(given.results)
    found = False
    for name in given.runs or list(RUNS):
        result = results.setdefault(name, Result(seed=given.seed or 1))
        if given.seed not in (None, result.seed):
            result = results[name] = Result(seed=given.seed)
        before = len(result.found)
        for share in _shares(name, result, given):
            result.add(share)
            write_results(results, given.results)
            for text in share.found:
                print(f"FOUND {name}: {text}", flush=True)
        print(f"{name}: {result}", flush=True)
        found = found or len(result.found) > before
    if given.results == RESULTS:
        PAGE.write_text(page_with(PAGE.read_text(), results))
    return 1 if found else 0


def _shares(name: str, result: Result, given: argparse.Namespace) -> Iterator[Share]:
    """The next shares, in order, until enough are done or the time is up."""
    last = time.monotonic() + given.minutes * 60 if given.minutes else None
    numbers = count(result.shares)
    run = partial(RUNS[name].share, result.seed)
    with Pool(given.workers) as pool:
        done = 0
        while (last is None or time.monotonic() < last) and (last is not None or done < given.shares):
            several = given.workers if last is not None else min(10, given.shares - done)
            yield from pool.imap(run, [next(numbers) for _ in range(several)])
            done += several
        pool.close()
        pool.join()  # each process removes what it has kept


def _arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {name}: {run.does}" for name, run in RUNS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=f"Long runs of generated input:\n{listed}\n\nSo far:\n"
        + "\n".join(f"  {name}: {result}" for name, result in read_results().items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="all of them if none is named")
    parser.add_argument("--shares", type=int, default=10, help="how many more shares of each")
    parser.add_argument("--minutes", type=float, default=0, help="how long each takes, instead of a number of shares")
    parser.add_argument("--seed", type=int, help="another seed than so far begins anew")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
