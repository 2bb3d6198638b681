"""A session that the real Codex resumes: of its earlier run, however that ended, nothing counts again."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies.events import MessageReceived, ToolEvent
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
