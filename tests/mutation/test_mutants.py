"""The mutation tool: what it changes, where it stops, and that a mutant is noticed in its arena."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.areas import AREAS, QUICK, ROOT, area_of_modules, modules_of
from tests.mutation.arena import CONTAINED, Arena, can_contain
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.trials import Trials

needs_namespaces = pytest.mark.skipif(not can_contain(), reason="needs Linux and `unshare` without privileges")
MODULES = ("policies/monitor/usage.py", "policies/events/run_context.py")
TESTS_OF_PRICES = (
    "tests/policies/monitor/test_limit_checker.py::test_the_users_table_prices_tokens_with_cached_and_reasoning_rates",
    "tests/policies/monitor/test_limit_checker.py::test_an_unknown_price_skips_the_limit_with_a_warning_or_denies",
)
PROGRAM = """
import os, signal
from tests.mutation.container import contained
def work():
    {work}
    os._exit(0)
print(contained(work, limit_s=1, scratch={scratch!r}))
"""


def test_every_module_of_an_area_is_there_and_so_are_its_tests() -> None:
    """A pattern without matches would silently omit something."""
    missing = [pattern for area in AREAS.values() for pattern in area if not list(ROOT.glob(pattern))]
    missing += [test for test in QUICK if test[0] != "-" and not (ROOT / test).exists()]

    assert missing == []
    assert set(area_of_modules().values()) == set(AREAS)
    assert all(modules_of(area) for area in AREAS)


@needs_namespaces
def test_mutants_are_noticed_one_after_another_and_none_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In existing functions and, for a single constant, in a module imported again."""
    anew: list[Mutant] = []
    cold = Trials._cold

    def noted(self: Trials, mutant: Mutant) -> Any:
        anew.append(mutant)
        return cold(self, mutant)

    monkeypatch.setattr(Trials, "_cold", noted)
    made = {(each.was, each.now): each for name in MODULES for each in mutants(name, (ROOT / name).read_text())}
    trials = Trials(Arena(tmp_path), None, tests=TESTS_OF_PRICES)
    try:
        noticed = trials.answer(next(made[each] for each in made if each[1].endswith("* 1000000")))
        harmless = trials.answer(made["1000", "1001"])
        at_import = trials.answer(made["'cost_usd'", "'cost_usd_'"])
        failing = trials.failing(TESTS_OF_PRICES)
    finally:
        trials.close()

    assert (noticed.fate, noticed.by) == ("killed", TESTS_OF_PRICES[0])
    assert (harmless.fate, at_import.fate) == ("survived", "killed")
    assert anew == [made["'cost_usd'", "'cost_usd_'"]]
    assert failing == []


@needs_namespaces
@pytest.mark.parametrize(
    ("work", "code"),
    [("os._exit(7)", "7"), ("os.fork() or signal.pause(); os.kill(-1, 9)", "0"), ("signal.pause()", "None")],
)
def test_what_a_mutant_does_to_processes_stays_in_its_namespace(work: str, code: str, tmp_path: Path) -> None:
    """It may end every process that it sees, which are its own, or never end."""
    program = PROGRAM.format(work=work, scratch=str(tmp_path))

    ended = subprocess.run([*CONTAINED, sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)

    assert ended.stdout == f"{code}\n", ended.stderr
