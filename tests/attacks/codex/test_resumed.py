"""A resumed Codex thread: the client's reports of earlier turns do not count."""

from typing import Any

import pytest

from proctor.policies.events import MessageReceived, MessageStreamed, RunCompleted, TokenUsageUpdated, ToolEvent

pytestmark = [pytest.mark.codex, pytest.mark.anyio]

PAST = """
old, other = {"threadId": "t", "turnId": "earlier"}, {"threadId": "another", "turnId": "u"}
command = {"id": "c1", "type": "commandExecution", "command": "rm x", "cwd": "/", "status": "inProgress"}
completed = {**command, "status": "completed", "exitCode": 0, "aggregatedOutput": ""}
message = {"id": "m1", "type": "agentMessage", "text": "what was said before"}
usage = {"total": {"inputTokens": 7000}, "last": {"inputTokens": 7000}}
def past(of):
    for item in (command, message): say({"method": "item/started", "params": {**of, "item": item}})
    say({"method": "item/agentMessage/delta", "params": {**of, "delta": "what was said before"}})
    for item in (completed, message): say({"method": "item/completed", "params": {**of, "item": item}})
    say({"method": "thread/tokenUsage/updated", "params": {**of, "tokenUsage": usage}})
    turn = {"id": of["turnId"], "status": "completed"}
    say({"method": "turn/completed", "params": {"threadId": of["threadId"], "turn": turn}})
NEW = {"threadId": "t", "turnId": "u"}
def answer(): say({"method": "item/completed", "params": {**NEW, "item": {**message, "text": "new"}}})
def begin(): say({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}})
"""


@pytest.mark.parametrize("script", [
    "past(old); begin(); answer(); say(DONE)",
    "begin(); past(old); answer(); say(DONE)",
    "begin(); answer(); past(old); say(DONE)",
    "begin(); answer(); say(DONE); past(old); past(NEW)",
    "past(old); past(old); begin(); past(old); answer(); say(DONE); say(DONE)",
], ids=["before the turn", "at its beginning", "late", "after its end", "each twice"])  # fmt: skip
async def test_reports_of_earlier_turns_do_not_count(bench: Any, stand_in: Any, script: str) -> None:
    """Whenever they come: no call, no message, no token, and no end of the new turn."""
    adapter = bench.adapter(codex_path=stand_in(PAST + script))
    adapter._thread = lambda launch, config: ("thread/start", {})  # the stand-in supports only this one

    events = await bench.run(adapter=adapter, resume="t")

    kinds = (ToolEvent, MessageReceived, MessageStreamed, TokenUsageUpdated, RunCompleted)
    assert [event for event in events if isinstance(event, kinds)] == [
        MessageReceived(content="new"),
        RunCompleted(output="new"),
    ]
