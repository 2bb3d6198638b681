"""The real client in a fleet: its worker is killed while a call waits, and another continues its session."""

from __future__ import annotations

import os
from typing import Any

import anyio
import psutil
import pytest
from claude_processes import ClaudeProcesses
from cluster_processes import ASKING, waiting_approval, working

from proctor.adapters.fleet import Fleet, RunSpec
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, ErrorOccurred, Event, RunStarted, ToolCallStarted
from proctor.supervisor.testing.fakes import PATIENCE_S

CHANGES = {"tool": "bash", "where": [{"path": "$.command", "runs": ["echo"]}]}
pytestmark = [pytest.mark.claude, pytest.mark.anyio]


@pytest.mark.parametrize(("home", "errors"), [("home", []), ("elsewhere", ["unknown_session"])])
async def test_a_killed_worker_s_session_is_continued_by_another(
    processes: ClaudeProcesses, home: str, errors: list[str]
) -> None:
    """What it was told stays told, where the client has its own session and on a machine where it has none; the call
    runs once, after a yes to the question of the run that goes on.
    """
    api, place = processes.bench.api, str(processes.path)
    where: dict[str, Any] = {"env": {**os.environ, **processes.bench.env}, "cwd": processes.bench.cwd}
    other = processes.bench.cwd.with_name(home)
    there = {**where, "env": {**where["env"], "HOME": str(other), "CLAUDE_CONFIG_DIR": str(other / "claude")}}
    call = api.bash("echo ran >> effect.txt")
    api.say(api.reply(api.text("I look first"), api.bash("true")), api.reply(call))
    policies = parse_policies({**ASKING, "rules": [{**ASKING["rules"][0], "tools": [CHANGES]}]})
    spec = RunSpec.of("claude", "Write the file", policies=policies, options={"tools": ["Bash"], "model": "sonnet"})
    async with SQLiteStore(processes.path) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec)
        with working(place, **where) as first:
            await waiting_approval(store, handle.run_id)
            await processes.until_written("echo ran")
            clients = psutil.Process(first.pid).children(recursive=True)
            first.kill()
            assert not psutil.wait_procs(clients, PATIENCE_S)[1]  # else one of them asks the API once more
        api.say(api.reply(call), api.reply(api.text("done")))
        with working(place, **there), anyio.fail_after(PATIENCE_S):
            again = await waiting_approval(store, f"{handle.run_id}.2")
            assert not processes.exists("effect.txt")
            await fleet.approve(again.request.approval_id, by="ana")
            result = await handle.wait()
        events: list[Event] = [event async for event in store.read(handle.session_id)]

    started = [event for event in events if isinstance(event, RunStarted)]
    calls = [event.tool_input["command"] for event in events if isinstance(event, ToolCallStarted)]
    assert (result.run_id, result.status, result.output) == (f"{handle.run_id}.2", "completed", "done")
    assert [event.metadata.get("continuation") for event in started] == [None, "native"]
    assert [event.code for event in events if isinstance(event, ErrorOccurred)] == errors
    assert calls == ["true", "echo ran >> effect.txt"]
    assert (processes.bench.cwd / "effect.txt").read_text() == "ran\n"
    assert "Write the file" in str(api.requests[-1]["messages"])
    assert "I look first" in str(api.requests[-1]["messages"])
    assert [event.run_id for event in events if isinstance(event, TERMINAL)] == [handle.run_id, result.run_id]
    assert processes.bench.marked(handle.run_id) == []
