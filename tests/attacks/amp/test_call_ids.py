"""A call id that comes again from Amp is another call: asked about, with its own outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import run_once
from proctor.supervisor.ports.adapter import GateAnswer
from tests.fuzz.call_ids import Responses, at_random, command, examples

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def again(use: dict[str, Any]) -> dict[str, Any]:
    """The same use of a tool under the id that all of them have."""
    return {**use, "use": ["u-1", *use["use"][1:]]}


def outcomes(events: list[Any]) -> list[str]:
    """The outcomes of calls, in order; a start that the gate did not permit is one."""
    kinds = (ToolCallCompleted, ToolCallFailed, ToolCallStarted)
    return [event.type.removeprefix("tool_call_") for event in events if isinstance(event, kinds)]


@pytest.mark.parametrize("names", ["aaa", "aba"])
async def test_an_id_used_again_is_asked_about_again(bench: Any, touch: Callable[..., Any], names: str) -> None:
    """With the same input or another: as many questions, as many outcomes."""
    proposed: list[str] = []

    async def gate(call: ToolCall) -> GateAnswer:
        proposed.append(call.input["command"])
        return GateAnswer(allowed=True)

    done = await bench.run(bench.adapter(*(again(touch(name)) for name in names)), answer=gate)

    assert proposed == [f"touch {name}" for name in names]
    assert outcomes(done.events) == ["completed"] * 3


async def test_an_id_refused_the_second_time_does_not_run(bench: Any, touch: Callable[..., Any]) -> None:
    """The refusal of the second is no outcome, and hides none of the first or the third."""

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=call.input["command"] != "touch b")

    done = await bench.run(bench.adapter(*(again(touch(name)) for name in "abc")), answer=gate)

    assert bench.made() == ["a", "c"]
    assert outcomes(done.events) == ["completed", "completed"]


async def test_one_id_does_not_pass_a_limit_of_calls(bench: Any, touch: Callable[..., Any]) -> None:
    """Four calls under one id, one allowed: one runs."""
    adapter = bench.adapter(*(again({**touch("a"), "run": "echo x >> log"}) for _ in range(4)))

    await run_once(
        adapter, "go", policies=parse_policies("name: p\nlimits: {max_tool_calls: {max: 1, action: deny}}")
    )

    assert (bench.cwd / "log").read_text().split() == ["x"]


@pytest.mark.parametrize("example", examples())
async def test_ids_at_random_get_nothing_past_a_policy(bench: Any, example: int) -> None:
    """A few ids, in one response and over several: what is forbidden or one too many does not run."""

    def play(script: Responses) -> Any:
        calls = [call for response in script for call in response]
        return bench.adapter(*({"use": [c.id, "Bash", {"cmd": command(c)}], "run": command(c)} for c in calls))

    await at_random(example, bench.cwd / "log", play)
