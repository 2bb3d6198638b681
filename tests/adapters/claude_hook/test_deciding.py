"""What each hook means, hook by hook, over a store in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from proctor.adapters.claude_hook.answers import Answer
from proctor.adapters.claude_hook.hook import answered
from proctor.adapters.claude_hook.settings import TIMEOUT_S
from proctor.policies import EventError, RunContext


def test_a_limit_counts_each_prompt_and_one_of_the_session_all(session: Any) -> None:
    """A run is one prompt; `scope: session` counts over all of them."""
    session.policy.write_text(
        "{name: p, on_violation: deny, limits: {max_tool_calls: 2}, rules: [{type: count, tool: Bash, max: 3}]}"
    )
    found = []
    for n in range(3):
        session.prompt(f"p{n}")
        found.append([session.pre(f"t{n}{k}").verdict for k in range(3)])

    assert found == [["allow", "allow", "deny"], ["allow", "deny", "deny"], ["deny", "deny", "deny"]]


@pytest.mark.anyio
async def test_what_a_person_agrees_to_runs_and_is_recorded_as_granted(session: Any) -> None:
    """The client asks; the outcome is the sign that the person said yes."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    asked = session.pre("t1", command="x")
    session.post("t1", command="x")
    found = await session.events("tool_approval_granted", "tool_call_started", "tool_call_completed")

    assert asked == Answer(verdict="ask", reason="Tool 'Bash' is not available in this context.")
    assert [event.type for event in found] == ["tool_approval_granted", "tool_call_started", "tool_call_completed"]
    assert (await session.events("policy_violation"))[0].action == "request_approval"
    assert len(await session.events("policy_violation")) == 1


def test_two_questions_at_once_cannot_spend_the_same_budget(session: Any) -> None:
    """While a person is asked about one call, another is judged as if they had agreed."""
    session.policy.write_text(
        "{name: p, limits: {max_tool_calls: {max: 1, action: deny}},"
        " tool_rules: [{deny: [Bash], action: request_approval}]}"
    )
    first = session.pre("t1")
    second = session.pre("t2")
    session.batch("t1")
    third = session.pre("t3")

    assert [first.verdict, second.verdict, third.verdict] == ["ask", "deny", "ask"]


def test_a_call_that_never_ran_is_no_evidence(session: Any) -> None:
    """Allowed here and refused by the person in the client: it has failed."""
    session.policy.write_text("{name: p, on_violation: deny, rules: [{type: before, first: Read, then: Bash}]}")
    session.pre("t1", "Read")
    session.batch("t1")
    refused = session.pre("t2")
    session.pre("t3", "Read")
    session.post("t3", "Read")
    allowed = session.pre("t4")

    assert (refused.verdict, allowed.verdict) == ("deny", "allow")


def test_the_same_call_asked_twice_counts_once_and_its_id_serves_no_other(session: Any) -> None:
    """A hook started twice for one call spends one; another call under that id is refused."""
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 1, action: deny}}}")
    again = [session.pre("t1", command="a").verdict for _ in range(2)]
    other = session.pre("t1", command="b").verdict

    assert again == ["allow", "allow"]
    assert other == "deny"


def test_an_input_another_hook_rewrote_is_judged_when_it_has_run(session: Any) -> None:
    """What ran is not what was allowed: too late to refuse, so the response is ended."""
    rule = "{tool: Bash, where: [{path: $.command, regex: rm}]}"
    session.policy.write_text(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{rule}]}}]}}")
    before = session.pre("t1", command="ls")
    after = session.post("t1", command="rm x")

    assert before.verdict == "allow"
    assert after.stop


@pytest.mark.anyio
async def test_after_a_cancel_nothing_of_that_prompt_runs(session: Any) -> None:
    """Siblings and sub-agents of the ended response are refused; the next prompt is a new run."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Write]}]}")
    session.prompt("p1")
    cancelled = session.pre("t1", "Write")
    sibling = session.pre("t2")
    session.hook("Stop")
    session.prompt("p2")
    allowed = session.pre("t3")

    assert (cancelled.verdict, cancelled.stop) == ("deny", True)
    assert (sibling.verdict, sibling.stop) == ("deny", True)
    assert allowed.verdict == "allow"
    assert len(await session.events("run_cancelled", "run_completed", "run_failed")) == 1


def test_what_a_prompt_owed_is_told_to_the_person(session: Any) -> None:
    """A required call that was not made is noted when the response ends."""
    session.policy.write_text("{name: p, on_violation: warn, rules: [{type: require, tool: Test}]}")
    session.prompt("p1")
    ended = session.hook("Stop", last_assistant_message="done")

    assert len(ended.notes) == 1
    assert "`p`" in ended.notes[0]
    assert ended.verdict == "allow"


def test_a_limit_that_comes_near_is_told_to_the_person_once(session: Any) -> None:
    """`warn_at` shows beside the call that passed it, and not again."""
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 4, warn_at: 0.5}}}")
    notes = [session.pre(f"t{n}").notes for n in range(4)]

    assert [note for note in notes if note] == [("`max_tool_calls`: 2 of 4 used",)]


def test_turns_are_counted_by_the_responses_that_are_over(session: Any) -> None:
    """`max_parallel` counts within one response."""
    session.policy.write_text("{name: p, on_violation: deny, rules: [{type: max_parallel, max: 2}]}")
    first = [session.pre(f"a{n}").verdict for n in range(3)]
    session.batch("a0", "a1", "a2")
    second = [session.pre(f"b{n}").verdict for n in range(3)]

    assert first == second == ["allow", "allow", "deny"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"session_id":"s","hook_event_name":"PreToolUse"}'])
def test_what_is_no_hook_is_refused(session: Any, data: bytes) -> None:
    """Nothing is recorded of it."""
    session.policy.write_text("{name: p}")
    with pytest.raises(EventError):
        answered(data, [str(session.policy)], session.store, RunContext())

    assert not session.store.exists()


def test_a_hook_process_refuses_in_public_words(session: Any) -> None:
    """Exit code 2 for what is no hook; for a call, a refusal whose reason says nothing of the policy."""
    session.policy.write_text("{name: secret, rules: 7}")
    command = [sys.executable, "-m", "proctor.adapters.claude_hook", "--policy", str(session.policy)]
    command += ["--store", str(session.store)]
    call = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "tool_name": "Bash"}
    garbage = subprocess.run(command, input="garbage", capture_output=True, text=True)
    refused = subprocess.run(command, input=json.dumps(call), capture_output=True, text=True)

    told = json.loads(refused.stdout)
    assert (garbage.returncode, garbage.stdout) == (2, "")
    assert "Traceback" not in garbage.stderr
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "rules" not in told["hookSpecificOutput"]["permissionDecisionReason"]
    assert "rules" in told["systemMessage"]


def test_a_hook_that_hangs_is_ended_before_the_client_gives_up_on_it() -> None:
    """The client would let the call run; an alarm is set before anything slow is imported."""
    code = (
        "import signal, sys, proctor.adapters.claude_hook.__main__; print(signal.alarm(0), 'msgspec' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    left, slow = ended.stdout.split()

    assert 0 < int(left) < TIMEOUT_S
    assert slow == "False"
