"""Who may say yes to a call of the client, and how far a yes reaches that was given elsewhere in its session."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from proctor.adapters.hooks.messages import HookAnswer
from proctor.adapters.stores import SQLiteStore
from proctor.policies import load_policies
from proctor.supervisor import ApprovalAnswer, ApprovalRequest, run_once
from proctor.supervisor.testing.fakes import Ask, FakeAdapter

pytestmark = pytest.mark.anyio
POLICY = "{name: p, approval: {%s}, tool_rules: [{deny: [Bash], action: request_approval}]}"


async def granted(session: Any, scope: Literal["once", "run", "session"]) -> None:
    """An earlier run of the session, under the same policy, asked for a call, and a person said yes."""

    async def ana(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", scope=scope)

    agent = FakeAdapter([Ask(id="c1", name="Bash", input={"command": "make"})])
    policies = load_policies(session.policy)
    async with SQLiteStore(session.store) as store:
        await run_once(agent, "go", policies=policies, store=store, session_id="s", approver=ana)


@pytest.mark.parametrize(("scope", "verdict"), [("session", "allow"), ("run", "ask"), ("once", "ask")])
async def test_a_yes_for_the_session_holds_for_each_prompt_that_follows(
    session: Any, scope: Any, verdict: str
) -> None:
    """Whatever the input: it is a yes to what the rule asks, not to one call."""
    session.policy.write_text(POLICY % "scope: session")
    await granted(session, scope)
    answers = []
    for n in (2, 3):
        session.prompt(f"p{n}")
        answers += [session.pre(f"c{n}{k}", command=f"make {k}").verdict for k in "ab"]
        session.hook("Stop")

    assert answers == [verdict] * 4


async def test_a_call_that_a_yes_covers_says_whose_it_was(session: Any) -> None:
    """Nobody was asked, and the record says by which approval and by whom."""
    session.policy.write_text(POLICY % "scope: session")
    await granted(session, "session")
    session.prompt("p2")
    session.pre("c2", command="make all")
    first, covered = await session.events("tool_approval_granted")

    assert (covered.tool_call_id, covered.covered_by, covered.by) == ("c2", first.approval_id, "ana")
    assert [event.tool_call_id for event in await session.events("tool_approval_requested")] == ["c1"]


async def test_a_policy_that_allows_less_by_then_lets_no_yes_hold(session: Any) -> None:
    """A file that is read again counts from the next hook on."""
    session.policy.write_text(POLICY % "scope: session")
    await granted(session, "session")
    session.prompt("p2")
    allowed = session.pre("c2", command="x").verdict
    session.policy.write_text(POLICY % "scope: once, timeout_s: 60")
    session.prompt("p3")

    assert (allowed, session.pre("c3", command="x").verdict) == ("allow", "ask")


@pytest.mark.parametrize("rule", ["approvers: [ana]", "approvers: ['@sre']", "four_eyes: true"])
async def test_a_policy_that_names_who_may_answer_does_not_ask_whoever_sits_there(session: Any, rule: str) -> None:
    """The client does not say who answers it; the call is refused, and the record says that nobody could be asked."""
    session.policy.write_text(POLICY % rule)
    session.prompt("p1")
    refused = session.pre("c1", command="x")
    session.post("c1", command="x")

    assert refused == HookAnswer(verdict="deny", reason="Tool 'Bash' is not available in this context.")
    assert [event.decision for event in await session.events("tool_call_denied")][:1] == ["approval_unanswerable"]
    assert await session.events("tool_approval_granted") == []
