"""An agent in a sandbox of the SDK's gets its tools when it runs: they ask first, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.policies import PolicyViolationError, parse_policies
from proctor.policies.events import ToolCallDenied, ToolCallStarted
from proctor.supervisor import RunResult, run_once

pytest.importorskip("openai", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
from agents import Agent, RunConfig
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.sandboxes import UnixLocalSandboxClient

from proctor.adapters import OpenAIAgentsAdapter

pytestmark = pytest.mark.anyio


def adapter(agent: Agent[Any]) -> OpenAIAgentsAdapter:
    config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
    return OpenAIAgentsAdapter(agent, run_config=config)


def in_a_sandbox(worker: Any, **more: Any) -> SandboxAgent[Any]:
    return SandboxAgent(name="worker", model=worker().model, **more)


async def ran(api: Any, agent: Agent[Any], mark: Path, policy: str) -> RunResult:
    """One run in which the model asks for a command, and then for a patch."""
    text = "*** Begin Patch\n*** Add File: made\n+text\n*** End Patch\n"
    patch = {"type": "custom_tool_call", "id": "i2", "call_id": "c2", "name": "apply_patch", "input": text}
    api.script = [api.calls(("c1", "exec_command", {"cmd": f"touch {mark}"})), [patch], api.text("done")]
    return await run_once(adapter(agent), "go", policies=parse_policies(policy))


async def test_what_a_sandbox_brings_is_denied(api: Any, worker: Any, tmp_path: Path) -> None:
    """A command, and a patch."""
    mark = tmp_path / "mark"
    denied = "{name: p, on_violation: deny, tool_rules: [{deny: [exec_command, apply_patch]}]}"
    result = await ran(api, in_a_sandbox(worker), mark, denied)

    assert not mark.exists()
    assert [e.tool_name for e in result.events if isinstance(e, ToolCallDenied)] == ["exec_command", "apply_patch"]


async def test_what_a_sandbox_brings_is_recorded(api: Any, worker: Any, tmp_path: Path) -> None:
    """Each call once."""
    mark = tmp_path / "mark"
    result = await ran(api, in_a_sandbox(worker), mark, "{name: p}")
    started = [(e.tool_call_id, e.tool_name) for e in result.events if isinstance(e, ToolCallStarted)]

    assert mark.exists()
    assert started == [("c1", "exec_command"), ("c2", "apply_patch")]


async def test_enforcement_that_is_required_does_not_start(worker: Any) -> None:
    """What the sandbox will bring is not known before."""
    policy = parse_policies("{name: p, enforcement: required, on_violation: deny, tool_rules: [{deny: [bash]}]}")
    made = adapter(in_a_sandbox(worker))

    assert made.capabilities.gate == "some"
    with pytest.raises(PolicyViolationError):
        await run_once(made, "go", policies=policy)
