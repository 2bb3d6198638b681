"""A client that dies leaves its run as it was; its session goes on, with all that was counted."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import TERMINAL, RunFailed
from proctor.supervisor.control.ownership import reap_run

pytestmark = pytest.mark.anyio
POLICY = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"


async def statuses(session: Any) -> list[str]:
    async with SQLiteStore(session.store) as store:
        return [run.status for run in reversed(await store.runs())]


async def ended_as_lost(session: Any) -> bool:
    async with SQLiteStore(session.store) as store:
        [run] = await store.runs()
        return await reap_run(store, run)


async def record(session: Any) -> list[Any]:
    async with SQLiteStore(session.store) as store:
        return [event async for event in store.read("s")]


async def test_a_session_whose_client_died_continues_with_its_next_prompt(session: Any) -> None:
    """The run that was left is over then, and what it used is used."""
    session.policy.write_text(POLICY)
    session.prompt("p1")
    for id in ("c1", "c2"):
        assert session.pre(id, command="ls").verdict == "allow"
        session.post(id, command="ls")
    session.end()
    left = await statuses(session)
    session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")

    assert left == ["running"]
    assert await statuses(session) == ["completed", "running"]
    assert (third.verdict, session.pre("c4", command="ls").verdict) == ("allow", "deny")


@pytest.mark.parametrize("prompted", [True, False])
async def test_a_session_whose_run_was_ended_as_lost_continues(session: Any, prompted: bool) -> None:
    """By a prompt, or by a call of one that was not seen: a run of its own, no record lost, limits counted on."""
    session.policy.write_text(POLICY)
    session.prompt("p1")
    for id in ("c1", "c2"):
        session.pre(id, command="ls")
        session.post(id, command="ls")
    ended = await ended_as_lost(session)
    before = await record(session)
    if prompted:
        session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")
    fourth = session.pre("c4", command="ls")
    after = await record(session)
    ends = [event for event in after if isinstance(event, TERMINAL)]

    assert ended
    assert isinstance(before[-1], RunFailed)
    assert (before[-1].error or {}).get("code") == "owner_lost"
    assert after[: len(before)] == before
    assert [event.seq for event in after] == list(range(1, len(after) + 1))
    assert (third.verdict, fourth.verdict) == ("allow", "deny")
    assert len([event for event in ends if event.run_id == before[-1].run_id]) == 1
