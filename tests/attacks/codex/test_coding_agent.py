"""The starter policy is enforced on the real Codex, rule by rule, in the shell that lines are evaluated for."""

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
    """The cost uses the public price of the model."""

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
"""To bash, one `echo`; to a shell without `$'`, a `touch`."""
TOUCH = "{tool: bash, where: [{path: $.command, runs: touch}]}"
POLICY = f"name: p\nrules: [{{type: blocklist, tools: [{TOUCH}], action: deny}}]"


def records(home: Path) -> list[Path]:
    """The client's own session log."""
    return list(home.glob("sessions/**/*.jsonl"))


async def test_a_line_for_another_shell_is_parsed_as_by_that_shell(bench: Any) -> None:
    """A line that two shells parse differently can't be allowed; live, and from the client's own log. In bash the
    same text is a mere argument.
    """
    others = ["/bin/sh", "sh", "dash", "zsh", "/usr/bin/python3"]
    for number, shell in enumerate([*others, "/bin/bash"]):
        bench.api.reply(bench.api.shell(f"c{number}", LINE, shell=shell))

    result = await run_once(bench.adapter(), "go", policies=parse_policies(POLICY))
    (record,) = records(bench.home)
    (session,) = read_sessions([str(record)], format="codex")
    evaluated = judge_session(compile_policy(merge_policies(parse_policies(POLICY))), session)

    assert not (bench.cwd / "ran").exists()
    expected = [(f"c{number}", "blocklist-1") for number in range(len(others))]
    assert [(violation.tool_call_id, violation.rule) for violation in result.policy.violations] == expected
    assert [(violation.tool_call_id, violation.rule) for violation in evaluated.violations] == expected
