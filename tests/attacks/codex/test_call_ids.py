"""A call id that comes again on the real Codex client is another call: asked about, counted, with its own outcome."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import run_once
from proctor.supervisor.ports.adapter import GateAnswer
from tests.fuzz.call_ids import Responses, at_random, command, examples

pytestmark = [pytest.mark.codex, pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def outcomes(events: list[Any]) -> list[str]:
    """The outcomes of calls, in order; a start that the gate did not permit is one."""
    kinds = (ToolCallCompleted, ToolCallFailed, ToolCallStarted)
    return [event.type.removeprefix("tool_call_") for event in events if isinstance(event, kinds)]


def answering(*allowed: bool) -> Any:
    """A function that answers calls in turn."""
    left = list(allowed)

    def decide(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=left.pop(0))

    return decide


@pytest.mark.parametrize("again", ["echo x >> log", "echo y >> log"])
async def test_an_id_used_again_is_asked_about_again_in_its_own_turn(bench: Any, gate_that: Any, again: str) -> None:
    """Three responses use one id, with the same input or another: three questions, three outcomes."""
    for line in ("echo x >> log", again, "echo x >> log"):
        bench.api.reply(bench.api.shell("c1", line))
    gate = gate_that()

    events = await bench.run(gate)

    assert [(call.input["command"], call.turn) for call in gate.calls] == [
        ("echo x >> log", 1),
        (again, 2),
        ("echo x >> log", 3),
    ]
    assert outcomes(events) == ["completed"] * 3


async def test_an_id_refused_the_second_time_runs_twice(bench: Any, gate_that: Any) -> None:
    """The refusal of the second is no outcome, and hides none of the first or the third."""
    for _ in range(3):
        bench.api.reply(bench.api.shell("c1", "echo x >> log"))

    events = await bench.run(gate_that(answering(True, False, True)))

    assert (bench.cwd / "log").read_text().split() == ["x", "x"]
    assert outcomes(events) == ["completed", "completed"]


async def test_a_patch_under_a_used_id_is_asked_about_again(bench: Any, gate_that: Any) -> None:
    """As a command is, after a command and after a patch."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"))
    bench.api.reply(bench.api.patch("c1", "*** Add File: a.txt", "+a"))
    bench.api.reply(bench.api.patch("c1", "*** Add File: b.txt", "+b"))
    gate = gate_that(answering(True, True, False))

    events = await bench.run(gate)

    assert [call.name for call in gate.calls] == ["shell", "apply_patch", "apply_patch"]
    assert bench.made() == ["a.txt", "log"]
    assert outcomes(events) == ["completed", "completed"]


@pytest.mark.parametrize("second", ["echo x >> log", "echo y >> log"])
async def test_of_two_calls_of_one_response_with_one_id_none_runs_under_the_others_permission(
    bench: Any, gate_that: Any, second: str
) -> None:
    """The client takes an answer to the first question for the second: so neither is permitted."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"), bench.api.shell("c1", second))
    gate = gate_that(lambda call: GateAnswer(allowed="echo x" in call.input["command"]))

    await bench.run(gate)

    assert bench.made() == []


async def test_a_second_call_under_the_id_of_one_that_runs_is_refused_and_ends_the_run(
    bench: Any, gate_that: Any, pipe: Any
) -> None:
    """It does not run; which of them the permission went to cannot be known, so the run does not go on."""
    bench.api.reply(
        bench.api.shell("c1", f"echo up > {pipe}; tail -f /dev/null"),
        bench.api.shell("c1", "touch second"),
    )
    first_answered = anyio.Event()

    class Gate:
        async def __call__(self, call: ToolCall) -> GateAnswer:
            first_answered.set()
            return GateAnswer(allowed=True)

    async with bench.watched(Gate()) as run:
        await first_answered.wait()
        await run.ended.wait()

    assert bench.made() == []


async def test_one_id_does_not_pass_a_limit_of_calls(bench: Any) -> None:
    """Four calls under one id, one allowed: one runs."""
    for _ in range(4):
        bench.api.reply(bench.api.shell("c1", "echo x >> log"))

    await run_once(
        bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_tool_calls: {max: 1, action: deny}}")
    )

    assert (bench.cwd / "log").read_text().split() == ["x"]


@pytest.mark.parametrize("example", examples())
async def test_ids_at_random_get_nothing_past_a_policy(bench: Any, example: int) -> None:
    """A few ids, in one response and over several: what is forbidden or one too many does not run."""

    def play(script: Responses) -> Any:
        for response in script:
            bench.api.reply(*(bench.api.shell(call.id, command(call)) for call in response))
        return bench.adapter()

    await at_random(example, bench.cwd / "log", play)
