"""The model cannot have another shell read a command line than the one it is judged for, on the real Codex client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.evaluate import judge_session
from proctor.adapters.traces import read_sessions
from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.supervisor import run_once

pytestmark = [pytest.mark.codex, pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

LINE = r"echo $'\'; touch ran #'"
"""One `echo` to bash; a `touch` to a shell that does not know `$'`."""
TOUCH = "{tool: bash, where: [{path: $.command, runs: touch}]}"
POLICY = f"name: p\nrules: [{{type: blocklist, tools: [{TOUCH}], action: deny}}]"


def records(home: Path) -> list[Path]:
    """What the client itself recorded."""
    return list(home.glob("sessions/**/*.jsonl"))


@pytest.mark.parametrize("shell", ["/bin/sh", "sh", "dash", "zsh", "/usr/bin/python3"])
async def test_a_line_for_another_shell_is_judged_as_that_shells(bench: Any, shell: str) -> None:
    """What two shells read in two ways is nobody's to permit; live, and in the client's own record."""
    bench.api.reply(bench.api.shell("c1", LINE, shell=shell))

    result = await run_once(bench.adapter(), "go", policies=parse_policies(POLICY))
    (record,) = records(bench.home)
    (session,) = read_sessions([str(record)], format="codex")
    judged = judge_session(compile_policy(merge_policies(parse_policies(POLICY))), session)

    assert not (bench.cwd / "ran").exists()
    assert [violation.rule for violation in result.policy.violations] == ["blocklist-1"]
    assert [violation.rule for violation in judged.violations] == ["blocklist-1"]


async def test_a_line_for_bash_is_judged_as_bashs(bench: Any) -> None:
    """The same text, which says something to one who listens."""
    bench.api.reply(bench.api.shell("c1", LINE, shell="/bin/bash"))

    result = await run_once(bench.adapter(), "go", policies=parse_policies(POLICY))

    assert result.policy.violations == ()
