"""A session of Claude Code as its hooks see it, over a store in a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.claude_hook.answers import Answer
from proctor.adapters.claude_hook.hook import answered
from proctor.adapters.stores import SQLiteStore
from proctor.policies import RunContext


class HookedSession:
    """A session of the client, as its hooks see it."""

    def __init__(self, folder: Path) -> None:
        self.policy = folder / "policy.yaml"
        self.store = folder / "store.db"
        self.log = folder / "log" / "s.jsonl"
        self.prompt_id = "p1"

    def hook(self, name: str, **fields: Any) -> Answer:
        """One hook's answer."""
        data = {"session_id": "s", "hook_event_name": name, "prompt_id": self.prompt_id, **fields}
        data.setdefault("transcript_path", str(self.log))
        return answered(json.dumps(data).encode(), [str(self.policy)], self.store, RunContext())[0]

    def pre(self, id: str, tool: str = "Bash", **tool_input: Any) -> Answer:
        """A call is about to run."""
        return self.hook("PreToolUse", tool_use_id=id, tool_name=tool, tool_input=tool_input)

    def post(self, id: str, tool: str = "Bash", response: Any = "", **tool_input: Any) -> Answer:
        """A call has completed."""
        fields = {"tool_use_id": id, "tool_name": tool, "tool_input": tool_input, "tool_response": response}
        return self.hook("PostToolUse", **fields)

    def batch(self, *ids: str) -> Answer:
        """The calls of a response are over."""
        return self.hook("PostToolBatch", tool_calls=[{"tool_use_id": id, "tool_name": "Bash"} for id in ids])

    def prompt(self, prompt_id: str, text: str = "go") -> Answer:
        """The person prompts."""
        self.prompt_id = prompt_id
        return self.hook("UserPromptSubmit", prompt=text)

    def used(self, message: str, *, log: str = "", model: str = "claude-sonnet-4-5", **usage: Any) -> None:
        """The client writes a line of a response into its log, or into that of a sub-agent."""
        path = self.log.with_suffix("") / "subagents" / f"{log}.jsonl" if log else self.log
        path.parent.mkdir(parents=True, exist_ok=True)
        said = {"id": message, "role": "assistant", "model": model, "content": [], "usage": usage}
        line = {"type": "assistant", "timestamp": datetime.now(UTC).isoformat(), "message": said}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def events(self, *types: str) -> list[Any]:
        """What is stored, of these types if any are given."""
        async with SQLiteStore(self.store) as store:
            return [event async for event in store.read("s") if not types or event.type in types]


@pytest.fixture
def session(tmp_path: Path) -> HookedSession:
    """A session with no events yet."""
    return HookedSession(tmp_path)
