"""The pages about scripted agents, command lines, loops and frameworks say what is so: their examples run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, get_args

import anyio
import page_blocks
import pytest
from page_blocks import programs

from proctor.adapters import FunctionAdapter, OpenAIAgentsAdapter, ScriptedAdapter
from proctor.adapters.agents.scripted.script import Step
from proctor.policies import Policy
from proctor.policies.shell.parser import parse_line
from proctor.supervisor import run_once
from proctor.supervisor.testing.adapter_fixture import Drive

DOCS = Path(__file__).parents[3] / "docs" / "agents"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are of this kind."""
    return [block.text for block in page_blocks.blocks(DOCS / page) if block.kind == language]


@pytest.mark.anyio
@pytest.mark.parametrize(("refuse", "last"), [((), "I look at what is there."), (("write",), "Then I only say it.")])
async def test_the_documented_script_runs(tmp_path: Path, refuse: tuple[str, ...], last: str) -> None:
    """Every line of it means what the page says."""
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
    """The page's example is what the parser gives."""
    (example,) = blocks("shell.md", "text")
    line, calls = (text.split(":", 1)[1].strip() for text in example.splitlines())

    assert ["bash", *(part.name for part in parse_line(line))] == calls.split()


(FUNCTION,) = programs(DOCS / "loop.md")
(PYDANTIC_AI,) = programs(DOCS / "pydantic-ai.md")
(OPENAI,) = programs(DOCS / "openai-agents.md")


def names_of(block: str) -> dict[str, Any]:
    """What the code of a block defines."""
    names: dict[str, Any] = {}
    exec(block, names)
    return names


@pytest.mark.anyio
async def test_the_loop_as_a_function_runs() -> None:
    """As it stands on the page."""
    result = await names_of(FUNCTION)["run"]()

    assert result.output == "done"


def test_the_agent_of_pydantic_ai_runs() -> None:
    """Its tool is not even offered."""
    pytest.importorskip("pydantic_ai", reason="pip install '.[pydantic-ai]'")
    result = anyio.run(names_of(PYDANTIC_AI)["run"])

    assert (result.status, result.output) == ("completed", "success (no tool calls)")
    assert not result.policy.violations


def test_the_agent_of_the_openai_sdk_is_one() -> None:
    """Every tool of it can be held."""
    pytest.importorskip("openai", reason="pip install '.[openai-agents]'")
    adapter = names_of(OPENAI)["adapter"]

    assert isinstance(adapter, OpenAIAgentsAdapter)
    assert adapter.capabilities.gate == "all"


def test_a_loop_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line."""
    (tmp_path / "documented_loop.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    async def go() -> Any:
        return await run_once(FunctionAdapter("documented_loop:loop"), "go", policies=[Policy(name="desk")])

    assert anyio.run(go).output == "done"
