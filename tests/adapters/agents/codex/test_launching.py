"""The Codex settings that a policy becomes, in force in the real client; and rules that do not become settings."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_bench import MCP_SERVER
from supervised import RecordingGate

from proctor.policies import Deny, Policy, ToolCall
from proctor.policies.events import RunCompleted, ToolCallFailed
from proctor.supervisor.ports.adapter import GateAnswer

pytestmark = [pytest.mark.anyio, pytest.mark.codex]

NO_TEMPORARY_FOLDERS = {
    "sandbox_workspace_write.exclude_slash_tmp": True, "sandbox_workspace_write.exclude_tmpdir_env_var": True,
}  # fmt: skip


async def test_a_tool_that_a_policy_removes_is_not_offered_to_the_model(bench: Any) -> None:
    """Even if the caller enabled it. If a model calls it anyway, the client answers, and the gate is not asked."""
    adapter = bench.adapter(features={"view_image": True}, config={"web_search": "live"})
    options = adapter.compile(Policy(name="p", tool_rules=(Deny(("shell", "view_image", "web_search")),)))
    await bench.run(adapter=adapter)
    before = bench.api.offered()
    bench.api.reply(bench.api.shell("c1", "touch made"))
    gate = RecordingGate()
    events = await bench.run(gate, adapter=adapter, options=options)

    assert {"exec_command", "view_image", "web_search"} <= set(before)
    assert not {"exec_command", "view_image", "web_search"} & set(bench.api.offered())
    assert "apply_patch" in bench.api.offered()
    assert (gate.calls, bench.made()) == ([], [])
    assert events[-1] == RunCompleted(output="end")


async def test_denied_mcp_tools_are_not_offered(bench: Any, tmp_path: Path) -> None:
    """One tool, or a whole server, which is not started then."""
    servers = ("small", "other")
    logs = {name: MCP_SERVER | {"env": {"QUICK_LOG": str(tmp_path / name)}} for name in servers}
    adapter = bench.adapter(config={f"mcp_servers.{name}": server for name, server in logs.items()})
    options = adapter.compile(Policy(name="p", tool_rules=(Deny(("mcp__small__write", "mcp__other__*")),)))
    calls = [(server, tool, f"{server}-{tool}") for server in servers for tool in ("write", "read")]
    bench.api.reply(
        *(bench.api.call(id, tool, namespace=f"mcp__{server}", path=str(tmp_path / id)) for server, tool, id in calls)
    )
    gate = RecordingGate()
    await bench.run(gate, adapter=adapter, options=options)

    assert options.expressed == ("deny mcp__small__write", "deny mcp__other__*")
    assert [call.id for call in gate.calls] == ["small-read"]
    made = [name for *_, name in calls if (tmp_path / name).exists()]
    assert (made, [(tmp_path / name).exists() for name in servers]) == (["small-read"], [True, False])


@pytest.mark.parametrize(("sandbox", "made"), [
    ("read-only", []),
    ("workspace-write", ["inside", "new.txt"]),
    ("danger-full-access", ["inside", "new.txt", "reached"]),
])  # fmt: skip
async def test_allowed_calls_are_confined_by_the_sandbox(bench: Any, sandbox: str, made: list[str]) -> None:
    """Neither a command nor a file change writes outside its folders, and no address can be reached. A stopped
    command is not run again outside, which the client would do with some allowed commands unless its permissions
    forbid it.
    """
    port = bench.api.url.split(":")[2].split("/")[0]
    command = f"touch {bench.home}/outside; echo > /dev/tcp/127.0.0.1/{port} && touch reached; touch inside"
    bench.api.reply(bench.api.shell("c1", command))
    bench.api.reply(bench.api.patch("c2", "*** Add File: new.txt", "+x"))
    again = [bench.api.shell(f"again-{n}", f"touch {bench.home}/outside-{n}") for n in range(12)]
    bench.api.reply(*again)
    events = await bench.run(adapter=bench.adapter(sandbox=sandbox, config=NO_TEMPORARY_FOLDERS))

    failed = [event.tool_call_id for event in events if isinstance(event, ToolCallFailed)]
    free = sandbox == "danger-full-access"
    assert bench.made() == made
    assert (bench.home / "outside").exists() is free
    assert len(list(bench.home.glob("outside-*"))) == (12 if free else 0)
    assert len([name for name in failed if name.startswith("again")]) == (0 if free else 12)


async def test_the_sandbox_leaves_nothing_in_protected_folders(bench: Any, pipe: Any) -> None:
    """The client does not clean up after a killed command. Existing files and those of the run stay."""
    (bench.cwd / ".aws").mkdir()
    bench.api.reply(bench.api.shell("c1", f"echo up > {pipe}; sleep 1000"))
    adapter = bench.adapter(sandbox="workspace-write", config=NO_TEMPORARY_FOLDERS)
    async with bench.watched(adapter=adapter) as run:
        await pipe.heard()
        (bench.cwd / ".git" / "hooks").mkdir(parents=True)
        await run.cancel()

    assert bench.made(".*") == [".aws", ".git"]


async def test_the_end_of_a_run_does_not_affect_the_sandbox_of_another(bench: Any, pipe: Any) -> None:
    """Both work in one folder. If its empty folder were removed, the other's protection would be off."""
    adapter = bench.adapter(sandbox="workspace-write", config=NO_TEMPORARY_FOLDERS)
    bench.api.reply(bench.api.shell("c1", f"echo up > {pipe}; read < {pipe}; mkdir -p .git/hooks"))
    bench.api.reply(mute=True)
    held, both_open = anyio.Event(), anyio.Event()

    async def gate(_: ToolCall) -> GateAnswer:
        held.set()
        await both_open.wait()
        return GateAnswer(allowed=True)

    async with bench.watched(gate, adapter=adapter) as run:
        await held.wait()
        async with adapter.open(bench.launch()):
            await bench.api.wait_for_requests(2)  # the second reply is this run's, which never gets it
            both_open.set()
            await pipe.heard()
        await anyio.to_thread.run_sync(Path(str(pipe)).write_text, "on\n")
        await run.ended.wait()

    assert [type(event) for event in run.seen if event.type.startswith("tool_call")] == [ToolCallFailed]
    assert bench.made(".*") == []


async def test_a_command_that_the_clients_own_rules_allow_stays_in_the_sandbox(bench: Any) -> None:
    """Without the run's permissions, the client would run it outside."""
    rules = bench.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    bench.api.reply(bench.api.shell("c1", f"touch {bench.home}/outside"))
    await bench.run(adapter=bench.adapter(sandbox="workspace-write", config=NO_TEMPORARY_FOLDERS))

    assert not (bench.home / "outside").exists()


async def test_the_clients_own_sandbox_settings_apply(bench: Any) -> None:
    """More writable folders, the network."""
    (bench.home / "more").mkdir()
    port = bench.api.url.split(":")[2].split("/")[0]
    bench.api.reply(
        bench.api.shell("c1", f"touch {bench.home}/more/made; echo > /dev/tcp/127.0.0.1/{port} && touch x")
    )
    own = {"writable_roots": [str(bench.home / "more")], "network_access": True}
    config = {f"sandbox_workspace_write.{name}": value for name, value in own.items()}
    await bench.run(adapter=bench.adapter(sandbox="workspace-write", config={**NO_TEMPORARY_FOLDERS, **config}))

    assert bench.made() == ["x"]
    assert (bench.home / "more" / "made").exists()


async def test_a_stricter_rule_of_the_client_overrides_one_that_allows(bench: Any) -> None:
    """A rule that asks leaves the command to the gate. A rule that forbids denies it before the gate is asked."""
    rules = bench.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    own = {"made": "prompt", "never": "forbidden"}
    lines = (f'prefix_rule(pattern=["touch", "{file}"], decision="{rule}")\n' for file, rule in own.items())
    (rules / "own.rules").write_text("".join(lines))
    bench.api.reply(*(bench.api.shell(file, f"true && touch {file}") for file in own))
    gate = RecordingGate()
    await bench.run(gate, adapter=bench.adapter())

    assert [call.id for call in gate.calls] == ["made"]
    assert bench.made() == ["made"]
