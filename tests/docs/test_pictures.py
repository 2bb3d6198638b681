"""The screenshots of the dashboard in the docs are made by a program, from real runs."""

import runpy
import struct
from pathlib import Path

import pytest
import web_server

pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
pytestmark = [
    pytest.mark.skipif(not Path(web_server.CHROMIUM).exists(), reason="apt-get install chromium"),
    pytest.mark.slow,
]
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def size(file: Path) -> tuple[int, int]:
    """The width and the height of a PNG."""
    width, height = struct.unpack(">2I", file.read_bytes()[16:24])
    return width, height


def test_the_program_makes_every_screenshot(tmp_path: Path) -> None:
    """The screenshots in the docs are exactly those that it makes."""
    runpy.run_path(str(PICTURES / "__main__.py"))["main"](tmp_path)

    made = {file.name: size(file) for file in tmp_path.glob("*.png")}
    assert made == {file.name: size(file) for file in PICTURES.glob("*.png")}
