"""Reports of Amp: a reused id is a new call, and false usage ends the run."""

from collections.abc import Callable
from typing import Any

import pytest
from supervised import RecordingGate

from proctor.policies import parse_policies
from proctor.supervisor import PolicyViolationError, ProctorError, run_once
from tests.fuzz.call_ids import Responses, at_random, command, examples, outcomes

pytestmark = pytest.mark.anyio


def again(use: dict[str, Any]) -> dict[str, Any]:
    """The same tool use, with the id that all of them share."""
    return {**use, "use": ["u-1", *use["use"][1:]]}


async def test_a_reused_id_is_asked_about_again(bench: Any, touch: Callable[..., Any]) -> None:
    """With the same input or another: each call has its own question, and each allowed call its own outcome. A denied
    call has none, and hides no outcome before or after it.
    """
    names, gate = "aabca", RecordingGate(lambda call: "c" not in call.input["command"].split())
    done = await bench.run(bench.adapter(*(again(touch(name)) for name in names)), answer=gate)

    assert [call.input["command"] for call in gate.calls] == [f"touch {name}" for name in names]
    assert bench.made() == ["a", "b"]
    assert outcomes(done.events) == ["completed"] * 4


async def test_a_call_that_runs_after_its_denial_is_reported_and_ends_the_run(
    bench: Any, touch: Callable[..., Any]
) -> None:
    """A denied call that did not run has no outcome."""
    adapter = bench.adapter(touch("kept"), {**touch("a"), "anyway": True}, touch("b"))
    policy = parse_policies(
        "{name: p, tool_rules: [{deny: [{tool: bash, where: [{path: $.command, regex: touch}]}], action: deny}]}"
    )

    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=policy)
    enforcements = [violation.enforcement for violation in raised.value.violations]

    assert enforcements == ["prevented", "prevented", "interrupted"]
    assert bench.made() == ["a"]


@pytest.mark.parametrize("example", examples())
async def test_random_ids_evade_no_rule(bench: Any, example: int) -> None:
    """A few ids, in one response and in several: neither a denied call nor one beyond a limit runs."""

    def play(script: Responses) -> Any:
        calls = [call for response in script for call in response]
        return bench.adapter(*({"use": [c.id, "Bash", {"cmd": command(c)}], "run": command(c)} for c in calls))

    await at_random(example, bench.cwd / "log", play)


@pytest.mark.parametrize("lie", ["12", -1, 1.5, True], ids=repr)
async def test_impossible_usage_ends_the_run(bench: Any, touch: Callable[..., Any], lie: Any) -> None:
    adapter = bench.adapter(touch("a"), {"say": "x", "usage": {"input_tokens": lie}}, touch("b"))

    with pytest.raises(ProctorError, match="input_tokens"):
        await run_once(adapter, "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 1000}"))

    assert not (bench.cwd / "b").exists()
