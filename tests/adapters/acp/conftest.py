"""A scripted agent, and real agents against scripted model APIs on loopback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.acp import AcpAdapter
from proctor.supervisor.testing.driving import Drive, Driven

AGENT = Path(__file__).parent / "scripted_agent.py"


class Scripts:
    """Adapters for the scripted agent, and what it was told."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.received = root / "received.jsonl"
        self.cwd.mkdir()

    def adapter(self, *steps: dict[str, Any], adapter: dict[str, Any] | None = None, **script: Any) -> AcpAdapter:
        """An adapter whose agent takes these steps for its prompt.

        Args:
            steps: what it does for a prompt.
            adapter: more arguments of the adapter.
            script: more of the script.
        """
        written = json.dumps({"prompts": [list(steps)], **script})
        command = [sys.executable, str(AGENT), written, str(self.received)]
        return AcpAdapter(command, **{"name": "scripted", "cwd": self.cwd, **(adapter or {})})

    async def run(self, adapter: AcpAdapter, **gate: Any) -> Driven:
        """Run it to its end, in bounded time."""
        with anyio.fail_after(30):
            return await Drive(adapter, **gate).run()

    def told(self, method: str | None = None) -> list[dict[str, Any]]:
        """The messages that the agent received: those of a method, or the answers."""
        lines = [json.loads(line) for line in self.received.read_bytes().splitlines()]
        return [line for line in lines if line.get("method") == method]

    def outcomes(self) -> list[str]:
        """How the agent's questions were answered: the option, or `cancelled`."""
        given = [line.get("result", {}).get("outcome", {}) for line in self.told()]
        return [str(outcome.get("optionId", outcome.get("outcome"))) for outcome in given]

    def made(self) -> list[str]:
        """The files in the working folder."""
        return sorted(path.name for path in self.cwd.iterdir())


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """The scripted agent."""
    return Scripts(tmp_path)


@pytest.fixture
def touch() -> Callable[..., dict[str, Any]]:
    """A call that makes a file."""

    def call(file: str, **more: Any) -> dict[str, Any]:
        return {"call": f"c-{file}", "title": f"touch {file}", "run": f"touch {file}", **more}

    return call
