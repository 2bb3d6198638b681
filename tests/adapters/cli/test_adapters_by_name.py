"""`proctor run --adapter NAME` with a framework's agent or a function, as the pages show it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

MODULES = {
    "pydantic-ai": """
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

name = Agent(TestModel(), tools=[])

@name.tool_plain
def deploy(to: str) -> str:
    raise AssertionError("it ran")
""",
    "openai-agents": """
from framework_bench import openai_agent

def deploy(to: str) -> str:
    "Deploy."
    raise AssertionError("it ran")

name = openai_agent([("deploy", {"to": "prod"})], functions=[deploy])
""",
    "function": """
async def name(gate, prompt):
    @gate.tool(refused="tell")
    def deploy(to: str) -> str:
        raise AssertionError("it ran")

    await deploy("prod")
""",
}


@pytest.mark.parametrize("adapter", MODULES)
def test_the_documented_command_runs_the_agent_under_its_policy(
    cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch, adapter: str
) -> None:
    """Denied calls do not run, and the run is stored under the adapter's name."""
    monkeypatch.delitem(sys.modules, "module", raising=False)
    place.joinpath("module.py").write_text(MODULES[adapter])
    place.joinpath("policy.yaml").write_text(
        "name: p\non_violation: deny\ntool_rules: [{deny: [{tool: deploy, where: [{path: $.to, regex: .}]}]}]\n"
    )
    option = "loop" if adapter == "function" else "agent"
    run = ("run", "--adapter", adapter, "--set", f"{option}=module:name", "--policy", "policy.yaml", "--json", "go")
    ran = cli(*run)
    monkeypatch.delitem(sys.modules, "module", raising=False)
    events = [json.loads(line) for line in ran.out.splitlines()]
    denied = [event for event in events if event["type"] == "tool_call_denied"]

    assert ran.code == 1, ran.err
    assert [event["tool_name"] for event in denied] == ["deploy"]
    assert events[-1]["status"] == "completed"
    assert "it ran" not in ran.out + ran.err
    assert json.loads(cli("runs", "--json").out.splitlines()[0])["provider"] == adapter


@pytest.mark.parametrize("adapter", ["pydantic-ai", "openai-agents"])
def test_an_agents_code_that_ends_the_program_has_not_succeeded(
    cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch, adapter: str
) -> None:
    """It is one error with exit code 3, whatever the agent's own exit code."""
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    place.joinpath("leaving.py").write_text(
        "class Leaving:\n    def __getattr__(self, name: str):\n        raise SystemExit(0)\n\nagent = Leaving()\n"
    )
    ran = cli("run", "--adapter", adapter, "--set", "agent=leaving:agent", "go")
    monkeypatch.delitem(sys.modules, "leaving", raising=False)

    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "error: an agent's code ended the program with `sys.exit`; let it return or raise instead\n"
