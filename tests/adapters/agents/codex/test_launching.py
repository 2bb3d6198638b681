"""What a policy compiles to, in force in the real client; what it does not compile to, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.policies.events import RunCompleted, ToolCallFailed
from proctor.policies.policy import Deny, Policy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.codex,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]

MCP_SERVER = str(Path(__file__).with_name("mcp_server.py"))
NO_TEMPORARY_FOLDERS = {
    "sandbox_workspace_write.exclude_slash_tmp": True, "sandbox_workspace_write.exclude_tmpdir_env_var": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "turned_on", "offered"),
    [
        ("shell", {}, "exec_command"),
        ("view_image", {"features": {"view_image": True}}, "view_image"),
        ("web_search", {"config": {"web_search": "live"}}, "web_search"),
    ],
)
async def test_a_tool_that_a_policy_takes_away_is_not_offered_to_the_model(
    bench: Any, tool: str, turned_on: dict[str, Any], offered: str
) -> None:
    """Also where the caller turned it on."""
    adapter = bench.adapter(**turned_on)
    options = adapter.compile(Policy(name="p", tool_rules=(Deny((tool,)),)))
    await bench.run(adapter=adapter)
    before = bench.api.offered()
    await bench.run(adapter=adapter, options=options)

    assert offered in before
    assert offered not in bench.api.offered()
    assert "apply_patch" in bench.api.offered()


async def test_a_call_to_a_tool_that_was_taken_away_does_not_run(bench: Any, gate_that: Any) -> None:
    """A model that asks for it all the same is told by the client; there is nothing to ask the gate."""
    adapter = bench.adapter()
    options = adapter.compile(Policy(name="p", tool_rules=(Deny(("shell",)),)))
    bench.api.reply(bench.api.shell("c1", "touch made"))
    gate = gate_that()
    events = await bench.run(gate, adapter=adapter, options=options)

    assert gate.calls == []
    assert bench.made() == []
    assert events[-1] == RunCompleted(output="end")


@pytest.mark.parametrize(("denied", "left"), [("mcp__small__echo", ["peek"]), ("mcp__small__*", [])])
async def test_denied_mcp_tools_are_not_offered(
    bench: Any, gate_that: Any, tmp_path: Path, denied: str, left: list[str]
) -> None:
    """One tool, or the whole server, which then is not started."""
    server = {"command": sys.executable, "args": [MCP_SERVER, str(tmp_path)]}
    adapter = bench.adapter(config={"mcp_servers.small": server})
    options = adapter.compile(Policy(name="p", tool_rules=(Deny((denied,)),)))
    calls = [bench.api.call(name, name, namespace="mcp__small", text="a") for name in ("echo", "peek")]
    bench.api.reply(*calls)
    gate = gate_that()
    await bench.run(gate, adapter=adapter, options=options)

    assert options.expressed == (f"deny {denied}",)
    assert [call.id for call in gate.calls] == left
    assert sorted(path.stem for path in tmp_path.glob("*.called")) == left  # noqa: ASYNC240
    assert (tmp_path / "started").exists() is bool(left)


@pytest.mark.parametrize(
    ("sandbox", "made"),
    [("read-only", []), ("workspace-write", ["inside"]), ("danger-full-access", ["inside", "reached"])],
)
async def test_an_allowed_command_is_held_by_the_sandbox(bench: Any, sandbox: str, made: list[str]) -> None:
    """Outside its folders nothing is written, and no address is reached."""
    port = bench.api.url.split(":")[2].split("/")[0]
    command = f"touch {bench.home}/outside; echo > /dev/tcp/127.0.0.1/{port} && touch reached; touch inside"
    bench.api.reply(bench.api.shell("c1", command))
    await bench.run(adapter=bench.adapter(sandbox=sandbox, config=NO_TEMPORARY_FOLDERS))

    assert bench.made() == made
    assert (bench.home / "outside").exists() is ("reached" in made)


@pytest.mark.parametrize("sandbox", ["read-only", "workspace-write"])
async def test_a_command_that_the_sandbox_stops_is_not_run_again_without_it(bench: Any, sandbox: str) -> None:
    """Which the client does by itself with some of the commands that were allowed, unless its permissions forbid."""
    commands = [bench.api.shell(f"c{n}", f"touch {bench.home}/outside-{n}") for n in range(12)]
    bench.api.reply(*commands)
    events = await bench.run(adapter=bench.adapter(sandbox=sandbox, config=NO_TEMPORARY_FOLDERS))

    assert len([event for event in events if isinstance(event, ToolCallFailed)]) == len(commands)
    assert list(bench.home.glob("outside-*")) == []


@pytest.mark.parametrize(("sandbox", "made"), [("read-only", []), ("workspace-write", ["new.txt"])])
async def test_an_allowed_file_change_is_held_by_the_sandbox(bench: Any, sandbox: str, made: list[str]) -> None:
    """As a command is."""
    bench.api.reply(bench.api.patch("c1", "*** Add File: new.txt", "+x"))
    await bench.run(adapter=bench.adapter(sandbox=sandbox))

    assert bench.made() == made


async def test_the_sandbox_leaves_nothing_in_the_folders_it_guards(bench: Any) -> None:
    """Nor takes away what was there, or what the run made."""
    (bench.cwd / ".aws").mkdir()
    adapter = bench.adapter(sandbox="workspace-write", config=NO_TEMPORARY_FOLDERS)
    async with bench.watched(adapter=adapter) as run:
        (bench.cwd / ".git" / "hooks").mkdir(parents=True)
        await run.ended.wait()

    assert bench.made(".*") == [".aws", ".git"]


async def test_a_command_its_own_rules_let_through_stays_in_the_sandbox(bench: Any) -> None:
    """Without the permissions of the run, the client would run it outside."""
    rules = bench.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    bench.api.reply(bench.api.shell("c1", f"touch {bench.home}/outside"))
    await bench.run(adapter=bench.adapter(sandbox="workspace-write", config=NO_TEMPORARY_FOLDERS))

    assert not (bench.home / "outside").exists()


async def test_the_clients_own_settings_of_the_sandbox_hold(bench: Any) -> None:
    """More folders to write to, the network."""
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


@pytest.mark.parametrize(("stricter", "reaches_the_gate"), [("prompt", True), ("forbidden", False)])
async def test_the_clients_own_rule_that_is_stricter_wins_over_one_that_permits(
    bench: Any, gate_that: Any, stricter: str, reaches_the_gate: bool
) -> None:
    """One that asks gives the command back to the gate; one that forbids refuses it before the gate hears of it."""
    rules = bench.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    (rules / "own.rules").write_text(f'prefix_rule(pattern=["touch", "made"], decision="{stricter}")\n')
    bench.api.reply(bench.api.shell("c1", "true && touch made"))
    gate = gate_that()
    await bench.run(gate, adapter=bench.adapter())

    assert [call.id for call in gate.calls] == (["c1"] if reaches_the_gate else [])
    assert bench.made() == (["made"] if reaches_the_gate else [])
