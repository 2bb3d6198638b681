"""The pages about scripted agents and command lines are correct."""

import re
from pathlib import Path
from typing import get_args

import page_blocks
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.adapters.agents.scripted.script import Step
from proctor.policies.shell.parser import parse_line
from proctor.supervisor.testing.adapter_fixture import Drive

DOCS = Path(__file__).parents[3] / "docs" / "agents"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page of this kind."""
    return [block.text for block in page_blocks.blocks(DOCS / page) if block.kind == language]


@pytest.mark.anyio
@pytest.mark.parametrize(("refuse", "last"), [((), "I look at what is there."), (("write",), "Then I only say it.")])
async def test_the_documented_script_runs(tmp_path: Path, refuse: tuple[str, ...], last: str) -> None:
    """Every line of it does what the page says."""
    script, _ = blocks("scripted.md", "yaml")

    done = await Drive(ScriptedAdapter(script, workspace=tmp_path), refuse=refuse).run()

    assert getattr(done.events[-1], "output", None) == last
    assert (tmp_path / "report.txt").exists() != bool(refuse)


def test_every_step_is_documented() -> None:
    """The list names all kinds of steps and no others."""
    page = (DOCS / "scripted.md").read_text()
    listed = page.split("Each step has one of these keys")[1].split("## ")[0]

    assert set(re.findall(r"^- `(\w+):", listed, re.MULTILINE)) == {
        kind.__struct_fields__[0] for kind in get_args(Step)
    }


def test_the_documented_line_has_these_parts() -> None:
    """The page's example is the parser's output."""
    (example,) = blocks("shell.md", "text")
    line, calls = (text.split(":", 1)[1].strip() for text in example.splitlines())

    assert ["bash", *(part.name for part in parse_line(line))] == calls.split()
