"""The page on policies leaves no kind of rule out."""

from __future__ import annotations

from page_blocks import ROOT

from proctor.policies.rules import RULES

PAGE = (ROOT / "docs" / "policies" / "index.md").read_text()


def test_the_page_has_every_family() -> None:
    """A family that is not in the table is not documented."""
    missing = [name for name in RULES if f"`{name}`" not in PAGE and name != "max_calls"]

    assert missing == []
