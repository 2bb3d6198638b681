"""The documentation builds as a site: strictly, with every exported name, and nothing of it comes from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT

PACKAGES = ("policies", "supervisor", "adapters", "adapters.cluster", "adapters.kit", "adapters.stores")
FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(https?:)?//|<link[^>]+rel=["']?stylesheet["']?[^>]+href=["']?(https?:)?//"""
)
STYLE = re.compile(r"""@import|url\(["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `.ci/run` does: a page in no nav, a link or a place that is not there fail it."""
    pytest.importorskip("mkdocs", reason="pip install -e '.[dev]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)

    assert built.returncode == 0, built.stdout + built.stderr
    return place


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_on_the_site(site: Path, package: str) -> None:
    """With its docstring, at a place that can be linked."""
    page = (site / "reference" / "python" / f"{package.replace('.', '-')}.html").read_text()
    names = importlib.import_module(f"proctor.{package}").__all__
    places = {place.rpartition(".")[2] for place in re.findall(rf'id="(proctor\.{package}\.[\w.]+)"', page)}

    assert [name for name in names if name != "events" and name not in places] == []


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    """No script, style, picture or font of another host."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    styles = {path: path.read_text() for path in site.rglob("*.css")}

    assert len(pages) > 40
    assert [path.name for path, text in pages.items() if FETCHED.search(text)] == []
    assert [path.name for path, text in styles.items() if STYLE.search(text)] == []
