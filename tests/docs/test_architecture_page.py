"""The page on architecture names rooms that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`((?:policies|supervisor|adapters|tests)/[\w/.]*)`", PAGE)))


def test_the_page_names_rooms() -> None:
    """Otherwise the test below would hold nothing."""
    assert len(PATHS) > 20


@pytest.mark.parametrize("path", PATHS)
def test_a_room_of_the_page_is_there(path: str) -> None:
    """A file, or a folder."""
    place = ROOT / path

    assert place.is_dir() or place.is_file() or place.with_suffix(".py").is_file()
