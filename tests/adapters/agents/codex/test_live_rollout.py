"""The client's own record of a thread, read while it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from proctor.adapters.agents.codex.live_rollout import Rollout
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

PADDING = 8 * 1024 * 1024
"""So much that readers meet."""


def written(call_id: str) -> str:
    """A line of the record: a call that the model wrote."""
    arguments = json.dumps({"cmd": call_id})
    payload = {"type": "function_call", "call_id": call_id, "arguments": arguments}
    return json.dumps({"type": "response_item", "payload": payload}) + "\n"


async def test_readers_side_by_side_miss_nothing(tmp_path: Path) -> None:
    """Each asks for its own call while the record grows."""
    path = tmp_path / "rollout.jsonl"
    names = [f"c{n}" for n in range(40)]
    path.write_text(f"{'x' * PADDING}\n" + "".join(map(written, names[:20])))
    rollout = Rollout(path)
    found: dict[str, dict[str, Any] | None] = {}

    async def ask(name: str) -> None:
        found[name] = await rollout.arguments(name)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as readers:
            for name in names:
                readers.start_soon(ask, name)
            await rollout.read()
            await anyio.to_thread.run_sync(append, path, "".join(map(written, names[20:])))

    assert found == {name: {"cmd": name} for name in names}


async def test_a_call_that_is_over_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ever have asked what the model wrote."""
    monkeypatch.setattr("proctor.adapters.agents.codex.live_rollout._TRIES", 1)
    path = tmp_path / "rollout.jsonl"
    payload = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    over = json.dumps({"type": "response_item", "payload": payload}) + "\n"
    path.write_text(written("c1") + written("c2") + over)
    rollout = Rollout(path)
    await rollout.read()

    assert rollout.pop_outputs() == {"c1": "ok"}
    assert await rollout.arguments("c1") is None
    assert await rollout.arguments("c2") == {"cmd": "c2"}


def append(path: Path, text: str) -> None:
    """Let the record grow."""
    with path.open("a") as record:
        record.write(text)


async def test_a_line_that_is_not_whole_is_read_when_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no line of a record is passed over, and a call that is not recorded in time is unknown."""
    monkeypatch.setattr("proctor.adapters.agents.codex.live_rollout._TRIES", 2)
    path = tmp_path / "rollout.jsonl"
    line = written("c1")
    path.write_text("no record\n" + line[:20])
    rollout = Rollout(path)
    await rollout.read()
    append(path, line[20:])

    assert await rollout.arguments("c1") == {"cmd": "c1"}
    assert await rollout.arguments("c2") is None
