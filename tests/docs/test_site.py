"""The documentation builds as a site: strictly, with every exported name, and without external resources."""

import importlib
import os
import re
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_blocks import ROOT

IN_ADAPTERS = ("evaluate", "fleet", "kit", "stores")
PACKAGES = ("policies", "supervisor", "adapters", *(f"adapters.{name}" for name in IN_ADAPTERS))
FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(https?:)?//|<link[^>]+rel=["']?stylesheet["']?[^>]+href=["']?(https?:)?//"""
)
STYLE = re.compile(r"""@import|url\(["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `.ci/run` does: a page outside the nav, or a broken link or anchor, fails it."""
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)

    assert built.returncode == 0, built.stdout + built.stderr
    return place


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_on_the_site(site: Path, package: str) -> None:
    """With its docstring and an anchor."""
    page = (site / "reference" / "python" / f"{package.replace('.', '-')}.html").read_text()
    names = importlib.import_module(f"proctor.{package}").__all__
    places = {place.rpartition(".")[2] for place in re.findall(rf'id="(proctor\.{package}\.[\w.]+)"', page)}

    assert [name for name in names if name != "events" and name not in places] == []


def test_the_site_loads_no_external_resource(site: Path) -> None:
    """No script, style, image or font of another host."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    styles = {path: path.read_text() for path in site.rglob("*.css")}

    assert len(pages) > 40
    assert [path.name for path, text in pages.items() if FETCHED.search(text)] == []
    assert [path.name for path, text in styles.items() if STYLE.search(text)] == []


WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "::: " not in page.read_text()]
"""The pages of the site whose text is in their source."""


def test_a_built_page_has_the_headings_and_the_code_of_its_source(site: Path) -> None:
    """In order, code letter by letter, a file's name as its caption: no block is rendered as prose."""
    for page in WRITTEN:
        built = _Built()
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        built.feed((site / (name.with_name("index.html") if name.stem == "README" else name)).read_text())

        assert built.headings == _headings(page), page
        assert built.code == _fences(page), page
        assert "```" not in built.prose, page


def _fences(page: Path) -> list[tuple[str, str]]:
    """The caption and the text of each fenced block."""
    found = []
    for fence in _FENCE.finditer(page.read_text()):
        title = re.search(r'title="([^"]+)"', fence[2])
        found.append((title[1] if title else "", textwrap.dedent(fence[3]).strip("\n")))
    return found


_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.M | re.S)


def _headings(page: Path) -> list[str]:
    """The letters and digits of each heading."""
    text = _FENCE.sub("", page.read_text())
    return [_letters(re.sub(r"\]\([^)]*\)", "", found)) for found in re.findall(r"^#+ (.+)$", text, re.M)]


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text)


class _Built(HTMLParser):
    """The headings, the code blocks with their captions, and the other text of a built page's article."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.code: list[tuple[str, str]] = []
        self.prose = ""
        self._within: list[str] = []
        self._caption = self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("article", "pre", "h1", "h2", "h3", "h4", "h5", "h6"):
            self._within.append(tag)
            self._text = ""
        elif tag == "span" and dict(attrs).get("class") == "filename":
            self._within.append("span")
            self._caption = ""

    def handle_endtag(self, tag: str) -> None:
        if not self._within or self._within[-1] != tag:
            return
        self._within.pop()
        if tag == "pre" and "article" in self._within:
            self.code.append((self._caption, self._text.strip("\n")))
            self._caption = ""
        elif tag[0] == "h" and "article" in self._within:
            self.headings.append(_letters(self._text.removesuffix("\u00b6")))

    def handle_data(self, data: str) -> None:
        if self._within[-1:] == ["span"]:
            self._caption += data
        elif self._within[-1:] == ["article"]:
            self.prose += data
        else:
            self._text += data
