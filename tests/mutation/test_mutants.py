"""The tool that makes mutants: what it changes, where it stops, and that a mutant is noticed in its arena."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.areas import AREAS, ROOT, area_of_modules
from tests.mutation.arena import Arena, can_contain
from tests.mutation.mutants import mutants
from tests.mutation.results import PAGE, equivalent, page_with, read_results

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
    """No docstring, annotation, alias, assertion, or text for people."""
    changed = {(mutant.was, mutant.now) for mutant in mutants("m.py", TEXT)}

    assert changed == {
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


def test_each_mutant_is_one_change_of_the_module() -> None:
    """And their names differ."""
    made = list(mutants("m.py", TEXT))
    texts = {mutant.text() for mutant in made}

    assert len({mutant.name for mutant in made}) == len(texts) == len(made)
    for text in texts:
        compile(text, "m.py", "exec")


def test_every_module_of_an_area_is_there_and_so_are_its_tests() -> None:
    """A pattern that matches nothing would leave something out unseen."""
    missing = [pattern for area in AREAS.values() for pattern in area.files if not list(ROOT.glob(pattern))]
    missing += [
        test for area in AREAS.values() for tests in area.tests for test in tests if not (ROOT / test).exists()
    ]

    assert missing == []
    assert set(area_of_modules().values()) == set(AREAS)


def test_the_page_has_the_results() -> None:
    """`python -m tests.mutation` writes them."""
    page = PAGE.read_text()

    assert page_with(page, read_results().values()) == page


def test_what_is_called_equivalent_survived() -> None:
    """A reason for what a test notices would be wrong."""
    results = read_results()

    assert [name for name in equivalent() if name not in results or results[name].fate != "survived"] == []


@pytest.mark.skipif(not can_contain(), reason="needs Linux and `unshare` without privileges")
def test_a_mutant_is_noticed_and_the_product_is_as_it_was_after_it(tmp_path: Path) -> None:
    """A module without its one function, under its tests; then the same tests without the mutant; one without end."""
    arena = Arena(tmp_path)
    tests = ("tests/policies/test_ids.py",)
    module = "policies/stack/ids.py"
    broken = (ROOT / module).read_text() + "\nrule_ids = None\n"

    assert arena.fate(module, broken, tests, 60) == "killed"
    assert arena.passes(tests, 60)
    assert arena.fate(module, "while True: pass\n", tests, 2) == "hung"
