"""Reports of ACP agents: a reused id is a new call, and false usage ends the run."""

from collections.abc import Callable
from typing import Any

import pytest
from supervised import RecordingGate

from proctor.policies import parse_policies
from proctor.supervisor import PolicyViolationError, ProctorError, run_once
from tests.fuzz.call_ids import Responses, at_random, command, examples, outcomes

pytestmark = pytest.mark.anyio


async def test_a_reused_id_is_asked_about_again(scripts: Any, touch: Callable[..., Any]) -> None:
    """With the same input or another: each call has its own question, and each allowed call its own outcome. A denied
    call has none, and hides no outcome before or after it.
    """
    names, gate = "aabca", RecordingGate(lambda call: "c" not in call.input["command"].split())
    done = await scripts.run(scripts.adapter(*(touch(name, call="c1") for name in names)), answer=gate)

    assert [call.input["command"] for call in gate.calls] == [f"touch {name}" for name in names]
    assert scripts.made() == ["a", "b"]
    assert outcomes(done.events) == ["completed"] * 4


async def test_a_reused_id_that_runs_unasked_is_evaluated(scripts: Any, touch: Callable[..., Any]) -> None:
    """An earlier approval does not cover it. A call that runs without a question is evaluated when it starts."""
    steps = (touch("a", call="c1"), touch("b", call="c1", asks=False))

    done = await scripts.run(scripts.adapter(*steps))

    assert outcomes(done.events) == ["completed", "started", "completed"]


async def test_a_call_that_runs_after_its_denial_is_reported_and_ends_the_run(
    scripts: Any, touch: Callable[..., Any]
) -> None:
    """The agent itself reports that the call ran. A denied call that did not run has no outcome."""
    adapter = scripts.adapter(touch("kept"), {**touch("a"), "anyway": True}, touch("b"))
    policy = parse_policies("{name: p, tool_rules: [{deny: [execute], action: deny}]}")

    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=policy)

    enforced = [(violation.tool_call_id, violation.enforcement) for violation in raised.value.violations]
    assert enforced == [("c-kept", "prevented"), ("c-a", "prevented"), ("c-a", "interrupted")]
    assert scripts.made() == ["a"]


@pytest.mark.parametrize("example", examples())
async def test_random_ids_evade_no_rule(scripts: Any, example: int) -> None:
    """A few ids, in one response and in several: neither a denied call nor one beyond a limit runs."""

    def play(script: Responses) -> Any:
        calls = [call for response in script for call in response]
        return scripts.adapter(*({"call": c.id, "title": command(c), "run": command(c)} for c in calls))

    await at_random(example, scripts.cwd / "log", play)


def cost(amount: Any) -> dict[str, Any]:
    """A step that reports the session's cost so far."""
    return {"update": {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}}}


@pytest.mark.parametrize("lie", [0.5, "2", -1], ids=str)
async def test_an_impossible_cost_ends_the_run(scripts: Any, touch: Callable[..., Any], lie: Any) -> None:
    """It falls, is text, or is negative. Nothing runs after it."""
    adapter = scripts.adapter(cost(1.0), touch("a"), cost(lie), touch("b"))

    with pytest.raises(ProctorError, match=r"`cost`|`amount`"):
        await run_once(adapter, "go", policies=parse_policies("name: p\nlimits: {max_cost_usd: 5}"))

    assert scripts.made() == ["a"]


async def test_impossible_token_counts_fail_the_run(scripts: Any) -> None:
    """They come with the response to the prompt."""
    adapter = scripts.adapter({"stop": "end_turn", "fields": {"usage": {"inputTokens": "12"}}})

    with pytest.raises(ProctorError, match="inputTokens"):
        await run_once(adapter, "go", policies=parse_policies("name: p"))
