"""Every claim of the README and the security model is on the evidence page, with programs that exist."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.evidence import PROGRAMS
from tests.fuzz.runs import RUNS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECURITY = (ROOT / "docs" / "concepts" / "security.md").read_text()
PAGE = (ROOT / "docs" / "evidence" / "index.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (.*(?:tests/|python -m).*) \|$", PAGE.partition("## README")[2], re.MULTILINE)
CLAIMS = dict(ROWS)
SHOWN_BY = re.findall(r"`([^`]+)`", " ".join(CLAIMS.values()))
NO_CLAIM = ("What nothing stops", "More")
"""Sections without claims."""
PROMISES_NOTHING = (
    *("proctor stops an AI agent", "In a fresh clone", "With pip,", "explains this, a table", "One policy applies"),
    *("The quickstart", "Install the extra", "`pip install", "Install from the clone", "`proctor --help`"),
    "You can check both",
    *("What proctor stops, and what it can't", "It trusts only", "Assume that the model", "Each claim on this page"),
    *("Root, and anyone", "Two gaps remain", "can end the supervisor with SIGBUS", "aren't noticed"),
    *("the events from that commit on are lost", "edited an export", "prints for both stores"),
)  # fmt: skip
"""The other sentences, by their content: summaries, next steps, assumptions, exclusions."""
ATTACKS = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "attacks").rglob("test_*.py")}


def _sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _without_links(page: str) -> str:
    return re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\)", r"\1", page)


def _first_cells(section: str) -> list[str]:
    return re.findall(r"^\| (.+?) \|", section, re.MULTILINE)[1:]


def test_every_claim_of_the_readme_has_its_evidence() -> None:
    """The rows of what is stopped, the commands listed as evidence, and three sentences."""
    sections = _sections(README)
    commands = re.findall(r"^- .*?(?=\n)", sections["Evidence"], re.MULTILINE)
    named = [name for line in commands for name in re.findall(r"`proctor \w+`", line)]
    claims = [*_first_cells(sections["What it stops"]), *named]

    assert [claim for claim in claims if claim not in CLAIMS] == []
    for sentence in ("checks calls before they run", "asyncio and trio"):
        assert (sentence in README, sentence in CLAIMS) == (True, True)
    assert any(claim in README for claim in CLAIMS if claim.startswith("stores every event"))


def test_every_claim_of_the_security_model_has_its_evidence() -> None:
    """The rows of its tables."""
    sections = {name: text for name, text in _sections(SECURITY).items() if name not in NO_CLAIM}
    claims = [claim for text in sections.values() for claim in _first_cells(text)]

    assert [claim for claim in claims if claim not in CLAIMS] == []


def _sentences(page: str) -> Iterator[str]:
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for name, text in {"": page.partition("\n## ")[0], **_sections(page)}.items():
        if name not in NO_CLAIM:
            for line in re.findall(r"^(?![#|!]).*\w.*$", text, re.MULTILINE):
                yield from re.split(r"(?<=[.:]) (?=[A-Z`])", line.removeprefix("- "))


@pytest.mark.parametrize("page", [README, SECURITY], ids=["README", "security"])
def test_every_sentence_has_its_evidence_or_promises_nothing(page: str) -> None:
    """Each contains a claim of the evidence page; those without one are listed here."""
    parts = (*CLAIMS, *PROMISES_NOTHING)
    sentences = list(_sentences(_without_links(page)))

    assert [sentence for sentence in sentences if not any(text in sentence for text in parts)] == []
    assert len(sentences) > 20


def test_every_evidence_is_for_a_claim() -> None:
    """A removed claim is removed from the page."""
    pages = _without_links(README) + _without_links(SECURITY)

    assert [claim for claim in CLAIMS if claim not in pages] == []


def test_the_programs_of_the_page_exist() -> None:
    """Files with tests, and the names of long runs, benchmarks and measured pages."""
    programs = [text.split() for text in SHOWN_BY if text.startswith("python -m ")]
    listed: dict[str, Collection[str]] = {
        "tests.fuzz": RUNS,
        "benchmarks": BENCHMARKS,
        "benchmarks.evidence": PROGRAMS,
    }

    assert [text for text in SHOWN_BY if text.startswith("tests/") and not (ROOT / text).is_file()] == []
    assert [words for words in programs if words[3] not in listed[words[2]]] == []
    assert {f"python -m benchmarks.evidence {name}" for name in PROGRAMS} <= set(re.findall(r"`([^`]+)`", PAGE))
    assert all(program.page.is_file() for program in PROGRAMS.values())


def test_every_attack_is_on_the_page_to_which_the_readme_and_the_security_model_link() -> None:
    """Every attempt is documented, and readers of either page find it."""
    assert sorted(ATTACKS - set(SHOWN_BY)) == []
    assert "docs/evidence/index.md" in README
    assert "../evidence/index.md" in SECURITY
