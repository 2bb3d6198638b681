"""The local adapters under the real supervisor: a policy's answer reaches real processes."""

from __future__ import annotations

from pathlib import Path

import anyio
import psutil
import pytest

from proctor.adapters import ReplayAdapter, ScriptedAdapter, ShellAdapter
from proctor.policies import Allow, Deny, Limits, Policy, PolicyViolationError
from proctor.supervisor import run_once
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.testing.fakes import PATIENCE_S

SCRIPT = """
steps:
  - {call: bash, input: {command: touch made}}
  - {call: write, input: {path: written, content: x}, if_denied: [{say: not written}]}
"""


@pytest.mark.anyio
async def test_a_denied_call_of_a_script_has_no_effect(tmp_path: Path) -> None:
    """The agent is told and continues; the record says that the call was prevented."""
    policy = Policy(name="p", tool_rules=(Deny(("write",), action="deny"),))

    result = await run_once(ScriptedAdapter(SCRIPT, workspace=tmp_path), "go", policy=policy)

    assert [path.name for path in tmp_path.glob("*")] == ["made"]  # noqa: ASYNC240
    assert (result.status, result.output) == ("completed", "not written")
    assert [v.enforcement for v in result.policy.violations] == ["prevented"]


@pytest.mark.anyio
async def test_a_run_past_its_time_leaves_no_process() -> None:
    """The supervisor's deadline walks the ladder of a command that ignores signals."""
    command = "trap '' TERM; setsid sleep 74001 & sleep 74001"
    script = {"steps": [{"call": "bash", "input": {"command": command}}]}
    policy = Policy(name="p", limits=Limits(max_duration_ms=300))

    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError) as caught:
        await run_once(ScriptedAdapter(script), "go", policy=policy)

    assert [violation.kind for violation in caught.value.violations] == ["max_duration_ms"]
    assert not any((p.info["cmdline"] or [])[-1:] == ["74001"] for p in psutil.process_iter(["cmdline"]))


@pytest.mark.anyio
async def test_a_line_with_a_denied_part_does_not_run(tmp_path: Path) -> None:
    """The refusal is the run's failure, with the policy report attached."""
    policy = Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),))

    with pytest.raises(ProviderError) as caught:
        await run_once(ShellAdapter(cwd=tmp_path), "touch a && echo $(rm -rf b)", policy=policy)

    assert caught.value.policy.violations[0].tool_name == "rm"
    assert list(tmp_path.glob("*")) == []  # noqa: ASYNC240


@pytest.mark.anyio
async def test_an_allow_list_decides_about_dynamic_commands(tmp_path: Path) -> None:
    """The merged policy reaches the adapter: named, a dynamic command is judged like any other."""
    line = "X=touch; $X a"
    wild = Policy(name="p", tool_rules=(Allow(("*",)),))
    named = Policy(name="p", tool_rules=(Allow(("bash", "dynamic")),))

    with pytest.raises(ProviderError, match="known only when it runs"):
        await run_once(ShellAdapter(cwd=tmp_path), line, policy=wild)
    result = await run_once(ShellAdapter(cwd=tmp_path), line, policy=named)

    assert result.output == {"exit_code": 0}
    assert (tmp_path / "a").exists()


@pytest.mark.anyio
async def test_a_supervised_record_can_be_replayed_under_another_policy(tmp_path: Path) -> None:
    """What was allowed then is refused now; nothing of the first supervisor's own records comes twice."""
    first = await run_once(ScriptedAdapter(SCRIPT, workspace=tmp_path), "go", policy=Policy(name="open"))
    strict = Policy(name="strict", tool_rules=(Deny(("bash",), action="deny"),))

    again = await run_once(ReplayAdapter(first.events), "go", policy=strict)

    assert [violation.tool_name for violation in again.policy.violations] == ["bash"]
    types = [event.type for event in again.events]
    assert (types.count("message_sent"), types.count("run_completed")) == (1, 1)
    assert types.count("tool_call_completed") == 1
