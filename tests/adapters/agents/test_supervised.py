"""The local adapters under the real supervisor: a policy's answer reaches real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.adapters import ReplayAdapter, ScriptedAdapter, ShellAdapter
from proctor.policies import Deny, Policy
from proctor.supervisor import run_once
from proctor.supervisor.errors import ProviderError

SCRIPT = """
steps:
  - {call: bash, input: {command: touch made}}
  - {call: write, input: {path: written, content: x}, if_denied: [{say: not written}]}
"""


@pytest.mark.anyio
async def test_a_line_with_a_denied_part_does_not_run(tmp_path: Path) -> None:
    """The refusal is the run's failure, with the policy report attached."""
    policy = Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),))

    with pytest.raises(ProviderError) as caught:
        await run_once(ShellAdapter(cwd=tmp_path), "touch a && echo $(rm -rf b)", policy=policy)

    assert caught.value.policy.violations[0].tool_name == "rm"
    assert list(tmp_path.glob("*")) == []  # noqa: ASYNC240


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
