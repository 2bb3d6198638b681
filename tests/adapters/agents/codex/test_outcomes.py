"""Each call that was let run has one outcome, whatever the client leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.policies.events import Event, RunCompleted, ToolCallCompleted, ToolCallFailed, TurnCompleted

pytestmark = pytest.mark.anyio

RUN = """
here = {"threadId": "t", "turnId": "u"}
command = {"id": "c1", "type": "commandExecution", "command": "touch a", "cwd": "/", "status": "inProgress"}
completed = {**command, "status": "completed", "exitCode": 0, "aggregatedOutput": "as the client says"}
usage = {"total": {"inputTokens": 5}, "last": {"inputTokens": 5}}
TOKENS = {"method": "thread/tokenUsage/updated", "params": {**here, "tokenUsage": usage}}
OVER = {"method": "item/completed", "params": {**here, "item": completed}}

def heard(): say({"id": 8, "method": "whether/heard"}); hear()
def returned(text): record({"type": "function_call_output", "call_id": "c1", "output": text})

say({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}})
say({"method": "item/started", "params": {**here, "item": command}})
asked = {"itemId": "c1", "command": "touch a", "cwd": "/"}
say({"id": 7, "method": "item/commandExecution/requestApproval", "params": {**here, **asked}})
hear()
"""
EXITED = "Wall time: 0.0 seconds\\nProcess exited with code %d\\nOriginal token count: 1\\nOutput:\\nhello\\n"
DONE_0 = ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output={"exit_code": 0, "output": "hello\n"})
FAILED_2 = ToolCallFailed(tool_call_id="c1", tool_name="shell", error={"exit_code": 2, "output": "hello\n"})
UNKNOWN = ToolCallFailed(
    tool_call_id="c1", tool_name="shell", error={"message": "ended with the run, its outcome unknown"}
)

TURN, END = TurnCompleted(turn=1), RunCompleted(output="")


@pytest.fixture
def reported(bench: Any, stand_in: Callable[[str], Path]) -> Callable[[str], Any]:
    """What is reported from the outcome of the one call on, of a client that says and records what a script has."""

    async def run(script: str) -> list[Event]:
        events = await bench.run(adapter=bench.adapter(codex_path=stand_in(RUN + script)))
        shown = (ToolCallCompleted, ToolCallFailed, TurnCompleted, RunCompleted)
        return [event for event in events if isinstance(event, shown)]

    return run


@pytest.mark.parametrize(("code", "outcome"), [(0, DONE_0), (2, FAILED_2)])
async def test_an_outcome_that_the_client_does_not_report_is_read_in_its_record(
    reported: Callable[[str], Any], code: int, outcome: Event
) -> None:
    """Once the calls of the response are done."""
    events = await reported(f'returned("{EXITED % code}"); say(TOKENS); say(DONE)')

    assert events == [outcome, TURN, END]


async def test_an_outcome_that_is_recorded_late_is_read_at_the_end_of_the_turn(
    reported: Callable[[str], Any],
) -> None:
    """By then the client has recorded everything."""
    events = await reported(f'say(TOKENS); heard(); returned("{EXITED % 0}"); say(DONE)')

    assert events == [TURN, DONE_0, END]


async def test_an_outcome_that_the_client_reports_late_is_not_reported_again(reported: Callable[[str], Any]) -> None:
    """The record was first."""
    events = await reported(f'returned("{EXITED % 0}"); say(TOKENS); say(OVER); say(DONE)')

    assert events == [DONE_0, TURN, END]


async def test_an_outcome_that_is_recorded_late_is_not_that_of_the_next_call_of_the_same_id(
    reported: Callable[[str], Any],
) -> None:
    """Some models' ids come again."""
    again = 'say({"method": "item/started", "params": {**here, "item": command}})'
    ask = 'say({"id": 9, "method": "item/commandExecution/requestApproval", "params": {**here, **asked}}); hear()'
    events = await reported(f'say(OVER); returned("{EXITED % 2}"); {again}; {ask}; say(OVER); say(DONE)')

    output = {"exit_code": 0, "output": "as the client says"}
    assert events == [ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output=output)] * 2 + [TURN, END]


async def test_a_command_that_continues_in_the_background_is_over_when_the_client_says_so(
    reported: Callable[[str], Any],
) -> None:
    """Whatever it wrote meanwhile."""
    running = "Process running with session ID 4\\nOutput:\\nProcess exited with code 0\\n"
    events = await reported(f'returned("{running}"); say(TOKENS); say(OVER); say(DONE)')

    output = {"exit_code": 0, "output": "as the client says"}
    assert events == [TURN, ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output=output), END]


@pytest.mark.parametrize("script", ["say(TOKENS)", "returned('aborted by user')"])
async def test_a_call_whose_outcome_is_nowhere_ends_with_the_run(reported: Callable[[str], Any], script: str) -> None:
    """Neither in the record nor on the wire."""
    events = await reported(f"{script}; say(DONE)")

    assert events == [TURN, UNKNOWN, END]


async def test_a_call_that_runs_when_the_turn_fails_ends_with_it(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """As in any other run."""
    failed = 'say({**DONE, "params": {"threadId": "t", "turn": {"id": "u", "status": "failed"}}})'
    async with bench.watched(adapter=bench.adapter(codex_path=stand_in(RUN + failed))) as run:
        await run.ended.wait()

    assert run.seen[-1] == UNKNOWN
    assert str(run.error) == "codex ended its turn as `failed`"
