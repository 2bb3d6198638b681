"""The real client: every call asks the gate, and the gate's word holds."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies.events import (
    RunCompleted,
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


def tool_results(api: Any) -> str:
    """The tool results the model got with the last request."""
    blocks = api.requests[-1]["messages"][-1]["content"]
    return str([block.get("content") for block in blocks if block["type"] == "tool_result"])


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


async def test_parallel_calls_ask_while_the_others_are_held(bench: Any) -> None:
    """Three calls of one response are at the gate at the same time, all of the same turn."""
    api, proposed = bench.api, []
    api.say(
        api.reply(api.bash("echo one"), api.bash("echo two"), api.bash("echo three")),
        api.reply(api.text("done")),
    )
    all_there = anyio.Event()

    async def gate(call: ToolCall) -> GateAnswer:
        proposed.append(call)
        if len(proposed) == 3:
            all_there.set()
        await all_there.wait()
        return GateAnswer(allowed=True)

    events = await bench.run(bench.adapter(), gate)

    assert {call.turn for call in proposed} == {1}
    assert {event.tool_output for event in of(events, ToolCallCompleted)} == {"one", "two", "three"}


async def test_a_denied_call_never_runs_and_the_session_continues(bench: Any) -> None:
    """The model gets the gate's words and nothing else; no outcome is reported for what never ran."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("as you wish")))

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=False, tell_model="not here")

    events = await bench.run(bench.adapter(), gate)

    assert not (bench.cwd / "never.txt").exists()
    assert "not here" in tool_results(api)
    assert not of(events, ToolCallCompleted, ToolCallFailed, ToolCallStarted)
    assert events[-1].output == "as you wish"


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


async def test_a_stop_ends_the_run_without_another_request(bench: Any) -> None:
    """The client asks the model for nothing more once the gate said stop."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("never asked for")))

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=False, tell_model="no", stop=True)

    events = await bench.run(bench.adapter(), gate)

    assert not (bench.cwd / "never.txt").exists()
    assert len(api.requests) == 1
    assert not any(isinstance(event, RunCompleted) for event in events)


async def test_the_gate_holds_inside_a_sub_agent(bench: Any) -> None:
    """A sub-agent's call asks too, in the turn of the call that started it; refused, it does not run."""
    api, proposed = bench.api, []
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.tool("Agent", run_in_background=False, **start)),
        api.reply(api.text("main done")),
    )
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("sub done")), sub=True)

    async def gate(call: ToolCall) -> GateAnswer:
        proposed.append(call)
        return GateAnswer(allowed=call.name != "Bash", tell_model="no shell")

    events = await bench.run(bench.adapter("Bash", "Agent"), gate)

    assert [(call.name, call.turn) for call in proposed] == [("Agent", 1), ("Bash", 1)]
    assert not (bench.cwd / "never.txt").exists()
    assert [event.turn for event in of(events, TurnStarted)] == [1, 2]
    assert events[-1].output == "main done"


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
