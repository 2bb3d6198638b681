"""The contributors page on the security model names tests that are there, and every attack."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-tests.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)`", PAGE)))
ATTACKS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "attacks").rglob("test_*.py"))


def test_the_tests_of_the_page_are_there() -> None:
    """Files with tests, or folders of cases."""
    assert [path for path in TESTS if not (ROOT / path).exists()] == []


def test_every_attack_is_on_the_page() -> None:
    """What is tried is also told."""
    assert set(ATTACKS) - set(TESTS) == set()
