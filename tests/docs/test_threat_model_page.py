"""The threat model names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)`", PAGE)))
ATTACKS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "attacks").rglob("test_*.py"))


@pytest.mark.parametrize("path", TESTS)
def test_a_test_of_the_page_is_there(path: str) -> None:
    """A file with tests, or a folder of cases."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", ATTACKS)
def test_every_attack_is_on_the_page(path: str) -> None:
    """What is tried is also told."""
    assert path in TESTS
