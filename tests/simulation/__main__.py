"""Run thousands of simulations, repeat one, or put back an old fault.

python -m tests.simulation --seeds 1000                 # the seeds 0 to 999
python -m tests.simulation --seeds 1000 --first 5000
python -m tests.simulation --seed 533                   # repeat one: its plan and its event log
python -m tests.simulation --team --seeds 1000          # fallbacks and child runs
python -m tests.simulation --plan plan.json             # a plan that was written or reduced by hand
python -m tests.simulation --seeds 500 --put-back "an append is stored twice"
"""

import argparse
import gc
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import structlog

from .old_faults import OF_TEAMS, OLD_FAULTS
from .plans import Plan, drawn, smaller
from .team_plans import drawn_team
from .world import simulate


def main() -> int:
    """Simulate; the exit code is 1 if anything was found."""
    given = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    draw = drawn_team if given.team or given.put_back in OF_TEAMS else drawn
    if given.plan is not None:
        plans = iter([msgspec.json.decode(given.plan.read_bytes(), type=Plan)])
    elif given.seed is not None:
        plans = iter([draw(given.seed)])
    else:
        plans = (draw(seed) for seed in range(given.first, given.first + given.seeds))
    done = 0
    with OLD_FAULTS[given.put_back]() if given.put_back else nullcontext():
        for plan in plans:
            done += 1
            if done == 2:
                gc.freeze()  # keep the imports of the first, so that they are not scanned again
            if sys.stderr.isatty() and done % 20 == 0:
                print(f"\r{done} simulations", end="", file=sys.stderr, flush=True)
            if found := simulate(plan):
                print(f"FOUND after {done}, seed {plan.seed}: {found[0]}", flush=True)
                if not given.whole:
                    print(as_program(smaller(plan, lambda less: found[0] in simulate(less))))
                return 1
    print(f"{done} simulations, nothing found")
    return 0


def as_program(plan: Plan) -> str:
    """A program that repeats a plan."""
    written = msgspec.json.format(msgspec.json.encode(plan), indent=1).decode()
    return f"python -m tests.simulation --plan /dev/stdin <<'EOF'\n{written}\nEOF"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--team", action="store_true", help="fallbacks, and agents that start runs")
    parser.add_argument("--plan", type=Path, help="a plan as JSON")
    parser.add_argument("--put-back", choices=list(OLD_FAULTS), help="an old fault, to see that it is found")
    parser.add_argument("--whole", action="store_true", help="do not make the plan smaller that fails")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
