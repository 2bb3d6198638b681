"""The pages about loops and frameworks say what is so: their examples run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from page_blocks import programs

from proctor.adapters import FunctionAdapter, OpenAIAgentsAdapter
from proctor.policies import Policy
from proctor.supervisor import run_once

PAGES = Path(__file__).parents[4] / "docs" / "agents"
(FUNCTION,) = programs(PAGES / "loop.md")
(PYDANTIC_AI,) = programs(PAGES / "pydantic-ai.md")
(OPENAI,) = programs(PAGES / "openai-agents.md")


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
