"""Reports of the real Codex: a reused id is a new call, and false usage ends the run."""

from typing import Any

import anyio
import pytest
from supervised import RecordingGate, in_turn

from proctor.policies import ToolCall, parse_policies
from proctor.supervisor import GateAnswer, ProctorError, run_once
from tests.fuzz.call_ids import Responses, at_random, command, examples, outcomes

pytestmark = [pytest.mark.codex, pytest.mark.anyio]


async def test_a_reused_id_is_asked_about_again_in_its_own_turn(bench: Any) -> None:
    """With the same input or another: each call has its own question, and each allowed call its own outcome. A denied
    call has none, and hides no outcome before or after it.
    """
    commands = [f"echo {word} >> log" for word in "xxyxx"]
    for line in commands:
        bench.api.reply(bench.api.shell("c1", line))
    gate = RecordingGate(in_turn(True, True, True, False, True))

    events = await bench.run(gate)

    proposed = [(call.input["command"], call.turn) for call in gate.calls]
    assert proposed == [(command, turn) for turn, command in enumerate(commands, 1)]
    assert outcomes(events) == ["completed"] * 4
    assert (bench.cwd / "log").read_text().split() == ["x", "x", "y", "x"]


async def test_a_patch_with_a_reused_id_is_asked_about_again(bench: Any) -> None:
    """After a command and after a patch, as a command is."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"))
    bench.api.reply(bench.api.patch("c1", "*** Add File: a.txt", "+a"))
    bench.api.reply(bench.api.patch("c1", "*** Add File: b.txt", "+b"))
    gate = RecordingGate(in_turn(True, True, False))

    events = await bench.run(gate)

    assert [call.name for call in gate.calls] == ["shell", "apply_patch", "apply_patch"]
    assert bench.made() == ["a.txt", "log"]
    assert outcomes(events) == ["completed", "completed"]


@pytest.mark.parametrize("second", ["echo x >> log", "echo y >> log"])
async def test_of_two_calls_with_one_id_in_a_response_neither_runs_with_the_others_approval(
    bench: Any, second: str
) -> None:
    """The client would use the answer to the first question for the second, so both are denied."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"), bench.api.shell("c1", second))

    async def gate(call: ToolCall) -> GateAnswer:
        while sum(path.read_text().count('"type":"function_call",') for path in bench.home.rglob("*.jsonl")) < 2:
            await anyio.sleep(0.01)  # the client has both calls; before that, the first may be allowed
        return GateAnswer(allowed="echo x" in call.input["command"])

    await bench.run(gate)

    assert bench.made() == []


async def test_a_second_call_with_the_id_of_a_running_one_is_denied_and_ends_the_run(bench: Any, pipe: Any) -> None:
    """It does not run. Which of them got the approval is unknown, so the run ends."""
    bench.api.reply(
        bench.api.shell("c1", f"echo up > {pipe}; tail -f /dev/null"), bench.api.shell("c1", "touch second")
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


@pytest.mark.parametrize("example", examples())
async def test_random_ids_evade_no_rule(bench: Any, example: int) -> None:
    """A few ids, in one response and in several: neither a denied call nor one beyond a limit runs."""

    def play(script: Responses) -> Any:
        for response in script:
            bench.api.reply(*(bench.api.shell(call.id, command(call)) for call in response))
        return bench.adapter()

    await at_random(example, bench.cwd / "log", play)


async def test_usage_that_falls_ends_the_run(bench: Any) -> None:
    """A response with negative usage makes the client's total fall."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"))
    bench.api.reply(bench.api.shell("c2", "echo y >> log"), used=(-90, 20))
    for n in range(3):
        bench.api.reply(bench.api.shell(f"d{n}", "echo z >> log"))

    with pytest.raises(ProctorError) as raised:
        await run_once(bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 100000}"))

    assert "inputTokens" in str(raised.value)
    assert (bench.cwd / "log").read_text().split().count("z") == 0
