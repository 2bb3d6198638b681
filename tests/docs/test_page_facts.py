"""What pages say of the program is what the program says today."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from page_blocks import ROOT, blocks, name_of
from page_facts import pages, written
from page_facts.errors import MEANINGS
from page_facts.followed import shortest

from proctor.adapters.agents.catalog import ADAPTERS
from proctor.policies import decode_event
from proctor.policies.events import EVENT_TYPES
from proctor.policies.reading import tree
from proctor.policies.values import regexes
from proctor.supervisor.arguments import BOUNDS, RecordOptions
from proctor.supervisor.errors import ApprovalError, ApprovalErrorKind, StoreErrorKind
from proctor.supervisor.launch.history import TRANSCRIPT_BYTES
from proctor.supervisor.machine import run_state
from proctor.supervisor.run import journal
from proctor.supervisor.run.recovery import LEASE_S

DOCS = ROOT / "docs"
AGENTS = {"function": "loop", "replay": "scripted"}
"""Pages whose names are not those of their adapters."""

MIB = 1024 * 1024
IN_SENTENCES = [
    ("operate/event-log.md", f"| one event | about {run_state.MOST_BYTES // MIB} MiB;"),
    ("operate/event-log.md", f"| {BOUNDS.max_messages:,} and about {BOUNDS.max_message_bytes // MIB} MiB each for"),
    ("operate/event-log.md", f"| {BOUNDS.max_events:,} and about {BOUNDS.max_event_bytes // MIB} MiB (`max_events`"),
    ("operate/event-log.md", f"| the latest {journal.MOST:,} or {journal.MOST_BYTES // MIB} MiB; `events_before`"),
    ("operate/event-log.md", f"| {journal.CAPACITY:,} or {journal.CAPACITY_BYTES // MIB} MiB; then proctor reads"),
    ("operate/event-log.md", f"| a replayed conversation | the latest {TRANSCRIPT_BYTES // MIB} MiB |"),
    ("operate/runs.md", f"others after {LEASE_S:g} seconds without a heartbeat"),
    ("policies/conditions.md", f"can examine {regexes.WORK:,} bytes in all"),
    ("policies/conditions.md", f"matches longer than {regexes.VIEW:,} bytes"),
    ("policies/index.md", f"| {tree.MAX_TEXT:,} characters, {tree.MAX_VALUES:,} values, {tree.MAX_DEPTH} levels;"),
    ("policies/index.md", f"stand for {tree.MAX_BORROWED:,} values; regular expressions of {regexes.MOST_STEPS:,}"),
]
"""Figures within a sentence of a page, as the code has them."""


@pytest.mark.parametrize(("page", "sentence"), IN_SENTENCES)
def test_a_figure_in_a_sentence_is_that_of_the_code(page: str, sentence: str) -> None:
    """As what it counts changes, so does the page."""
    assert sentence in (DOCS / page).read_text(encoding="utf-8")


def test_the_defaults_that_options_describe_are_those_of_the_record() -> None:
    """The docstring of the options, where a caller reads them."""
    described = " ".join((RecordOptions.__doc__ or "").split())
    figures = re.findall(r"`?(max_\w+): .*?[Bb]y default ([\d,]+)( MiB)?\.", described)

    assert {name: int(figure.replace(",", "")) * (MIB if unit else 1) for name, figure, unit in figures} == {
        name: getattr(BOUNDS, name) for name in BOUNDS.__struct_fields__
    }


def test_every_kind_of_an_error_is_explained() -> None:
    """And no other: a store's on the page of errors, an approval's where its error is."""
    of_approvals = re.findall(r"`(\w+)`\s(?:\(|or\s)", ApprovalError.__doc__ or "")

    assert set(MEANINGS) == set(get_args(StoreErrorKind))
    assert sorted(of_approvals) == sorted(get_args(ApprovalErrorKind))


@pytest.mark.parametrize("page", list(pages()), ids=name_of)
def test_the_facts_of_a_page_are_todays(page: Path) -> None:
    """If not: python -m docs.page_facts."""
    assert page.read_text(encoding="utf-8") == written(page)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_a_page_with_its_facts(adapter: str) -> None:
    """Its options; what each can do is in the matrix."""
    page = (DOCS / "agents" / f"{AGENTS.get(adapter, adapter)}.md").read_text()

    assert f"<!-- facts: options {adapter} -->" in page


def test_every_event_has_a_section_with_an_example() -> None:
    """Of several types with the same fields, an example of one; each is read back as its type."""
    page = DOCS / "reference" / "events.md"
    sections = [re.findall(r"`(\w+)`", line) for line in page.read_text().splitlines() if line.startswith("## `")]
    examples = [block.text for block in blocks(page) if block.kind == "json"]

    assert [tag for section in sections for tag in section] == list(EVENT_TYPES)
    for text, section in zip(examples, sections, strict=True):
        assert decode_event(text).type == json.loads(text)["type"]
        assert decode_event(text).type in section


def test_every_field_of_an_event_is_explained() -> None:
    """An entry whose meaning is empty helps nobody."""
    rows = [line for line in (DOCS / "reference" / "events.md").read_text().splitlines() if line.startswith("- `")]

    assert [row for row in rows if not row.endswith((".", "`"))] == []


def test_a_call_and_an_event_can_be_followed() -> None:
    """Through at most 20 files and 60 calls from one to another, and through at most 12."""
    call, event = shortest().values()

    assert len(call.files) <= 20
    assert call.hops <= 60
    assert len(event.files) <= 12
