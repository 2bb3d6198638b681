"""A session that the real Codex resumes: of its earlier run, however that ended, nothing counts again."""

from typing import Any

import anyio
import pytest

from proctor.policies.events import MessageReceived, MessageStreamed, RunCompleted, TokenUsageUpdated, ToolEvent
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.codex, pytest.mark.anyio]
GIVEN: dict[str, Any] = {"policies": [Policy(name="p")], "session_id": "s"}


@pytest.mark.parametrize("ends", ["answered", "with a call", "with a command in the background"])
async def test_the_next_run_answers_its_own_prompt_and_has_nothing_else(bench: Any, ends: str) -> None:
    """The client has the past of its thread to itself, whatever was running in it."""
    api, store, up = bench.api, MemoryStore(), bench.cwd / "up"
    background = ends == "with a command in the background"
    api.reply(api.text("I look"), api.shell("c1", "echo 1"))
    if ends != "answered":
        wait = {"yield_time_ms": 250} if background else {}
        api.reply(api.shell("c2", f"touch {up}; tail -f /dev/null", **wait))
    if ends != "with a call":
        api.reply(api.text("noted"))

    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(bench.adapter(), "go", **GIVEN)
            if ends == "with a call":
                while not up.exists():
                    await anyio.sleep(0.05)
                await handle.cancel()
            await handle.wait()
        api.reply(api.text("seven"), used=(1000, 5))
        second = await run_once(bench.adapter(), "which?", store=store, continuation="native", **GIVEN)

    messages = [event.content for event in second.events if isinstance(event, MessageReceived)]
    assert (second.output, messages) == ("seven", ["seven"])
    assert [event for event in second.events if isinstance(event, ToolEvent)] == []
    assert second.usage.input_tokens == 1000
    assert "which?" in str(api.requests[-1]["input"][-1])


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
async def test_what_a_client_tells_of_earlier_turns_is_past(bench: Any, stand_in: Any, script: str) -> None:
    """Whenever it does: no call, no message, no token, and not the end of the new turn."""
    adapter = bench.adapter(codex_path=stand_in(PAST + script))
    adapter._thread = lambda launch, config: ("thread/start", {})  # the stand-in knows no other

    events = await bench.run(adapter=adapter, resume="t")

    kinds = (ToolEvent, MessageReceived, MessageStreamed, TokenUsageUpdated, RunCompleted)
    assert [event for event in events if isinstance(event, kinds)] == [
        MessageReceived(content="new"),
        RunCompleted(output="new"),
    ]
