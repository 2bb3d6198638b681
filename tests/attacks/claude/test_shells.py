"""The commands of the real Claude Code client are run by the shell they are judged for."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import run_once

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/zsh", ""])
async def test_bash_runs_what_is_read_as_bashs(bench: Any, shell: str) -> None:
    """Whatever the environment's shell is."""
    bench.api.say(bench.api.reply(bench.api.bash("readlink /proc/$$/exe > shell.txt")), bench.api.reply())

    await run_once(bench.adapter(env={"SHELL": shell}), "go", policies=parse_policies("name: p"))

    assert (bench.cwd / "shell.txt").read_text().strip().endswith("/bash")
