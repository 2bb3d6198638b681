"""What a thread has used, out of the running totals that the client repeats."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from proctor.adapters.agents.codex.session_log import CodexUsageLog
from proctor.adapters.agents.codex.translation import UsageCount
from proctor.supervisor import EventError


def total(tokens: int) -> dict[str, int]:
    return {"inputTokens": tokens, "totalTokens": tokens}


def used(count: UsageCount, tokens: int) -> int | None:
    update = count.update(total(tokens), total(tokens), None)
    return None if update is None else update.input_tokens


def test_a_total_that_comes_once_more_after_a_newer_one_takes_nothing_back() -> None:
    """As messages of several threads may; what follows counts from the newest."""
    count = UsageCount(fresh=True)

    assert [used(count, tokens) for tokens in (200, 300, 200, 350)] == [200, 100, None, 50]


def test_a_total_from_before_the_run_that_comes_late_takes_nothing_back() -> None:
    """The thread was resumed with a newer one."""
    count = UsageCount(fresh=False)
    count.past(total(300))

    assert [used(count, tokens) for tokens in (200, 310)] == [None, 10]


def test_an_unreported_total_that_falls_is_refused() -> None:
    """What was used stays used."""
    count = UsageCount(fresh=True)
    used(count, 300)

    with pytest.raises(EventError, match="fell from 300 to 250"):
        used(count, 250)


def test_totals_that_come_in_another_order_count_once() -> None:
    """A newer one says by its own response which one it was added to, and that one its own."""
    count = UsageCount(fresh=True)

    updates = [count.update(total(whole), total(last), None) for whole, last in ((350, 50), (300, 100), (200, 200))]

    assert [update and update.input_tokens for update in updates] == [350, None, None]


OWN, THREAD, OTHER = (str(UUID(int=n)) for n in range(3))


def rollout(sessions: Path, hour: int, thread: str, session: str, tokens: int) -> Path:
    """A thread's rollout with one response; each begins an hour after the one before."""
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
    """One whose first line is still being written counts once that is whole."""
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


def test_a_rollout_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """It may be that of a thread of the session."""
    main = rollout(tmp_path, 1, OWN, OWN, 10)
    broken = rollout(tmp_path, 2, OTHER, OTHER, 5)
    broken.write_text("not JSON\n")
    log = CodexUsageLog(str(main), None, datetime(2026, 1, 1, tzinfo=UTC))

    with pytest.raises(EventError, match=f"{broken.name}` cannot be read"):
        log.news(may_be_missing=False)
