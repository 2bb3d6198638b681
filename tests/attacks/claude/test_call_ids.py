"""A call id that comes again on the real Claude Code client is another call: asked about, with its own outcome."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import run_once
from proctor.supervisor.ports.adapter import GateAnswer
from tests.fuzz.call_ids import Responses, at_random, command, examples

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


class Gate:
    """Answers calls in turn, and keeps them with the turn they came in."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.proposed: list[tuple[str, int]] = []

    async def __call__(self, call: ToolCall) -> GateAnswer:
        self.proposed.append((call.input["command"], call.turn))
        allowed = self.answers.pop(0)
        return GateAnswer(allowed=allowed, tell_model=None if allowed else f"refusal {len(self.proposed)}")


def outcomes(events: list[Any]) -> list[str]:
    """The outcomes of calls, in order; a start that the gate did not permit is one."""
    kinds = (ToolCallCompleted, ToolCallFailed, ToolCallStarted)
    return [event.type.removeprefix("tool_call_") for event in events if isinstance(event, kinds)]


@pytest.mark.parametrize("again", ["echo x >> log", "echo y >> log"])
async def test_an_id_used_again_is_asked_about_again_in_its_own_turn(bench: Any, again: str) -> None:
    """Three responses use one id, with the same input or another: three questions, three outcomes."""
    api, gate = bench.api, Gate(True, True, True)
    first = api.bash("echo x >> log")
    second = {**first, "input": {**first["input"], "command": again}}
    api.say(api.reply(first), api.reply(second), api.reply(first), api.reply(api.text("done")))

    events = await bench.run(bench.adapter(), gate)

    assert gate.proposed == [("echo x >> log", 1), (again, 2), ("echo x >> log", 3)]
    assert outcomes(events) == ["completed"] * 3


async def test_an_id_refused_the_second_time_runs_once(bench: Any) -> None:
    """The refusal of the second is no outcome, and hides none of the first or the third."""
    api, gate = bench.api, Gate(True, False, True)
    call = api.bash("echo x >> log")
    api.say(*(api.reply(call) for _ in range(3)), api.reply(api.text("done")))

    events = await bench.run(bench.adapter(), gate)

    assert (bench.cwd / "log").read_text().split() == ["x", "x"]
    assert outcomes(events) == ["completed", "completed"]


@pytest.mark.parametrize("command", ["echo x >> log", "echo x"])
async def test_an_id_used_twice_in_one_response_has_the_outcome_of_the_first(bench: Any, command: str) -> None:
    """Whether the client runs them one after another or in parallel, the first runs and is reported as completed."""
    api, gate = bench.api, Gate(True, False)
    call = api.bash(command)
    api.say(api.reply(call, call), api.reply(api.text("done")))

    events = await bench.run(bench.adapter(), gate)

    assert outcomes(events) == ["completed"]


async def test_one_id_does_not_pass_a_limit_of_calls(bench: Any) -> None:
    """Four calls under one id, one allowed: one runs."""
    call = bench.api.bash("echo x >> log")
    bench.api.say(*(bench.api.reply(call) for _ in range(4)), bench.api.reply(bench.api.text("done")))

    await run_once(
        bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_tool_calls: {max: 1, action: deny}}")
    )

    assert (bench.cwd / "log").read_text().split() == ["x"]


@pytest.mark.parametrize("example", examples())
async def test_ids_at_random_get_nothing_past_a_policy(bench: Any, example: int) -> None:
    """A few ids, in one response and over several: what is forbidden or one too many does not run."""

    def play(script: Responses) -> Any:
        api = bench.api
        for response in script:
            api.say(api.reply(*({**api.bash(command(call)), "id": call.id} for call in response)))
        api.say(api.reply(api.text("done")))
        return bench.adapter()

    await at_random(example, bench.cwd / "log", play)
