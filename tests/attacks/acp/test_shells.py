"""The commands of real ACP agents are run by the shell they are judged for, whatever the environment's is."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import run_once

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

TOOLS = {"opencode": "bash", "gemini": "run_shell_command"}


@pytest.mark.parametrize("name", sorted(TOOLS))
async def test_bash_runs_what_is_read_as_bashs(bench: Any, name: str) -> None:
    """Opencode takes the shell of its environment: dash reads quotes otherwise."""
    call = [TOOLS[name], {"command": "readlink /proc/$$/exe > shell.txt", "description": "x"}]
    adapter = bench.agent(name, env={**bench.environment(name), "SHELL": "/bin/dash"})

    await run_once(adapter, bench.prompt({"calls": [call]}), policies=parse_policies("name: p"))

    assert (bench.cwd / "shell.txt").read_text().strip().endswith("/bash")
