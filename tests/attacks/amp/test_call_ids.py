"""A call id that comes again from Amp is another call: asked about, with its own outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.supervisor.ports import GateAnswer

pytestmark = pytest.mark.anyio


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
    asked: list[str] = []

    async def gate(call: ToolCall) -> GateAnswer:
        asked.append(call.input["command"])
        return GateAnswer(allowed=True)

    done = await bench.run(bench.adapter(*(again(touch(name)) for name in names)), answer=gate)

    assert asked == [f"touch {name}" for name in names]
    assert outcomes(done.events) == ["completed"] * 3


async def test_an_id_refused_the_second_time_does_not_run(bench: Any, touch: Callable[..., Any]) -> None:
    """The refusal of the second is no outcome, and hides none of the first or the third."""

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=call.input["command"] != "touch b")

    done = await bench.run(bench.adapter(*(again(touch(name)) for name in "abc")), answer=gate)

    assert bench.made() == ["a", "c"]
    assert outcomes(done.events) == ["completed", "completed"]
