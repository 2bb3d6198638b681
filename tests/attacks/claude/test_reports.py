"""Reports of the real Claude Code: a reused id is a new call, and false usage ends the run."""

from typing import Any

import pytest
from supervised import RecordingGate, in_turn

from proctor.policies import parse_policies
from proctor.supervisor import GateAnswer, ProctorError, run_once
from tests.fuzz.call_ids import Responses, at_random, command, examples, outcomes

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


NO = GateAnswer(allowed=False, tell_model="refused")


async def test_a_reused_id_is_asked_about_again_in_its_own_turn(bench: Any) -> None:
    """With the same input or another: each call has its own question, and each allowed call its own outcome. A denied
    call has none, and hides no outcome before or after it.
    """
    api, gate = bench.api, RecordingGate(in_turn(True, True, True, NO, True))
    commands = [f"echo {word} >> log" for word in "xxyxx"]
    first = api.bash(commands[0])
    calls = ({**first, "input": {**first["input"], "command": command}} for command in commands)
    api.say(*map(api.reply, calls), api.reply(api.text("done")))

    events = await bench.run(gate)

    proposed = [(call.input["command"], call.turn) for call in gate.calls]
    assert proposed == [(command, turn) for turn, command in enumerate(commands, 1)]
    assert outcomes(events) == ["completed"] * 4
    assert (bench.cwd / "log").read_text().split() == ["x", "x", "y", "x"]


@pytest.mark.parametrize("command", ["echo x >> log", "echo x"])
async def test_a_duplicate_id_in_one_response_has_the_outcome_of_the_first_call(bench: Any, command: str) -> None:
    """Whether the client runs the calls in sequence or in parallel, the first runs and is reported as completed."""
    api, gate = bench.api, RecordingGate(in_turn(True, NO))
    call = api.bash(command)
    api.say(api.reply(call, call), api.reply(api.text("done")))

    events = await bench.run(gate)

    assert outcomes(events) == ["completed"]


@pytest.mark.parametrize("example", examples())
async def test_random_ids_evade_no_rule(bench: Any, example: int) -> None:
    """A few ids, in one response and in several: neither a denied call nor one beyond a limit runs."""

    def play(script: Responses) -> Any:
        api = bench.api
        for response in script:
            api.say(api.reply(*({**api.bash(command(call)), "id": call.id} for call in response)))
        api.say(api.reply(api.text("done")))
        return bench.adapter()

    await at_random(example, bench.cwd / "log", play)


async def test_impossible_usage_ends_the_run(bench: Any) -> None:
    """The client passes on what the API reported. The run ends, and its cost is not reduced."""
    api = bench.api
    true = api.reply(api.bash("echo x >> log"))
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = 1.5
    api.say(true, false, *(api.reply(api.bash("echo z >> log")) for _ in range(3)), api.reply(api.text("done")))

    with pytest.raises(ProctorError) as raised:
        await run_once(bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 100000}"))

    assert "inputTokens" in str(raised.value)


async def test_negative_usage_reduces_nothing(bench: Any) -> None:
    """The client counts it as zero, so its total does not fall."""
    api = bench.api
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = -5000
    api.say(api.reply(api.bash("echo x >> log")), false, api.reply(api.text("done")))

    result = await run_once(bench.adapter(), "go", policies=parse_policies("name: p"))

    assert result.usage.input_tokens == 200
