"""What the real Claude Code reports: ids that come again are other calls, usage that lies ends the run."""

from typing import Any

import pytest
from supervised import RecordingGate, in_turn

from proctor.policies import parse_policies
from proctor.supervisor import GateAnswer, ProctorError, run_once
from tests.fuzz.call_ids import Responses, at_random, command, examples, outcomes

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


NO = GateAnswer(allowed=False, tell_model="refused")


async def test_an_id_used_again_is_asked_about_again_in_its_own_turn(bench: Any) -> None:
    """With the same input or another: as many questions, and an outcome of each that is allowed. A refusal is none,
    and hides none of those before and after it.
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
async def test_an_id_used_twice_in_one_response_has_the_outcome_of_the_first(bench: Any, command: str) -> None:
    """Whether the client runs them one after another or in parallel, the first runs and is reported as completed."""
    api, gate = bench.api, RecordingGate(in_turn(True, NO))
    call = api.bash(command)
    api.say(api.reply(call, call), api.reply(api.text("done")))

    events = await bench.run(gate)

    assert outcomes(events) == ["completed"]


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


async def test_usage_that_cannot_be_true_ends_the_run(bench: Any) -> None:
    """The client passes on what it was told; the run does not go on, and is not counted as having cost less."""
    api = bench.api
    true = api.reply(api.bash("echo x >> log"))
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = 1.5
    api.say(true, false, *(api.reply(api.bash("echo z >> log")) for _ in range(3)), api.reply(api.text("done")))

    with pytest.raises(ProctorError) as ended:
        await run_once(bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 100000}"))

    assert "inputTokens" in str(ended.value)


async def test_usage_below_zero_takes_nothing_back(bench: Any) -> None:
    """The client takes it for nothing used, so its total does not fall."""
    api = bench.api
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = -5000
    api.say(api.reply(api.bash("echo x >> log")), false, api.reply(api.text("done")))

    result = await run_once(bench.adapter(), "go", policies=parse_policies("name: p"))

    assert result.usage.input_tokens == 200
