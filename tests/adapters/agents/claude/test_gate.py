"""The real client: every call asks the gate, and the gate's word holds."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies.events import (
    SessionStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnStarted,
    Unrecognized,
)
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


def of(events: list[Any], *types: type) -> list[Any]:
    """The events of these types."""
    return [event for event in events if isinstance(event, types)]


async def test_an_allowed_call_asks_once_runs_and_completes(bench: Any) -> None:
    """The gate sees the call's own input and turn; its outcome follows, and the answer ends the run."""
    api, proposed = bench.api, []
    api.say(api.reply(api.text("I will"), api.bash("echo out")), api.reply(api.text("done")))

    async def gate(call: ToolCall) -> GateAnswer:
        proposed.append(call)
        return GateAnswer(allowed=True)

    events = await bench.run(bench.adapter(), gate)

    [call] = proposed
    assert (call.name, call.input["command"], call.turn) == ("Bash", "echo out", 1)
    assert of(events, ToolCallCompleted) == [
        ToolCallCompleted(tool_call_id=call.id, tool_name="Bash", tool_output="out")
    ]
    assert events[-1].output == "done"
    assert [event.turn for event in of(events, TurnStarted)] == [1, 2]
    assert of(events, SessionStarted)[0].metadata["tools"] == ["Bash"]
    assert not of(events, ToolCallStarted, Unrecognized)


async def test_a_gate_that_raises_ends_the_run_and_its_error_stays_here(bench: Any) -> None:
    """The call does not run, and the exception's text does not reach the model."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("oh")))

    async def gate(call: ToolCall) -> GateAnswer:
        raise RuntimeError("secret rule 7 broke")

    with pytest.raises(ProviderError, match="the gate failed"):
        await bench.run(bench.adapter(), gate)

    assert not (bench.cwd / "never.txt").exists()
    assert "secret rule" not in str(api.requests)


async def test_the_run_continues_until_background_agents_are_done(bench: Any) -> None:
    """A result while a sub-agent still works is not the end: its calls ask and its usage counts."""
    api, proposed = bench.api, []
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.tool("Agent", run_in_background=True, **start)),
        api.reply(api.text("it is running")),
        api.reply(api.text("it is done")),
    )
    api.say(api.reply(api.bash("echo sub"), input_tokens=500), api.reply(api.text("sub done")), sub=True)

    async def gate(call: ToolCall) -> GateAnswer:
        proposed.append(call.name)
        return GateAnswer(allowed=True)

    events = await bench.run(bench.adapter("Bash", "Agent"), gate)

    assert proposed == ["Agent", "Bash"]
    assert events[-1].output == "it is done"
    assert events[-1].usage["input_tokens"] == 3 * 100 + 500 + 100


async def test_the_callers_own_permission_mode_stays_in_force(bench: Any) -> None:
    """What the gate allows still needs the client's permission where the caller set one up."""
    api = bench.api
    api.say(api.reply(api.bash("touch asked.txt")), api.reply(api.text("done")))

    events = await bench.run(bench.adapter(permission_mode="dontAsk"))

    assert not (bench.cwd / "asked.txt").exists()
    assert len(of(events, ToolCallFailed)) == 1
