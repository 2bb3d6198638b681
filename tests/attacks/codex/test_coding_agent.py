"""The policy to begin with holds on the real Codex, rule by rule, in the shell that it is judged for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import coding_agent
import pytest

from proctor.adapters.evaluate import judge_session
from proctor.adapters.traces import read_sessions
from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.supervisor import run_once

pytestmark = [pytest.mark.codex, pytest.mark.anyio]


@pytest.fixture
def prepare(bench: Any) -> Any:
    """Scripts the acts."""

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


async def test_it_keeps_to_the_rules(bench: Any, prepare: Any) -> None:
    """No push, no network commands, nothing written outside, nothing published unasked."""
    await coding_agent.keeps_to_the_rules(prepare, bench.cwd)


async def test_it_keeps_to_the_policies_of_the_readme(bench: Any, prepare: Any) -> None:
    """Nothing is deleted, and a person is asked before a file is written."""
    await coding_agent.keeps_to_the_readme(prepare, bench.cwd)


async def test_a_person_lets_it_publish(prepare: Any) -> None:
    """And it runs."""
    await coding_agent.asks_before_publishing(prepare)


async def test_two_dollars_end_the_run(prepare: Any) -> None:
    """By the public price of the model."""
    pytest.importorskip("genai_prices", reason="needs prices: pip install '.[prices]'")
    await coding_agent.ends_at(prepare, "max_cost_usd", used=(1000, 60_000))


async def test_200_000_tokens_end_the_run(prepare: Any) -> None:
    """Those of all responses together."""
    await coding_agent.ends_at(prepare, "max_total_tokens", used=(90_000, 10))


async def test_time_ends_the_run(prepare: Any) -> None:
    """Ten minutes are shortened to one second."""
    await coding_agent.ends_at(prepare, "max_duration_ms", most=1000, endless=True)


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
