"""The real client at work: every call asks the gate and obeys it, and the run's usage is counted."""

from typing import Any

import pytest
from supervised import RecordingGate

from proctor.policies import Limits, Policy, ToolCall
from proctor.policies import events as ev
from proctor.supervisor import GateAnswer, ProviderError

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


SONNET_IN, SONNET_OUT = 3e-6, 15e-6
"""The client's own prices of the model, in USD a token."""


def of(events: list[Any], *types: type) -> list[Any]:
    return [event for event in events if isinstance(event, types)]


def usage(events: list[Any]) -> list[ev.TokenUsageUpdated]:
    return of(events, ev.TokenUsageUpdated)


async def test_an_allowed_call_asks_once_and_completes_and_each_response_is_counted_once(bench: Any) -> None:
    """The gate gets the call's own input and turn, its outcome follows, and the answer ends the run. Cached input
    counts as input.
    """
    api, gate = bench.api, RecordingGate()
    api.say(
        api.reply(api.text("I will"), api.bash("echo out"), cache_read=50, cache_write=7, output_tokens=30),
        api.reply(api.text("done"), input_tokens=200),
    )
    events = await bench.run(gate)

    [call] = gate.calls
    assert (call.name, call.input["command"], call.turn) == ("Bash", "echo out", 1)
    assert of(events, ev.ToolCallCompleted) == [
        ev.ToolCallCompleted(tool_call_id=call.id, tool_name="Bash", tool_output="out")
    ]
    assert events[-1].output == "done"
    assert [event.turn for event in of(events, ev.TurnStarted)] == [1, 2]
    assert of(events, ev.SessionStarted)[0].metadata["tools"] == ["Bash"]
    assert not of(events, ev.ToolCallStarted, ev.Unrecognized)
    first, second = usage(events)
    assert (first.input_tokens, first.output_tokens) == (157, 30)
    assert (first.cache_read_tokens, first.cache_write_tokens) == (50, 7)
    assert first.model == "claude-sonnet-4-5"
    assert (second.input_tokens, second.output_tokens) == (200, 20)
    assert second.cost_usd == pytest.approx(200 * SONNET_IN + 20 * SONNET_OUT)
    assert events[-1].usage["input_tokens"] == 357


async def test_a_command_that_continues_in_the_background_has_not_succeeded(bench: Any) -> None:
    """Whether the model starts it so, or its timeout is too short. Both commands fail later."""
    script = "python3 -c 'import time; time.sleep(3); raise SystemExit(1)'"
    inputs: list[dict[str, Any]] = [{"run_in_background": True}, {"timeout": 1000}]
    api = bench.api
    calls = [api.tool("Bash", command=script, description="test", **more) for more in inputs]
    api.say(*map(api.reply, [*calls, api.bash("true"), *(api.text("done") for _ in range(4))]))
    events = await bench.run()

    assert [event.unfinished for event in of(events, ev.ToolCallCompleted)] == [True, True, False]


async def test_a_gate_that_raises_ends_the_run_and_its_error_stays_in_this_process(bench: Any) -> None:
    """The call does not run, and the model does not get the exception's text."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("oh")))

    async def gate(call: ToolCall) -> GateAnswer:
        raise RuntimeError("secret rule 7 broke")

    with pytest.raises(ProviderError, match="the gate failed"):
        await bench.run(gate)

    assert not (bench.cwd / "never.txt").exists()
    assert "secret rule" not in str(api.requests)


async def test_the_run_continues_until_background_agents_are_done(bench: Any) -> None:
    """A result while a subagent works is not the end: its calls ask and its usage counts."""
    api, gate = bench.api, RecordingGate()
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.tool("Agent", run_in_background=True, **start)),
        api.reply(api.text("it is running")),
        api.reply(api.text("it is done")),
    )
    api.say(api.reply(api.bash("echo sub"), input_tokens=500), api.reply(api.text("sub done")), sub=True)
    events = await bench.run(gate, adapter=bench.adapter("Bash", "Agent"))

    assert [call.name for call in gate.calls] == ["Agent", "Bash"]
    assert events[-1].output == "it is done"
    assert events[-1].usage["input_tokens"] == 3 * 100 + 500 + 100


async def test_the_callers_permission_mode_stays_in_force(bench: Any) -> None:
    """A call that the gate allows still needs the client's permission if the caller configured one."""
    api = bench.api
    api.say(api.reply(api.bash("touch asked.txt")), api.reply(api.text("done")))

    events = await bench.run(adapter=bench.adapter(permission_mode="dontAsk"))

    assert not (bench.cwd / "asked.txt").exists()
    assert len(of(events, ev.ToolCallFailed)) == 1


def totals(events: list[Any]) -> tuple[int, int, float]:
    """Input and output tokens and USD, summed over the usage events."""
    found = usage(events)
    cost = sum(event.cost_usd or 0 for event in found)
    return sum(e.input_tokens for e in found), sum(e.output_tokens for e in found), round(cost, 9)


def session_of(events: list[Any]) -> str:
    """The client's own id of the session."""
    [started] = [event for event in events if isinstance(event, ev.SessionStarted)]
    return str(started.provider_session_id)


async def test_a_subagents_usage_counts_while_it_works(bench: Any) -> None:
    """Its first response is counted before its last call is allowed, not only with the result."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(api.reply(api.tool("Agent", run_in_background=False, **start)), api.reply(api.text("main done")))
    api.say(
        api.reply(api.bash("echo 1"), input_tokens=5000, output_tokens=33),
        api.reply(api.bash("echo 2"), input_tokens=600, output_tokens=44),
        api.reply(api.text("sub done"), input_tokens=700, output_tokens=5),
        sub=True,
    )

    events = await bench.run(adapter=bench.adapter("Bash", "Agent"))

    second_main_turn = next(n for n, e in enumerate(events) if isinstance(e, ev.TurnStarted) and e.turn == 2)
    assert totals(events[:second_main_turn])[0] >= 5000 + 600
    tokens = (2 * 100 + 5000 + 600 + 700, 2 * 20 + 33 + 44 + 5)
    assert totals(events) == (*tokens, round(tokens[0] * SONNET_IN + tokens[1] * SONNET_OUT, 9))


async def test_a_resumed_and_a_forked_session_count_from_zero(bench: Any) -> None:
    """The client's totals continue over the session, including its subagents. A run counts the difference. A fork has
    a new id.
    """
    api, adapter = bench.api, bench.adapter("Bash", "Agent")
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(api.reply(api.tool("Agent", run_in_background=False, **start)), api.reply(api.text("main done")))
    api.say(*(api.reply(api.text("ok"), input_tokens=1000, output_tokens=100) for _ in range(2)))
    api.say(api.reply(api.text("sub done"), input_tokens=5000, output_tokens=33), sub=True)

    first = await bench.run(adapter=adapter, prompt="remember 7")
    session = session_of(first)
    resumed = await bench.run(adapter=adapter, prompt="which?", resume=session)
    forked = await bench.run(adapter=adapter, prompt="which?", resume=session, fork=True)

    assert totals(first)[:2] == (2 * 100 + 5000, 2 * 20 + 33)
    alone = (1000, 100, round(1000 * SONNET_IN + 100 * SONNET_OUT, 9))
    assert [totals(run) for run in (resumed, forked)] == [alone] * 2
    assert session_of(resumed) == session
    assert session_of(forked) != session
    assert "remember 7" in str(api.requests[-1]["messages"])


async def test_an_unpriced_model_has_no_cost(bench: Any) -> None:
    """Its tokens are reported; the client's estimated price is not."""
    bench.api.say(bench.api.reply(bench.api.text("ok")))

    events = await bench.run(adapter=bench.adapter(model="house-model-1"))

    assert [event.cost_usd for event in usage(events)] == [None]


async def test_the_client_itself_stops_at_the_policys_turns(bench: Any) -> None:
    """The response beyond the limit is never requested, and the end says that the model wanted it."""
    api, adapter = bench.api, bench.adapter()
    api.say(*(api.reply(api.bash(f"echo {n}")) for n in range(5)))
    options = adapter.compile(Policy(name="p", limits=Limits(max_turns=2)))

    events = await bench.run(adapter=adapter, options=options)

    assert len(api.requests) == 2
    assert [event.turn for event in events if isinstance(event, ev.TurnStarted)] == [1, 2, 3]
    assert isinstance(events[-1], ev.RunFailed)
    assert events[-1].error["code"] == "max_turns"
