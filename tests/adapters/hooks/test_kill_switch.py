"""The kill switch of the store holds a person's own Claude Code too, at its next hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import KillOutcome, KillSwitch

pytestmark = pytest.mark.anyio
POLICY = "{name: p, limits: {max_tool_calls: 9}}"


async def using(session: Any, use: Callable[[KillSwitch], Any]) -> Any:
    async with SQLiteStore(session.store) as store:
        return await use(KillSwitch(store))


async def killed(session: Any, **more: Any) -> list[KillOutcome]:
    given = {"by": "ana", "everything": True, "wait_s": 30, **more}
    outcomes: list[KillOutcome] = await using(session, lambda switch: switch.kill(**given))
    return outcomes


async def test_a_prompt_begins_nothing_until_it_is_lifted(session: Any) -> None:
    """The person is told who, when and why."""
    session.policy.write_text(POLICY)
    session.prompt("p1")
    await using(session, lambda switch: switch.block_starts(by="ana", reason="an incident", everything=True))
    blocked = session.prompt("p2")
    await using(session, lambda switch: switch.lift(by="ana", everything=True))

    assert blocked.verdict == "deny"
    assert blocked.reason.startswith("no run starts: `ana` blocked them at")
    assert "an incident" in blocked.reason
    assert session.prompt("p3").verdict == "allow"
    assert session.pre("c1", command="ls").verdict == "allow"


async def test_a_call_of_a_prompt_that_was_not_seen_runs_no_more(session: Any) -> None:
    """Its response ends, and the model is told nothing of why."""
    session.policy.write_text(POLICY)
    session.prompt("p1")
    await using(session, lambda switch: switch.block_starts(by="ana", reason="secret", everything=True))
    session.hook("Stop")
    answer = session.pre("c1", command="ls")

    assert (answer.verdict, answer.stop) == ("deny", True)
    assert "secret" not in answer.reason


async def test_a_session_that_is_killed_runs_nothing_more_of_that_prompt(session: Any) -> None:
    """The record says so at once, the client hears of it with its next call; the next prompt is a run of its own."""
    session.policy.write_text(POLICY)
    session.prompt("p1")
    before = session.pre("c1", command="ls")
    (outcome,) = await killed(session)
    after = session.pre("c2", command="ls")
    session.prompt("p2")

    assert (before.verdict, after.verdict, after.stop) == ("allow", "deny", True)
    assert (outcome.status, outcome.ended) == ("cancelled", True)
    assert session.pre("c3", command="ls").verdict == "allow"
