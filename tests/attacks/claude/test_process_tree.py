"""No process that the real Claude Code client starts outlives its supervisor; Linux."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from proxy_processes import QUICK

from proctor.policies import parse_policies
from proctor.supervisor import ProviderError, run_once

from ..test_process_trees import KILLS, sleepers, until

pytestmark = [
    pytest.mark.claude,
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only; see docs/agents/index.md"),
]

HIDING = [
    "(env -i setsid sleep {} > /dev/null 2>&1 &)",
    "(setsid bash -c 'env -i setsid sleep {} & exit' > /dev/null 2>&1 &)",
    "(PROCTOR_RUN=other setsid nohup sleep {} > /dev/null 2>&1 < /dev/null &)",
]
SUPERVISOR = """
import anyio, json, os
from proctor.adapters import ClaudeAdapter
from proctor.policies import parse_policies
from proctor.supervisor import run_once

env = json.loads(os.environ["CLIENT"])
options = {"setting_sources": [], "cwd": os.getcwd(), "model": "claude-sonnet-4-5"}
adapter = ClaudeAdapter(options, tools=("Bash",), env=env)
anyio.run(lambda: run_once(adapter, "go", policies=parse_policies("name: p")))
"""
ANSWERS = f"import runpy; runpy.run_path({str(QUICK)!r}, run_name='__main__')"
SERVER = f"""
import subprocess
subprocess.Popen(["setsid", "env", "-i", "sleep", "72003"], start_new_session=True)
{ANSWERS}
"""
KILLER = f"""{KILLS}
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, kill)
{ANSWERS}
kill()
"""


async def test_hidden_processes_and_those_of_an_mcp_server_end_with_the_run(bench: Any, tmp_path: Path) -> None:
    """Processes without the run's environment, session or parent, and an MCP server of the client. All are below the
    guardian.
    """
    api, began = bench.api, bench.cwd / "began"
    await anyio.Path(tmp_path / "server.py").write_text(SERVER)
    servers = {"odd": {"command": sys.executable, "args": [str(tmp_path / "server.py")]}}
    count = f"$(pgrep -fxc 'sleep 7200[13]') = {len(HIDING) + 1}"
    command = "; ".join([*HIDING, f"until test {count}; do sleep 0.05; done; touch {began}"]).replace("{}", "72001")
    api.say(api.reply(api.bash(command)), api.reply(api.text("done")))

    result = await run_once(bench.adapter(mcp_servers=servers), "go", policies=parse_policies("name: p"))

    assert result.output == "done"
    assert began.exists()
    assert (sleepers(72001), sleepers(72003)) == ([], [])


async def test_hidden_processes_end_with_a_killed_supervisor(bench: Any) -> None:
    """The supervisor had no time to end them."""
    api = bench.api
    api.say(
        api.reply(api.bash("; ".join([*HIDING, "tail -f /dev/null --sleep-interval=72002"]).replace("{}", "72002")))
    )
    env = {**os.environ, "CLIENT": json.dumps(bench.env)}
    supervisor = await anyio.open_process([sys.executable, "-c", SUPERVISOR], cwd=bench.cwd, env=env)
    await until(lambda: len(sleepers(72002)) == len(HIDING))
    client = [child.pid for child in psutil.Process(supervisor.pid).children(recursive=True)]

    supervisor.kill()
    await supervisor.wait()

    await until(lambda: sleepers(72002) == [] and not any(map(psutil.pid_exists, client)))


async def test_a_guardian_killed_while_the_client_disconnects_fails_the_run(bench: Any, tmp_path: Path) -> None:
    """The client has finished. An MCP server waits for its disconnect and kills the guardian, and is
    ended with it.
    """
    await anyio.Path(tmp_path / "killer.py").write_text(KILLER)
    servers = {
        "odd": {
            "command": sys.executable,
            "args": [str(tmp_path / name) for name in ("killer.py", "killed")] + ["72004"],
        }
    }
    bench.api.say(bench.api.reply(bench.api.bash("echo x")), bench.api.reply(bench.api.text("done")))

    with pytest.raises(ProviderError, match=r"was killed \(signal 9\)") as raised:
        await run_once(bench.adapter(mcp_servers=servers), "go", policies=parse_policies("name: p"))

    assert raised.value.details["code"] == "guardian_killed"
    assert sleepers(72004) == []
