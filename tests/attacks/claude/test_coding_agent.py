"""The policy to begin with holds on the real Claude Code, rule by rule, in the shell that it is judged for."""

from __future__ import annotations

from typing import Any

import coding_agent
import pytest

from proctor.policies import parse_policies
from proctor.supervisor import run_once

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


@pytest.fixture
def prepare(bench: Any) -> Any:
    """Scripts the acts."""

    def scripted(acts: Any, used: tuple[int, int] = (100, 20), endless: bool = False) -> Any:
        api = bench.api
        for kind, what in acts:
            path = str((bench.cwd / what).resolve())
            block = api.bash(what) if kind == "bash" else api.tool("Write", file_path=path, content="x")
            api.say(api.reply(block, input_tokens=used[0], output_tokens=used[1]))
        api.say(api.reply(api.text("done")))
        if endless:
            api.script[:] = [api.reply(api.bash("tail -f /dev/null --sleep-interval=9"))]
        return bench.adapter("Bash", "Write"), "go"

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
    """By the client's own figure."""
    await coding_agent.ends_at(prepare, "max_cost_usd", used=(1000, 50_000))


async def test_200_000_tokens_end_the_run(prepare: Any) -> None:
    """Those of all responses together."""
    await coding_agent.ends_at(prepare, "max_total_tokens", used=(90_000, 10))


async def test_time_ends_the_run(prepare: Any) -> None:
    """Ten minutes are shortened to one second."""
    await coding_agent.ends_at(prepare, "max_duration_ms", most=1000, endless=True)


@pytest.mark.parametrize("shell", ["/bin/zsh", ""])
async def test_bash_runs_what_is_read_as_bashs(bench: Any, shell: str) -> None:
    """Whatever the environment's shell is."""
    bench.api.say(bench.api.reply(bench.api.bash("readlink /proc/$$/exe > shell.txt")), bench.api.reply())

    await run_once(bench.adapter(env={"SHELL": shell}), "go", policies=parse_policies("name: p"))

    assert (bench.cwd / "shell.txt").read_text().strip().endswith("/bash")
