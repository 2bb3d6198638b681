"""An adapter for the real client, before the scripted API that the tests of all adapters share."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.claude import ClaudeAdapter
from proctor.policies.calls import ToolCall
from proctor.policies.events import Event
from proctor.supervisor.ports import Gate, GateAnswer, Launch


class Bench:
    """An adapter for the real client, and runs of it with a gate of the test's own."""

    def __init__(self, api: Any, env: dict[str, str], cwd: Path) -> None:
        self.api = api
        self.env = env
        self.cwd = cwd

    def adapter(self, *tools: str, **options: Any) -> ClaudeAdapter:
        """An adapter that offers these tools and reads no settings."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("model", "claude-sonnet-4-5")
        options.setdefault("cwd", self.cwd)
        return ClaudeAdapter({"setting_sources": [], **options}, tools=tools or ("Bash",), env=env)

    def launch(self, gate: Gate, **more: Any) -> Launch:
        """A launch of one run."""
        more.setdefault("prompt", "go")
        return Launch(run_id=f"run-{uuid.uuid4().hex}", session_id="s", gate=gate, **more)

    async def run(self, adapter: ClaudeAdapter, gate: Gate | None = None, **more: Any) -> list[Event]:
        """Everything the client reports of one run; without a gate every call is allowed."""
        seen: list[Event] = []
        with anyio.fail_after(30):
            async with adapter.open(self.launch(gate or allow_all, **more)) as provider:
                seen.extend([event async for event in provider.events()])
        return seen


async def allow_all(call: ToolCall) -> GateAnswer:
    """A gate that refuses nothing."""
    return GateAnswer(allowed=True)


@pytest.fixture
def bench(api: Any, hermetic: dict[str, str], tmp_path: Path) -> Bench:
    """The real client against the scripted API."""
    return Bench(api, hermetic, tmp_path / "work")
