"""The client's logs of threads: reading one while it grows, and finding those that contain a session's tokens."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import anyio.to_thread
import pytest

from proctor.adapters.agents.codex.live_rollout import Rollout
from proctor.adapters.agents.codex.session_log import CodexUsageLog
from proctor.supervisor import EventError

pytestmark = pytest.mark.anyio

PADDING = 8 * 1024 * 1024
"""Enough text for readers to meet."""


def written(call_id: str) -> str:
    """A line of the log: a call that the model wrote."""
    arguments = json.dumps({"cmd": call_id})
    payload = {"type": "function_call", "call_id": call_id, "arguments": arguments}
    return json.dumps({"type": "response_item", "payload": payload}) + "\n"


async def test_concurrent_readers_miss_nothing(tmp_path: Path) -> None:
    """Each reads its own call while the log grows."""
    path = tmp_path / "rollout.jsonl"
    names = [f"c{n}" for n in range(40)]
    path.write_text(f"{'x' * PADDING}\n" + "".join(map(written, names[:20])))
    rollout = Rollout(path)
    found: dict[str, dict[str, Any] | None] = {}

    async def ask(name: str) -> None:
        found[name] = await rollout.arguments(name)

    async with anyio.create_task_group() as readers:
        for name in names:
            readers.start_soon(ask, name)
        await rollout.read()
        await anyio.to_thread.run_sync(append, path, "".join(map(written, names[20:])))

    assert found == {name: {"cmd": name} for name in names}


async def test_a_finished_call_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nobody has read it."""
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
    """Append to the log."""
    with path.open("a") as record:
        record.write(text)


async def test_an_incomplete_line_is_read_once_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is no record is skipped, and a call that is not logged in time is unknown."""
    monkeypatch.setattr("proctor.adapters.agents.codex.live_rollout._TRIES", 2)
    path = tmp_path / "rollout.jsonl"
    line = written("c1")
    path.write_text("no record\n" + line[:20])
    rollout = Rollout(path)
    await rollout.read()
    append(path, line[20:])

    assert await rollout.arguments("c1") == {"cmd": "c1"}
    assert await rollout.arguments("c2") is None


OWN, THREAD, OTHER = (str(UUID(int=n)) for n in range(3))


def rollout(sessions: Path, hour: int, thread: str, session: str, tokens: int) -> Path:
    """The log of a thread with one response; each starts an hour after the one before."""
    used = {"response_id": thread, "thread_id": thread, "session_id": session, "usage": {"input_tokens": tokens}}
    lines = [
        {"type": "session_meta", "payload": {"id": thread, "session_id": session}},
        {"type": "turn_context", "payload": {"model": "m"}},
        {"type": "token_usage_record", "payload": used},
    ]
    path = sessions / "2026" / "01" / "02" / f"rollout-2026-01-02T{hour:02}-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_session_has_the_threads_that_it_started_and_no_others(tmp_path: Path) -> None:
    """A log whose first line is incomplete counts once that is complete."""
    main = rollout(tmp_path, 1, OWN, OWN, 10)
    whole = rollout(tmp_path, 2, THREAD, OWN, 5).read_text()
    late = tmp_path.joinpath("2026/01/02", f"rollout-2026-01-02T02-00-00-{THREAD}.jsonl")
    late.write_text(whole[:20])
    rollout(tmp_path, 3, OTHER, OTHER, 1000)
    log = CodexUsageLog(str(main), None, datetime(2026, 1, 1, tzinfo=UTC))
    first = log.news(may_be_missing=False)
    late.write_text(whole)
    second = log.news(may_be_missing=False)

    assert [(one.input_tokens, one.subagent_tokens) for one in (*first, *second)] == [(10, 0), (5, 5)]


def test_an_unreadable_log_is_named(tmp_path: Path) -> None:
    """It may belong to a thread of the session."""
    main = rollout(tmp_path, 1, OWN, OWN, 10)
    broken = rollout(tmp_path, 2, OTHER, OTHER, 5)
    broken.write_text("not JSON\n")
    log = CodexUsageLog(str(main), None, datetime(2026, 1, 1, tzinfo=UTC))

    with pytest.raises(EventError, match=f"{broken.name}` cannot be read"):
        log.news(may_be_missing=False)
