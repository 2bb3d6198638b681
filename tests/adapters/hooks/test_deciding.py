"""What each hook means, hook by hook, over a store in a file."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.hooks.clients.claude import TIMEOUT_S
from proctor.adapters.hooks.hook_judge import HookJudge
from proctor.adapters.hooks.settings import DAEMON_CLIENT
from proctor.policies import EventError


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
    waiting = session.pre("t1", command="x")
    session.post("t1", command="x")
    found = await session.events("tool_approval_granted", "tool_call_started", "tool_call_completed")

    assert waiting.verdict == "ask"
    assert "policy `p`, rule `deny-1`: `Bash` was requested" in waiting.reason
    assert [event.type for event in found] == ["tool_approval_granted", "tool_call_started", "tool_call_completed"]
    assert await session.events("policy_violation") == []


@pytest.mark.anyio
async def test_a_call_without_the_input_it_is_judged_by_is_denied_and_recorded_with_its_rule(session: Any) -> None:
    """As of a newer version that names the command otherwise; a rule about another tool changes nothing."""
    push = "{tool: bash, where: [{path: $.command, runs: git push}]}"
    session.policy.write_text(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{push}]}}]}}")
    answers = [session.pre("t1", cmd="git push").verdict, session.pre("t2", command="ls").verdict]
    (found,) = await session.events("policy_violation")
    denied = await session.events("tool_call_denied")

    assert answers == ["deny", "allow"]
    assert (found.rule, found.tool_call_id) == ("deny-1", "t1")
    assert [event.tool_call_id for event in denied] == ["t1"]


@pytest.mark.anyio
async def test_a_call_with_a_secret_runs_as_it_was_agreed_to(session: Any) -> None:
    """Also where the process that judges began anew meanwhile, and the record has a placeholder in its place."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    secret = "ghp" + "_" + "k9" * 18
    answers = [session.pre(id, command=f"push {secret}").verdict for id in ("t1", "t2")]
    session.post("t1", command=f"push {secret}")
    session.post("t2", command="push other")
    found = await session.events("tool_approval_granted", "tool_approval_denied")

    assert answers == ["ask", "ask"]
    assert secret not in repr(await session.events())
    assert [(event.type, event.tool_call_id) for event in found] == [
        ("tool_approval_granted", "t1"),
        ("tool_approval_denied", "t2"),
    ]
    assert "t1" in [event.tool_call_id for event in await session.events("tool_call_started")]
    assert "t1" not in [event.tool_call_id for event in await session.events("tool_call_denied")]


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


def test_an_id_whose_call_runs_serves_no_other(session: Any) -> None:
    """No call runs unjudged under an id that was let through once."""
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}")
    running = [session.pre("t1", command=command).verdict for command in ("a", "a", "b")]

    assert running == ["allow", "deny", "deny"]


def test_an_id_whose_call_is_over_names_a_new_call(session: Any) -> None:
    """It is judged and counted like any other."""
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}")
    answers = []
    for _ in range(3):
        answers.append(session.pre("t1", command="a").verdict)
        session.post("t1", command="a")

    assert answers == ["allow", "allow", "deny"]


@pytest.mark.parametrize("command", ["a", "b"])
def test_a_call_that_waits_for_a_person_is_never_allowed_when_asked_again(session: Any, command: str) -> None:
    """With the same input or another, the hook says no more than that it waits."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    first = session.pre("t1", command="a").verdict
    again = session.pre("t1", command=command).verdict
    session.post("t1", command="a")

    assert (first, again) == ("ask", "deny")


@pytest.mark.anyio
async def test_two_lines_over_one_store_each_judge_the_session(session: Any, tmp_path: Path) -> None:
    """A person's own policy and a project's: neither takes the other's record for its own."""
    session.policy.write_text("{name: lax}")
    strict = tmp_path / "strict.yaml"
    strict.write_text("{name: strict, limits: {max_tool_calls: {max: 1, action: deny}}}")
    other = HookJudge(session.line("two", strict))
    answers = []
    for id in ("t1", "t2"):
        call = {"session_id": "s", "hook_event_name": "PreToolUse", "prompt_id": "p1", "tool_use_id": id}
        data = json.dumps({**call, "tool_name": "Bash"}).encode()
        answers.append((session.pre(id).verdict, other.answered(data)[0].verdict))
    other.close()

    assert answers == [("allow", "allow"), ("allow", "deny")]
    assert len(await session.events("tool_call_started")) == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    "allowed", ["{name: p}", "{name: p, on_violation: warn, rules: [{type: blocklist, tools: [Read]}]}"]
)
async def test_an_input_another_hook_rewrote_ends_the_response_whatever_it_became(session: Any, allowed: str) -> None:
    """What ran is not what was judged; it is judged now, and that alone is a violation."""
    session.policy.write_text(allowed)
    before = session.pre("t1", command="ls")
    after = session.post("t1", command="ls -l")
    sibling = session.pre("t2", command="ls")
    [found] = await session.events("policy_violation")
    started = await session.events("tool_call_started")

    assert before.verdict == "allow"
    assert (after.stop, sibling.verdict) == (True, "deny")
    assert (found.rule, found.action, found.enforcement) == ("input_changed", "cancel", "interrupted")
    assert [event.tool_input for event in started] == [{"command": "ls"}, {"command": "ls -l"}]


@pytest.mark.anyio
async def test_an_input_rewritten_to_a_denied_one_breaks_that_rule_too(session: Any) -> None:
    """The record names the rule that the input would have been refused by."""
    rule = "{tool: Bash, where: [{path: $.command, regex: rm}]}"
    session.policy.write_text(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{rule}]}}]}}")
    session.pre("t1", command="ls")
    after = session.post("t1", command="rm x")
    found = await session.events("policy_violation")

    assert after.stop
    assert {event.policy for event in found} == {"p", "supervision"}


@pytest.mark.anyio
async def test_a_person_s_yes_to_one_input_does_not_count_for_another(session: Any) -> None:
    """What ran after the question is not what was asked about: the approval is not granted, the run ends."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    session.pre("t1", command="ls")
    after = session.post("t1", command="rm x")

    assert after.stop
    assert await session.events("tool_approval_granted") == []


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


def test_what_a_prompt_still_owes_is_reported_to_the_person(session: Any) -> None:
    """A required call that was not made is noted when the response ends."""
    session.policy.write_text("{name: p, on_violation: warn, rules: [{type: require, tool: Test}]}")
    session.prompt("p1")
    ended = session.hook("Stop", last_assistant_message="done")

    assert len(ended.notes) == 1
    assert "`p`" in ended.notes[0]
    assert ended.verdict == "allow"


def test_a_limit_that_is_almost_reached_is_reported_to_the_person_once(session: Any) -> None:
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
        session.raw(data)

    assert sqlite3.connect(session.store).execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_a_hook_process_refuses_in_public_words(hooked: Any) -> None:
    """Exit code 2 for what is no hook; for a call, a refusal whose reason says nothing of the policy."""
    hooked.policy.write_text("{name: secret, rules: 7}")
    call = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "tool_name": "Bash"}
    garbage = hooked.run(b"garbage")
    answer = hooked.answer_to(call)

    assert (garbage.returncode, garbage.stdout) == (2, b"")
    assert b"Traceback" not in garbage.stderr
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "rules" not in answer["hookSpecificOutput"]["permissionDecisionReason"]
    assert "rules" in answer["systemMessage"]


def test_a_hook_that_hangs_is_ended_before_the_client_gives_up_on_it() -> None:
    """The client would let the call run; the alarm is set before anything is read or asked."""
    code = f"import sys; sys.path.insert(0, {str(DAEMON_CLIENT.parent)!r}); import daemon_client, signal;"
    code += "daemon_client.refuse = lambda *_: print(signal.alarm(0)); daemon_client.main([])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="")

    assert 0 < int(ended.stdout) < TIMEOUT_S
