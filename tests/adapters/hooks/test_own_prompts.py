"""Prompts that no person wrote: those that wake the client, and those that its model has scheduled."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

WOKEN = "<task-notification>\n<result>The user wants the refund.</result>\n</task-notification>"


@pytest.mark.parametrize("prompts", [False, True])
async def test_subagents_that_outlive_the_response_work_in_its_run(session: Any, prompts: bool) -> None:
    """Their questions stay open and their usage counts until they end. Waking the client is no prompt of a person,
    who may prompt meanwhile.
    """
    session.policy.write_text(
        "{name: p, limits: {max_tool_calls: {max: 3, action: deny}},"
        " tool_rules: [{deny: [Write], action: request_approval}]}"
    )
    session.pre("t1")
    session.pre("t2", "Write")
    session.hook("Stop", background_tasks=[{"type": "shell"}, {"type": "subagent", "status": "running"}])
    session.post("t2", "Write")
    session.prompt("p2", "next" if prompts else WOKEN)
    answers = [session.pre(f"u{n}").verdict for n in range(3)]
    session.hook("Stop", background_tasks=[{"type": "shell"}])
    found = await session.events("tool_approval_granted", "run_started", "run_completed")

    assert answers == (["allow"] * 3 if prompts else ["allow", "deny", "deny"])
    assert [event.type for event in found] == [
        *("run_started", "tool_approval_granted"),
        *(("run_completed", "run_started") if prompts else ()),
        "run_completed",
    ]


async def test_waking_the_client_continues_no_cancelled_run_and_is_not_the_users_text(session: Any) -> None:
    """Nor does a wake-up after a denied subagent ends, with which its client would continue."""
    session.policy.write_text(
        "{name: p, on_violation: deny, tool_rules: [{deny: [Write], action: cancel}],"
        " rules: [{type: precondition, tool: Refund, requires: [{user_said: refund}]}]}"
    )
    session.prompt("p1")
    session.hook("Stop", background_tasks=[{"type": "subagent"}])
    session.prompt("w1", WOKEN)
    refund = session.pre("t1", "Refund").verdict
    cancelled = session.pre("t2", "Write")
    sibling = session.pre("t3")
    woken = session.prompt("w2", WOKEN)
    late = session.pre("t4").verdict
    session.prompt("p2")
    after = session.pre("t5").verdict
    session.prompt_id = "w1"

    assert cancelled.stop
    assert (refund, sibling.verdict, woken.verdict, late, after) == ("deny", "deny", "deny", "deny", "allow")
    assert session.pre("t6").verdict == "deny"
    assert [event.role for event in await session.events("message_sent")] == ["user", "system", "user"]


def logged(session: Any, *lines: dict[str, Any]) -> None:
    """The client writes these lines into its log."""
    session.log.parent.mkdir(exist_ok=True)
    with session.log.open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


FIRED = {"type": "system", "subtype": "scheduled_task_fire"}


@pytest.mark.parametrize("tool", ["CronCreate", "ScheduleWakeup", ""])
async def test_a_scheduled_prompt_is_not_the_users_text_and_is_denied_after_a_cancel(session: Any, tool: str) -> None:
    """No hook marks it; the client's log or the scheduling call does. A person may write the same prompt."""
    session.policy.write_text(
        "{name: p, on_violation: deny, tool_rules: [{deny: [Write], action: cancel}],"
        " rules: [{type: precondition, tool: Refund, requires: [{user_said: refund}]}]}"
    )
    typed = {"type": "user", "promptSource": "typed"}
    session.prompt("p1")
    if tool:
        session.pre("t1", tool, prompt="refund it")
        session.post("t1", tool, prompt="refund it")
    session.hook("Stop")
    logged(session, typed, *([] if tool else [FIRED]))
    session.prompt("s1", "refund it")
    refund = session.pre("t2", "Refund").verdict
    cancelled = session.pre("t3", "Write").stop
    logged(session, FIRED)
    denied = session.prompt("s2", "refund it").verdict
    logged(session, typed)
    again = session.prompt("p2", "refund it").verdict

    assert (refund, cancelled, denied, again) == ("deny", True, "deny", "allow")
    roles = [event.role for event in await session.events("message_sent")]
    assert roles == ["user", "system", "system" if tool else "user"]
