"""What pages say of the program is what the program says today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_blocks import ROOT, blocks, name_of
from page_facts import pages, written

from proctor.adapters.agents.catalog import ADAPTERS
from proctor.policies import decode_event
from proctor.policies.events import EVENT_TYPES

DOCS = ROOT / "docs"
AGENTS = {"function": "loop"}
"""Pages whose names are not those of their adapters."""


@pytest.mark.parametrize("page", list(pages()), ids=name_of)
def test_the_facts_of_a_page_are_todays(page: Path) -> None:
    """If not: python -m docs.page_facts."""
    assert page.read_text(encoding="utf-8") == written(page)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_a_page_with_its_facts(adapter: str) -> None:
    """Its options; what each can do is in the matrix."""
    page = (DOCS / "agents" / f"{AGENTS.get(adapter, adapter)}.md").read_text()

    assert f"<!-- facts: options {adapter} -->" in page


def test_every_event_has_an_example_that_is_one() -> None:
    """Each is read back as its type."""
    examples = [block.text for block in blocks(DOCS / "reference" / "events.md") if block.kind == "json"]

    assert [json.loads(text)["type"] for text in examples] == list(EVENT_TYPES)
    assert [decode_event(text).type for text in examples] == list(EVENT_TYPES)


def test_every_field_of_an_event_is_explained() -> None:
    """An entry whose meaning is empty helps nobody."""
    rows = [line for line in (DOCS / "reference" / "events.md").read_text().splitlines() if line.startswith("- `")]

    assert [row for row in rows if not row.endswith((".", "`"))] == []
