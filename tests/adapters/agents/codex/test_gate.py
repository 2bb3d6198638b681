"""Everything the client does is asked about first, with what it would really do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.policies.events import Event, RunCompleted, ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.codex,
    pytest.mark.parametrize("anyio_backend", ["trio"]),
]

ALLOW = GateAnswer(allowed=True)
REFUSE = GateAnswer(allowed=False)
MCP_SERVER = str(Path(__file__).with_name("mcp_server.py"))


def outcomes(events: list[Event]) -> list[tuple[str, str]]:
    """The ids of calls that ended, with how."""
    ended = [event for event in events if isinstance(event, (ToolCallCompleted, ToolCallFailed))]
    return sorted((event.tool_call_id, event.type) for event in ended)


def called(folder: Path) -> list[str]:
    """The MCP server's tools that ran."""
    return sorted(path.name for path in folder.glob("*.called"))


async def test_an_allowed_command_runs_and_its_output_is_reported(bench: Any, gate_that: Any) -> None:
    """The gate sees the command itself, not the shell around it."""
    bench.api.reply(bench.api.shell("c1", "echo 'a b'; touch made"))
    gate = gate_that()
    events = await bench.run(gate)

    proposed = {"command": "echo 'a b'; touch made", "cwd": str(bench.cwd)}
    assert gate.calls == [ToolCall(id="c1", name="shell", input=proposed, turn=1)]
    done = ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output={"exit_code": 0, "output": "a b\n"})
    assert done in events
    assert (bench.cwd / "made").exists()
    assert not any(isinstance(event, ToolCallStarted) for event in events)


async def test_a_declined_command_does_not_run_and_the_agent_is_told(bench: Any, gate_that: Any) -> None:
    """The run goes on after a refusal."""
    bench.api.reply(bench.api.shell("c1", "touch made"))
    events = await bench.run(gate_that(lambda call: REFUSE))

    assert not (bench.cwd / "made").exists()
    assert "rejected" in bench.api.result_of("c1")
    assert outcomes(events) == []
    assert events[-1] == RunCompleted(output="end")


async def test_parallel_commands_are_each_decided_on_their_own(bench: Any, gate_that: Any) -> None:
    """Three calls of one response, one of them refused."""
    calls = [bench.api.shell(f"c{n}", f"touch made{n}") for n in range(3)]
    bench.api.reply(*calls)
    gate = gate_that(lambda call: REFUSE if call.id == "c1" else ALLOW)
    events = await bench.run(gate)

    assert sorted((call.id, call.turn) for call in gate.calls) == [("c0", 1), ("c1", 1), ("c2", 1)]
    assert bench.made() == ["made0", "made2"]
    assert outcomes(events) == [("c0", "tool_call_completed"), ("c2", "tool_call_completed")]


async def test_a_command_that_fails_is_reported_as_failed(bench: Any) -> None:
    """With its exit code."""
    bench.api.reply(bench.api.shell("c1", "echo no; exit 3"))
    events = await bench.run()

    failed = ToolCallFailed(tool_call_id="c1", tool_name="shell", error={"exit_code": 3, "output": "no\n"})
    assert failed in events


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_file_change_is_made_only_if_allowed(bench: Any, gate_that: Any, allowed: bool) -> None:
    """The gate sees path, kind and content of every change."""
    bench.api.reply(bench.api.patch("c1", "*** Add File: new.txt", "+hello"))
    gate = gate_that(lambda call: GateAnswer(allowed=allowed))
    events = await bench.run(gate)

    path = bench.cwd / "new.txt"
    change = {"path": str(path), "kind": "add", "diff": "hello\n"}
    assert gate.calls == [ToolCall(id="c1", name="apply_patch", input={"changes": [change]}, turn=1)]
    assert path.exists() is allowed
    assert outcomes(events) == ([("c1", "tool_call_completed")] if allowed else [])


@pytest.mark.parametrize("mode", ["auto", "approve"])
async def test_every_mcp_call_is_asked_about_whatever_the_settings_say(
    bench: Any, gate_that: Any, mode: str, tmp_path: Path
) -> None:
    """Tools that say they only read, and servers trusted in the client's settings, are asked about too."""
    server = {
        "command": sys.executable, "args": [MCP_SERVER, str(tmp_path)], "default_tools_approval_mode": mode,
    }  # fmt: skip
    adapter = bench.adapter(config={"mcp_servers.small": server})
    bench.api.reply(
        bench.api.call("c1", "echo", namespace="mcp__small", text="a"),
        bench.api.call("c2", "peek", namespace="mcp__small", text="b"),
    )
    gate = gate_that(lambda call: REFUSE if call.name.endswith("echo") else ALLOW)
    events = await bench.run(gate, adapter=adapter)

    proposed = sorted((call.id, call.name, json.dumps(call.input)) for call in gate.calls)
    assert proposed == [("c1", "mcp__small__echo", '{"text": "a"}'), ("c2", "mcp__small__peek", '{"text": "b"}')]
    assert called(tmp_path) == ["peek.called"]
    assert ToolCallCompleted(tool_call_id="c2", tool_name="mcp__small__peek", tool_output="said b") in events


@pytest.mark.parametrize("allow_escalation", [False, True])
@pytest.mark.parametrize("justification", [{}, {"justification": "must"}])
async def test_a_command_leaves_the_sandbox_only_if_the_caller_said_so(
    bench: Any, gate_that: Any, allow_escalation: bool, justification: dict[str, str]
) -> None:
    """The client's request does not say that a command would; what the model wrote does."""
    escalate = {"sandbox_permissions": "require_escalated", **justification}
    bench.api.reply(bench.api.shell("c1", "touch made", **escalate), bench.api.shell("c2", "true"))
    adapter = bench.adapter(sandbox="workspace-write", allow_escalation=allow_escalation)
    gate = gate_that()
    events = await bench.run(gate, adapter=adapter)

    assert {call.id: call.input.get("escalated") for call in gate.calls} == {"c1": True, "c2": None}
    assert (bench.cwd / "made").exists() is allow_escalation
    failed = "tool_call_completed" if allow_escalation else "tool_call_failed"
    assert outcomes(events) == [("c1", failed), ("c2", "tool_call_completed")]


async def test_a_file_change_outside_the_workspace_is_not_made(bench: Any, tmp_path: Path) -> None:
    """The client itself would make any change that is approved."""
    bench.api.reply(bench.api.patch("c1", f"*** Add File: {tmp_path}/outside.txt", "+x"))
    events = await bench.run(adapter=bench.adapter(sandbox="workspace-write"))

    assert not (tmp_path / "outside.txt").exists()
    assert outcomes(events) == [("c1", "tool_call_failed")]


async def test_a_running_command_cannot_be_given_input(bench: Any) -> None:
    """Text typed into a terminal would not be asked about, so there are no terminals."""
    bench.api.reply(bench.api.shell("c1", "cat > typed", tty=True))
    await bench.run()

    assert "TTY execution is disabled" in bench.api.result_of("c1")


async def test_a_gate_that_fails_ends_the_run(bench: Any, gate_that: Any) -> None:
    """An error of ours lets nothing through."""

    def broken(call: ToolCall) -> GateAnswer:
        raise RuntimeError("broken")

    bench.api.reply(bench.api.shell("c1", "touch made"), bench.api.patch("c2", "*** Add File: b", "+x"))
    with pytest.raises(ProviderError, match="the gate failed"):
        await bench.run(gate_that(broken))

    assert bench.made() == []


async def test_an_answer_that_stops_ends_the_turn_without_another_response(bench: Any, gate_that: Any) -> None:
    """The client is told to cancel together with the refusal."""
    bench.api.reply(bench.api.shell("c1", "touch made"), bench.api.shell("c2", "touch made"))
    await bench.run(gate_that(lambda call: GateAnswer(allowed=False, stop=True)))

    assert bench.made() == []
    assert len(bench.api.requests) == 1


async def test_a_call_with_another_input_than_asked_for_does_not_run(bench: Any, gate_that: Any) -> None:
    """The client cannot rewrite, so the call fails instead of running as it was."""
    bench.api.reply(bench.api.shell("c1", "touch made"))
    rewritten = GateAnswer(allowed=True, input={"command": "true"})
    events = await bench.run(gate_that(lambda call: rewritten))

    assert outcomes(events) == [("c1", "tool_call_failed")]
    assert bench.made() == []
