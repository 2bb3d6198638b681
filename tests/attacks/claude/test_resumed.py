"""A session that the real Claude Code resumes: of its earlier run, however that ended, nothing counts again."""

from typing import Any

import anyio
import pytest

from proctor.policies.events import MessageReceived, ToolEvent
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.claude, pytest.mark.anyio]
GIVEN: dict[str, Any] = {"policies": [Policy(name="p")], "session_id": "s"}


@pytest.mark.parametrize("ends", ["answered", "with a call", "with a task in the background"])
async def test_the_next_run_answers_its_own_prompt_and_has_nothing_else(bench: Any, ends: str) -> None:
    """A client that was ended first tells itself what became of its task: that is no answer to the prompt."""
    api, store, up = bench.api, MemoryStore(), bench.cwd / "up"
    stays = api.bash(f"touch {up}; tail -f /dev/null")
    stays["input"]["run_in_background"] = ends == "with a task in the background"
    first = api.reply(api.text("I look"), api.bash("echo 1"))
    api.say(first, *([] if ends == "answered" else [api.reply(stays)]))
    if ends != "with a call":
        api.say(api.reply(api.text("noted")))

    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(bench.adapter(), "go", **GIVEN)
            if ends == "with a call":
                while not up.exists():
                    await anyio.sleep(0.05)
                await handle.cancel()
            await handle.wait()
        api.say(api.reply(api.text("seven"), input_tokens=1000))
        second = await run_once(bench.adapter(), "which?", store=store, continuation="native", **GIVEN)

    messages = [event.content for event in second.events if isinstance(event, MessageReceived)]
    assert (second.output, messages) == ("seven", ["seven"])
    assert [event for event in second.events if isinstance(event, ToolEvent)] == []
    assert second.usage.input_tokens == 1000
    assert "which?" in str(api.requests[-1]["messages"][-1])
