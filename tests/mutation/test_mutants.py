"""The tool that makes mutants: what it changes, where it stops, and that a mutant is noticed in its arena."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.areas import AREAS, OWN_PROCESSES, QUICK, ROOT, area_of_modules, modules_of
from tests.mutation.arena import CONTAINED, Arena, can_contain
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.patching import changed_code, functions_below, put
from tests.mutation.results import Result, page_with
from tests.mutation.trials import Trials

needs_namespaces = pytest.mark.skipif(not can_contain(), reason="needs Linux and `unshare` without privileges")
MODULES = ("policies/monitor/usage.py", "policies/events/run_context.py")
TESTS_OF_PRICES = (
    "tests/policies/test_limits.py::test_the_users_table_prices_tokens_with_cached_and_reasoning_rates",
    "tests/policies/test_limits.py::test_an_unknown_price_skips_the_limit_and_says_so_or_refuses",
)
PROGRAM = """
import os, signal
from tests.mutation.container import contained
def work():
    {work}
    os._exit(0)
print(contained(work, limit_s=1, scratch={scratch!r}))
"""
TEXT = '''
from x import y
NAMES: TypeAlias = "A | B"
def f(a: "B", b: int = 1) -> str:
    """A docstring."""
    assert a, "never"
    if a and b > 0:
        return "deny"
    call(f"{a + 1} of them", "for people to read")
'''


def test_what_a_module_does_is_changed_and_what_it_says_is_not() -> None:
    """No docstring, annotation, alias, assertion, or text for people. Each is one change, with a name of its own."""
    made = list(mutants("m.py", TEXT))
    texts = {mutant.text() for mutant in made}

    assert len({mutant.name for mutant in made}) == len(texts) == len(made)
    for text in texts:
        compile(text, "m.py", "exec")
    assert {(mutant.was, mutant.now) for mutant in made} == {
        ("1", "2"),
        ("if a and b > 0", "if not (a and b > 0)"),
        ("if a and b > 0", "pass"),
        ("a and b > 0", "a or b > 0"),
        ("a and b > 0", "a"),
        ("a and b > 0", "b > 0"),
        ("b > 0", "b >= 0"),
        ("0", "1"),
        ("return 'deny'", "return None"),
        ("'deny'", "'deny_'"),
        ("call(f'{a + 1} of them', 'for people to read')", "pass"),
    }


def test_every_module_of_an_area_is_there_and_so_are_its_tests() -> None:
    """A pattern that matches nothing would leave something out unseen."""
    missing = [pattern for area in AREAS.values() for pattern in area if not list(ROOT.glob(pattern))]
    missing += [test for test in QUICK if test[0] != "-" and not (ROOT / test).exists()]

    assert missing == []
    assert set(area_of_modules().values()) == set(AREAS)
    assert all(modules_of(area) for area in AREAS)


def test_a_function_that_exists_takes_a_mutant_in_and_what_runs_at_import_does_not() -> None:
    """A closure made before, too; a default is of the import."""
    text = "def make(limit=1):\n    def inside(n):\n        return n > limit\n    return inside\nmade = make()\n"
    space: dict[str, Any] = {}
    exec(compile(text, "m.py", "exec"), space)
    by_change = {(each.was, each.now): each for each in mutants("m.py", text)}
    codes = changed_code(*by_change["n > limit", "n >= limit"].trees(), "m.py")

    assert codes is not None
    assert put(codes, functions_below("m.py"))
    assert (space["made"](1), space["make"](2)(2)) == (True, True)
    assert changed_code(*by_change["1", "2"].trees(), "m.py") is None


def test_the_page_has_counts_by_area_and_the_share_that_was_noticed() -> None:
    """What is hung was noticed; what is known to change nothing is not counted."""
    results = [Result("gate", f"m{n}", "killed") for n in range(8)]
    results += [Result("gate", "m8", "hung"), Result("gate", "m9", "survived")]

    page = page_with("a\n<!-- results -->\nold\n<!-- end of results -->\nb\n", results, {"m9": "why"}, "2026-01-02")

    assert "| gate | 10 | 8 | 1 | 1 | 0 | 100.0 % |" in page
    assert "2026-01-02" in page
    assert "old" not in page


@needs_namespaces
def test_mutants_are_noticed_one_after_another_and_none_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In functions that exist and, for a constant alone, in a module imported anew."""
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
def test_a_mutant_of_what_runs_in_a_process_of_its_own_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that the test starts imports it, also one that heeds no variables."""
    name, test = "adapters/kit/guardian.py", "tests/adapters/agents/test_shell.py"
    monkeypatch.setitem(OWN_PROCESSES, "guardian", (test,))
    made = {(each.was, each.now): each for each in mutants(name, (ROOT / name).read_text())}
    trials = Trials(Arena(tmp_path), None, tests=TESTS_OF_PRICES)
    try:
        answer = trials.answer(made["if __name__ == '__main__'", "pass"])
    finally:
        trials.close()

    assert (answer.fate, answer.by.partition("::")[0]) == ("killed", test)


@needs_namespaces
@pytest.mark.parametrize(
    ("work", "code"),
    [("os._exit(7)", "7"), ("os.fork() or signal.pause(); os.kill(-1, 9)", "0"), ("signal.pause()", "None")],
)
def test_what_a_mutant_does_to_processes_stays_in_its_namespace(work: str, code: str, tmp_path: Path) -> None:
    """It may end all that it sees, which is what it started, or never end."""
    program = PROGRAM.format(work=work, scratch=str(tmp_path))

    ended = subprocess.run([*CONTAINED, sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)

    assert ended.stdout == f"{code}\n", ended.stderr
