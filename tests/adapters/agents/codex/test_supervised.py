"""Runs of the real client, end to end: policies, limits, the event log."""

from typing import Any

import pytest

from proctor.policies import Condition, Deny, Limit, Limits, Policy, ToolWhere
from proctor.policies.events import TERMINAL, Event, TokenUsageUpdated, ToolCallRequested, TurnStarted
from proctor.supervisor import MemoryStore, PolicyViolationError, Supervisor, run_once

pytestmark = [pytest.mark.anyio, pytest.mark.codex]

TOUCH = ToolWhere(tool="shell", where=(Condition(path="$.command", regex="^touch "),))


def types(events: tuple[Event, ...]) -> list[str]:
    shown = [event for event in events if "tool_call" in event.type or isinstance(event, TERMINAL)]
    return [event.type for event in shown]


async def cancelled(bench: Any, policy: Policy) -> PolicyViolationError:
    """The error of a run that its policy cancels; asserts that no process remains and that the log has one end."""
    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(), "go", policies=[policy], run_id="run-cancelled")
    bench.run_ids.append("run-cancelled")

    events = caught.value.partial.events
    assert [event.type for event in events if isinstance(event, TERMINAL)] == ["run_cancelled"]
    assert isinstance(events[-1], TERMINAL)
    assert bench.survivors() == []
    return caught.value


async def test_a_call_that_cancels_ends_the_run_before_any_call_of_its_response(bench: Any) -> None:
    """Every call that was asked about gets an answer, none runs, and no other response is requested."""
    bench.api.reply(bench.api.shell("c1", "touch a"), bench.api.shell("c2", "touch b"))
    error = await cancelled(bench, Policy(name="p", tool_rules=(Deny((TOUCH,)),)))

    seen = types(error.partial.events)
    assert seen.count("tool_call_denied") == seen.count("tool_call_requested") > 0
    assert "tool_call_started" not in seen
    assert bench.made() == []
    assert len(bench.api.requests) == 1


async def test_a_response_that_exceeds_the_tokens_runs_none_of_its_calls(bench: Any) -> None:
    """The client's log has a response's tokens before its calls are asked about."""
    for name in "abc":
        bench.api.reply(bench.api.shell(name, f"touch {name}"), used=(1000, 10))
    error = await cancelled(bench, Policy(name="p", limits=Limits(max_total_tokens=1500)))

    reports = [event for event in error.partial.events if isinstance(event, TokenUsageUpdated)]
    assert [report.input_tokens for report in reports] == [1000, 1000]
    assert bench.made() == ["a"]


async def test_a_replayed_session_continues_its_turn_numbers(bench: Any) -> None:
    """After three turns, the next is the fourth, although the client gets the others as text. So a limit of four
    applies.
    """
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_turns=Limit(max=4, scope="session")))
    for command in ("true", "true"):
        bench.api.reply(bench.api.shell("c1", command))
    async with Supervisor(store) as supervisor:
        first = await supervisor.start(bench.adapter(), "one", policies=[policy])
        session_id = (await first.wait()).session_id
        second = await supervisor.start(
            bench.adapter(), "two", policies=[policy], session_id=session_id, continuation="replay"
        )
        result = await second.wait()

    started = [event.turn for event in result.events if isinstance(event, TurnStarted)]
    assert (result.status, started) == ("completed", [4])


async def test_calls_of_tools_removed_at_launch_are_violations(bench: Any) -> None:
    """The client tells its model that the tool does not exist. Only its own log shows the call."""
    api = bench.api
    api.reply(api.shell("c1", "touch a"), api.call("c2", "view_image", path="/x.png"))
    api.reply(api.call("c3", "shell", command=["touch", "a"]), api.call("c4", "no_such_tool"))
    policy = Policy(name="p", on_violation="deny", tool_rules=(Deny(("bash", "view_image")),))

    result = await run_once(bench.adapter(), "go", policies=[policy])

    assert (result.status, result.output, bench.made()) == ("completed", "end", [])
    assert types(result.events) == ["tool_call_requested", "tool_call_denied"] * 3 + ["run_completed"]
    found = [(violation.tool_call_id, violation.tool_name) for violation in result.policy.violations]
    assert found == [("c1", "shell"), ("c2", "view_image"), ("c3", "shell")]
    requested = [event for event in result.events if isinstance(event, ToolCallRequested)]
    assert (requested[0].tool_input["command"], requested[0].turn) == ("touch a", 1)


async def test_a_call_of_a_removed_tool_cancels_if_its_rule_says_so(bench: Any) -> None:
    """The run does not complete."""
    bench.api.reply(bench.api.shell("c1", "touch a"))
    error = await cancelled(bench, Policy(name="p", tool_rules=(Deny(("bash",)),)))

    assert types(error.partial.events) == ["tool_call_requested", "tool_call_denied", "run_cancelled"]
    assert [violation.enforcement for violation in error.violations] == ["prevented"]
