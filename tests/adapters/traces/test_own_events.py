"""The product's own record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.adapters.traces import TraceError, TraceSession, read_sessions

STARTED = {"type": "tool_call_started", "tool_call_id": "c", "tool_name": "read"}


def event(session: str, seq: int, **fields: Any) -> dict[str, Any]:
    """One event of a run."""
    return {"session_id": session, "run_id": f"run-{session}", "seq": seq, **fields}


def test_sessions_that_were_stored_mixed_are_taken_apart(write: Callable[..., str]) -> None:
    """Each with its own events, in the order of their first ones."""
    path = write(
        event("b", 1, type="run_started", model="m"),
        event("a", 1, type="run_started"),
        event("b", 2, **STARTED),
    )

    found = list(read_sessions([path]))

    assert [(s.id, [e.type for e in s.events]) for s in found] == [
        ("b", ["run_started", "tool_call_started"]),
        ("a", ["run_started"]),
    ]
    assert found[0].metadata == {"model": "m"}


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([event("s", 1, type="run_started")], False),
        ([event("s", 1, type="run_started"), event("s", 2, type="run_completed")], True),
        ([event("s", 1, type="run_failed"), {"type": "session_paused", "session_id": "s", "seq": 2}], True),
        ([event("s", 1, type="run_completed"), event("s", 2, type="run_started")], False),
    ],
)
def test_a_session_is_complete_once_its_last_run_has_ended(
    read_one: Callable[..., TraceSession], events: list[dict[str, Any]], complete: bool
) -> None:
    """A resumed session is open again; bookkeeping after the end does not open it."""
    assert read_one(*events).complete is complete


def test_an_event_of_a_later_version_is_kept(read_one: Callable[..., TraceSession]) -> None:
    """Unknown types are no errors."""
    session = read_one(event("s", 1, type="run_started"), event("s", 2, type="thought_shared", text="hm"))

    assert session.events[1].type == "thought_shared"


def test_events_without_ids_are_one_session_and_are_numbered(read_one: Callable[..., TraceSession]) -> None:
    """A trace written by hand needs neither."""
    session = read_one({**STARTED, "tool_call_id": "c1"}, {**STARTED, "tool_call_id": "c2"}, format="events")

    assert [e.seq for e in session.events] == [1, 2]
    assert session.id.endswith("trace.jsonl")


def test_a_broken_event_is_named_with_its_line(write: Callable[..., str]) -> None:
    """What is wrong with it stands in the message."""
    path = write(event("s", 1, type="run_started"), event("s", 2, type="tool_call_started", tool_name=7))

    with pytest.raises(TraceError, match=r"trace\.jsonl:2: `tool_call_started` event: "):
        list(read_sessions([path]))


def test_a_call_that_was_denied_never_ran_and_one_that_is_asked_for_may_still(
    read_one: Callable[..., TraceSession],
) -> None:
    """A person may have been asked."""
    ask = {**STARTED, "type": "tool_call_requested"}
    deny = {"type": "tool_call_denied", "tool_call_id": "c2"}

    session = read_one(event("s", 1, **ask), event("s", 2, **{**ask, "tool_call_id": "c2"}), event("s", 3, **deny))

    assert session.never_ran == {"c2"}
