"""The README is executed: its files are written, its commands run, its output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#]+)\)")


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the lines of output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.rstrip("\n").splitlines()


def matches(shown: list[str], output: str) -> bool:
    """Whether the output is what is shown; `...` stands for anything in a line, alone for any lines."""
    lines = (r"(?:.*\n)*?" if line == "..." else pattern(line) + r"\n" for line in shown)
    return re.fullmatch("".join(lines) + r"\s*", output.rstrip("\n") + "\n") is not None


def pattern(line: str) -> str:
    """A shown line as a regular expression; blanks before `...` and at the end do not count."""
    line = re.sub(r"^ +(?=\.\.\.)", "", line.rstrip())
    return r".*?".join(re.escape(part) for part in line.split("...")) + " *"


def shims(folder: Path) -> str:
    """A PATH on which `proctor` and `python` are those of the tests."""
    folder.mkdir()
    for name, arguments in (("proctor", "-m proctor.adapters.cli"), ("python", "")):
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        shim.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_the_tour_does_what_it_says(tmp_path: Path) -> None:
    """Files are written, commands run, and what is shown is what they print (README, Five minutes)."""
    place = tmp_path / "tour"
    place.mkdir()
    env = {**os.environ, "PATH": shims(tmp_path / "bin"), "XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"}
    env.pop("PROCTOR_STORE", None)
    for kind, file, text in BLOCK.findall(README):
        if file:
            (place / file).write_text(text, encoding="utf-8")
        for command, shown in commands(text) if kind == "console" else ():
            ran = subprocess.run(command, shell=True, cwd=place, env=env, capture_output=True, text=True, timeout=60)

            assert matches(shown, ran.stdout + ran.stderr), f"$ {command}\n{ran.stdout}{ran.stderr}"


def test_shown_output_that_differs_is_found() -> None:
    """The comparison above can fail."""
    assert matches(["a ... c", "...", "z"], "a b c\nx\ny\nz\n")
    assert not matches(["a ... c"], "a b d\n")
    assert not matches(["a"], "a\nb\n")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    """To a file of the project, or to the web."""
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))

    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
