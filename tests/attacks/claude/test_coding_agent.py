"""The starter policy is enforced on the real Claude Code, rule by rule, in the shell that lines are evaluated for."""

from typing import Any

import pytest

from proctor.adapters.kit.process_tree import NOT_FOR_RUNS
from proctor.policies import parse_policies
from proctor.supervisor import run_once
from tests import coding_agent

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


class TestClaude(coding_agent.CodingAgentChecks):
    """The cost is the client's own figure."""

    @pytest.fixture
    def prepare(self, bench: Any) -> Any:
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


@pytest.mark.parametrize("shell", ["/bin/zsh", ""])
async def test_a_line_parsed_as_bash_runs_in_bash(bench: Any, shell: str) -> None:
    """Whatever shell the environment names."""
    bench.api.say(bench.api.reply(bench.api.bash("readlink /proc/$$/exe > shell.txt")), bench.api.reply())

    await run_once(bench.adapter(env={"SHELL": shell}), "go", policies=parse_policies("name: p"))

    assert (bench.cwd / "shell.txt").read_text().strip().endswith("/bash")


async def test_secrets_of_proctor_are_not_passed_on(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of them, the agent could answer its own approval requests."""
    for name in NOT_FOR_RUNS:
        monkeypatch.setenv(name, "keep-this-here")
    bench.api.say(bench.api.reply(bench.api.bash("env > env.txt")), bench.api.reply())

    await run_once(bench.adapter(env={"PROCTOR_TOKEN": "keep-this-here"}), "go", policies=parse_policies("name: p"))

    assert "keep-this-here" not in (bench.cwd / "env.txt").read_text()
