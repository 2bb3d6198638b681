"""Each allowed call has one outcome, whatever the client omits."""

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
DONE_0 = ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output="hello\n")
FAILED_2 = ToolCallFailed(tool_call_id="c1", tool_name="shell", error={"exit_code": 2, "output": "hello\n"})
UNKNOWN = ToolCallFailed(
    tool_call_id="c1", tool_name="shell", error={"message": "ended with the run, its outcome unknown"}
)

TURN, END = TurnCompleted(turn=1), RunCompleted(output="")


@pytest.fixture
def reported(bench: Any, stand_in: Callable[[str], Path]) -> Callable[[str], Any]:
    """The events from the call's outcome on, for a client that reports and logs as scripted."""

    async def run(script: str) -> list[Event]:
        events = await bench.run(adapter=bench.adapter(codex_path=stand_in(RUN + script)))
        shown = (ToolCallCompleted, ToolCallFailed, TurnCompleted, RunCompleted)
        return [event for event in events if isinstance(event, shown)]

    return run


REPORTED = ToolCallCompleted(tool_call_id="c1", tool_name="shell", tool_output="as the client says")
NEXT_CALL = """say({"method": "item/started", "params": {**here, "item": command}})
say({"id": 9, "method": "item/commandExecution/requestApproval", "params": {**here, **asked}}); hear()"""
RUNNING = "Process running with session ID 4\\nOutput:\\nProcess exited with code 0\\n"
OUTCOMES: dict[str, tuple[str, list[Event]]] = {
    "not reported": (f'returned("{EXITED % 0}"); say(TOKENS)', [DONE_0, TURN, END]),
    "a failure that is not reported": (f'returned("{EXITED % 2}"); say(TOKENS)', [FAILED_2, TURN, END]),
    "recorded late": (f'say(TOKENS); heard(); returned("{EXITED % 0}")', [TURN, DONE_0, END]),
    "reported late": (f'returned("{EXITED % 0}"); say(TOKENS); say(OVER)', [DONE_0, TURN, END]),
    "recorded late, and the next call has its id": (
        f'say(OVER); returned("{EXITED % 2}"); {NEXT_CALL}; say(OVER)',
        [REPORTED, REPORTED, TURN, END],
    ),
    "of a command in the background": (f'returned("{RUNNING}"); say(TOKENS); say(OVER)', [TURN, REPORTED, END]),
    "nowhere": ("say(TOKENS)", [TURN, UNKNOWN, END]),
    "aborted": ("returned('aborted by user')", [TURN, UNKNOWN, END]),
}


@pytest.mark.parametrize("kind", OUTCOMES)
async def test_each_call_has_one_outcome_from_the_protocol_or_the_log(
    reported: Callable[[str], Any], kind: str
) -> None:
    """The log is read once the calls of a response have ended, and at the end of the turn. The first
    outcome counts.
    """
    script, expected = OUTCOMES[kind]

    assert await reported(f"{script}; say(DONE)") == expected


async def test_a_call_that_runs_when_the_turn_fails_ends_with_it(bench: Any, stand_in: Callable[[str], Path]) -> None:
    failed = 'say({**DONE, "params": {"threadId": "t", "turn": {"id": "u", "status": "failed"}}})'
    async with bench.watched(adapter=bench.adapter(codex_path=stand_in(RUN + failed))) as run:
        await run.ended.wait()

    assert run.seen[-1] == UNKNOWN
    assert str(run.error) == "codex ended its turn as `failed`"
