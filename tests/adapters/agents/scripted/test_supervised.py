"""The scripted agent: what it says it does, it does, and only what the gate allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies.events import (
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.adapter_fixture import Drive, Driven

HELLO = """
steps:
  - say: Looking at it.
    stream: true
  - usage: {input_tokens: 10, output_tokens: 5, cost_usd: 0.01}
  - call: write
    input: {path: notes/a.txt, content: hello}
  - call: bash
    input: {command: cat notes/a.txt}
  - say: Done.
"""


async def play(script: Any, *, tools: Any = None, gated: bool = True, workspace: Any = None, **gate: Any) -> Driven:
    """Run a script to its end."""
    adapter = ScriptedAdapter(script, tools=tools, gated=gated, workspace=workspace)
    return await Drive(adapter, **gate).run()


def made_in(workspace: Path) -> list[str]:
    """The files that are there."""
    return [path.name for path in workspace.iterdir()]


@pytest.mark.anyio
async def test_a_script_is_played_in_its_order() -> None:
    """Text, usage and calls come as written; the gate is asked between them, and the last text is the output."""
    done = await play(HELLO)

    assert [item.name if isinstance(item, ToolCall) else item.type for item in done.log] == [
        "turn_started",
        *["message_streamed"] * 3,
        "message_received",
        "token_usage_updated",
        "write",
        "tool_call_completed",
        "turn_completed",
        "turn_started",
        "bash",
        "tool_call_completed",
        "turn_completed",
        "turn_started",
        "message_received",
        "turn_completed",
        "run_completed",
    ]
    assert [call.turn for call in done.proposed] == [1, 2]
    assert done.events[-1] == RunCompleted(output="Done.")


@pytest.mark.anyio
async def test_streamed_pieces_make_up_the_text() -> None:
    """What is streamed is what is said."""
    done = await play(HELLO)

    pieces = "".join(event.delta for event in done.events if isinstance(event, MessageStreamed))
    message = next(event for event in done.events if isinstance(event, MessageReceived))
    assert pieces == message.content == "Looking at it."


@pytest.mark.anyio
async def test_commands_really_run(tmp_path: Path) -> None:
    """A shell command sees the file the call before it wrote, in the given workspace."""
    done = await play(HELLO, workspace=tmp_path)

    assert (tmp_path / "notes" / "a.txt").read_text() == "hello"
    assert done.outcomes("call-2") == [
        ToolCallCompleted(tool_call_id="call-2", tool_name="bash", tool_output={"exit_code": 0, "stdout": "hello"})
    ]


@pytest.mark.anyio
async def test_a_refused_call_does_not_run_and_the_agent_can_react(tmp_path: Path) -> None:
    """No effect, no outcome; the steps under `if_denied` follow, others do not."""
    script = """
    steps:
      - call: bash
        input: {command: touch forbidden}
        if_denied: [{say: Then not.}]
        if_completed: [{say: Ha.}]
    """
    done = await play(script, workspace=tmp_path, refuse={"bash"})

    assert made_in(tmp_path) == []
    assert done.outcomes("call-1") == []
    assert done.events[-1] == RunCompleted(output="Then not.")


@pytest.mark.anyio
async def test_a_call_runs_only_after_the_gate_has_answered(tmp_path: Path) -> None:
    """While the gate holds the call, nothing of it has happened."""

    async def look(call: ToolCall) -> GateAnswer:
        await anyio.lowlevel.checkpoint()
        assert made_in(tmp_path) == []
        return GateAnswer(allowed=True)

    done = await play("steps:\n  - {call: bash, input: {command: touch made}}", workspace=tmp_path, answer=look)

    assert made_in(tmp_path) == ["made"]
    assert done.error is None


@pytest.mark.anyio
async def test_a_rewritten_input_is_the_one_that_runs(tmp_path: Path) -> None:
    """The gate's input replaces the one asked for."""

    async def rewrite(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=True, input={"command": "touch safe"})

    await play("steps:\n  - {call: bash, input: {command: touch bad}}", workspace=tmp_path, answer=rewrite)

    assert made_in(tmp_path) == ["safe"]


@pytest.mark.anyio
async def test_an_agent_told_to_stop_asks_for_nothing_more() -> None:
    """After a refusal that stops, no step follows and no end is claimed."""
    done = await play("steps:\n  - {call: a}\n  - {call: b}\n  - say: still here", refuse={"a"}, stop=True)

    assert [call.name for call in done.proposed] == ["a"]
    assert done.types == ["turn_started", "turn_completed"]


@pytest.mark.anyio
async def test_without_a_gate_calls_are_reported_and_run_at_once() -> None:
    """Ungated, the stream says that a call started before it says how it ended."""
    done = await play("steps:\n  - {call: bash, input: {command: echo hi}}", gated=False, refuse={"bash"})

    assert done.proposed == []
    started = done.events[1]
    assert isinstance(started, ToolCallStarted)
    assert started.tool_input == {"command": "echo hi"}
    assert done.types[2] == "tool_call_completed"


@pytest.mark.anyio
async def test_a_failing_agent_reports_its_failure_last() -> None:
    """`fail` ends the run with its message, and nothing follows."""
    done = await play("steps:\n  - say: a\n  - fail: out of credit\n  - say: b")

    assert done.events[-1] == RunFailed(error={"code": "scripted_failure", "message": "out of credit"})
    assert [event.content for event in done.events if isinstance(event, MessageReceived)] == ["a"]


@pytest.mark.anyio
async def test_every_other_step_is_an_event_of_its_own() -> None:
    """User messages, thinking, an output that is no text, cumulative usage with its own model."""
    script = """
    model: m-1
    files: {in/a.txt: text}
    steps:
      - user: go on
      - think: hm
      - usage: {scope: cumulative, input_tokens: 7, model: m-2}
      - {call: read, input: {path: in/a.txt}}
      - output: {answer: 42}
    """
    done = await play(script)

    assert done.types[:3] == ["message_sent", "turn_started", "message_received"]
    usage = next(event for event in done.events if isinstance(event, TokenUsageUpdated))
    assert (usage.scope, usage.input_tokens, usage.model) == ("cumulative", 7, "m-2")
    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == "text"
    assert done.events[-1] == RunCompleted(output={"answer": 42})
