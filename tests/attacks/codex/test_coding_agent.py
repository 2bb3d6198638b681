"""The policy to begin with holds on the real Codex, rule by rule, in the shell that it is judged for."""

from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.evaluate import judge_session
from proctor.adapters.traces import read_sessions
from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.supervisor import run_once
from tests import coding_agent

pytestmark = [pytest.mark.codex, pytest.mark.anyio]


class TestCodex(coding_agent.CodingAgentChecks):
    """By the public price of the model."""

    @pytest.fixture
    def prepare(self, bench: Any) -> Any:
        def scripted(acts: Any, used: tuple[int, int] = (100, 20), endless: bool = False) -> Any:
            for n, (kind, what) in enumerate(acts):
                act = (
                    bench.api.shell(f"c{n}", what)
                    if kind == "bash"
                    else bench.api.patch(f"c{n}", f"*** Add File: {what}", "+x")
                )
                bench.api.reply(act, used=used)
            if endless:
                bench.api.script.clear()
                bench.api.reply(bench.api.text("hm"), endless=True)
            return bench.adapter(), "go"

        return scripted


LINE = r"echo $'\'; touch ran #'"
"""One `echo` to bash; a `touch` to a shell that does not know `$'`."""
TOUCH = "{tool: bash, where: [{path: $.command, runs: touch}]}"
POLICY = f"name: p\nrules: [{{type: blocklist, tools: [{TOUCH}], action: deny}}]"


def records(home: Path) -> list[Path]:
    """What the client itself recorded."""
    return list(home.glob("sessions/**/*.jsonl"))


async def test_a_line_for_another_shell_is_judged_as_that_shells(bench: Any) -> None:
    """What two shells read in two ways is nobody's to permit; live, and in the client's own record. For bash the same
    text says something to one who listens.
    """
    others = ["/bin/sh", "sh", "dash", "zsh", "/usr/bin/python3"]
    for number, shell in enumerate([*others, "/bin/bash"]):
        bench.api.reply(bench.api.shell(f"c{number}", LINE, shell=shell))

    result = await run_once(bench.adapter(), "go", policies=parse_policies(POLICY))
    (record,) = records(bench.home)
    (session,) = read_sessions([str(record)], format="codex")
    judged = judge_session(compile_policy(merge_policies(parse_policies(POLICY))), session)

    assert not (bench.cwd / "ran").exists()
    expected = [(f"c{number}", "blocklist-1") for number in range(len(others))]
    assert [(violation.tool_call_id, violation.rule) for violation in result.policy.violations] == expected
    assert [(violation.tool_call_id, violation.rule) for violation in judged.violations] == expected
