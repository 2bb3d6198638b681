"""The effect of each hook: limits, approvals and their scope, the kill switch, explanations."""

import json
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from calling import called
from hook_processes import call_of, decider_for

from proctor.adapters.hooks import decider, record
from proctor.adapters.hooks.clients.claude import TIMEOUT_S
from proctor.adapters.hooks.decider import HookDecider
from proctor.adapters.hooks.messages import HookAnswer
from proctor.adapters.hooks.settings import DAEMON_CLIENT
from proctor.adapters.stores import SQLiteStore
from proctor.policies import EventError, PolicyError, RunContext, load_policies
from proctor.supervisor import ApprovalAnswer, ApprovalRequest, KillSwitch, StoreError, run_once
from proctor.supervisor.testing.fakes import Ask, FakeAdapter

pytestmark = pytest.mark.anyio


def test_a_run_limit_counts_each_prompt_and_a_session_limit_all(session: Any) -> None:
    """A run is one prompt; `scope: session` counts over all of them."""
    session.policy.write_text(
        "{name: p, on_violation: deny, limits: {max_tool_calls: 2}, rules: [{type: count, tool: Bash, max: 3}]}"
    )
    found = []
    for n in range(3):
        session.prompt(f"p{n}")
        found.append([session.pre(f"t{n}{k}").verdict for k in range(3)])

    assert found == [["allow", "allow", "deny"], ["allow", "deny", "deny"], ["deny", "deny", "deny"]]


async def test_a_call_that_the_user_approves_runs_and_is_recorded_as_granted(session: Any) -> None:
    """The client asks; the outcome shows that the user approved."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    waiting = session.pre("t1", command="x")
    session.post("t1", command="x")
    found = await session.events("tool_approval_granted", "tool_call_started", "tool_call_completed")

    assert waiting.verdict == "ask"
    assert "policy `p`, rule `deny-1`: `Bash` was requested" in waiting.reason
    assert [event.type for event in found] == ["tool_approval_granted", "tool_call_started", "tool_call_completed"]
    assert await session.events("policy_violation") == []


async def test_an_output_cut_within_a_character_is_recorded(session: Any) -> None:
    """As JavaScript programs cut text. An input with a lone surrogate never runs."""
    session.policy.write_text("{name: p, on_violation: deny}")
    session.pre("t1", command="x")
    session.post("t1", command="x", response="cut \ud83d")
    (completed,) = await session.events("tool_call_completed")

    assert completed.tool_output == "cut \ufffd"


async def test_a_call_without_the_input_of_its_rule_is_denied_and_recorded_with_the_rule(session: Any) -> None:
    """As of a newer version that renames the command. A rule about another tool has no effect."""
    push = "{tool: bash, where: [{path: $.command, runs: git push}]}"
    session.policy.write_text(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{push}]}}]}}")
    answers = [session.pre("t1", cmd="git push").verdict, session.pre("t2", command="ls").verdict]
    (found,) = await session.events("policy_violation")
    denied = await session.events("tool_call_denied")

    assert answers == ["deny", "allow"]
    assert (found.rule, found.tool_call_id) == ("deny-1", "t1")
    assert [event.tool_call_id for event in denied] == ["t1"]


async def test_an_approved_call_with_a_secret_runs(session: Any) -> None:
    """Even if the daemon restarted meanwhile, and the log has a placeholder for the secret."""
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


@pytest.mark.parametrize(("action", "answer"), [("deny", "deny"), ("request_approval", "ask")])
def test_two_pending_questions_cannot_spend_the_same_budget(session: Any, action: str, answer: str) -> None:
    """While the user is asked about one call, another is evaluated as if the first were approved."""
    session.policy.write_text(
        f"{{name: p, limits: {{max_tool_calls: {{max: 1, action: {action}}}}},"
        " tool_rules: [{deny: [Write], action: request_approval}]}"
    )
    first = session.pre("t1", "Write")
    second = session.pre("t2")
    session.batch("t1")
    third = session.pre("t3", "Write")

    assert [first.verdict, second.verdict, third.verdict] == ["ask", answer, "ask"]


def test_a_call_beside_a_pending_one_is_denied_if_only_that_would_allow_it(session: Any) -> None:
    """The pending call may never run."""
    session.policy.write_text(
        "{name: p, on_violation: deny, rules: [{type: before, first: Write, then: Bash, first_must: started}],"
        " tool_rules: [{deny: [Write, Bash], action: request_approval}]}"
    )

    assert [session.pre("t1", "Write").verdict, session.pre("t2").verdict] == ["ask", "deny"]


async def test_a_duplicate_outcome_is_recorded_once(session: Any) -> None:
    """Of any kind, even after the response: an unanswered hook is sent again."""
    session.policy.write_text("{name: p}")
    session.pre("t1", command="ls")
    for _ in range(2):
        session.post("t1", command="ls")
        session.hook(
            "PostToolUseFailure", tool_use_id="t1", tool_name="Bash", tool_input={"command": "ls"}, error="x"
        )
        session.batch("t1")
    found = await session.events("tool_call_started", "tool_call_completed", "tool_call_failed")

    assert [event.type for event in found] == ["tool_call_started", "tool_call_completed"]


@pytest.mark.parametrize("broken", ["store", "policy"])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("session", [False], ids=["kept"], indirect=True)
def test_an_unrecorded_outcome_is_recorded_before_the_next_decision(
    session: Any, ends: bool, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ran while the store was locked, or a policy invalid. It is recorded once that is repaired, even if the
    daemon exits then.
    """
    monkeypatch.setattr(record, "BUSY_S", 0.01)
    policy = "{name: p, on_violation: deny, rules: [{type: before, first: Read, then: Bash}]}"
    session.prompt("p1", policy=policy)
    session.pre("t1", "Read")
    with closing(sqlite3.connect(session.store)) as other:
        other.execute("BEGIN IMMEDIATE") if broken == "store" else session.policy.write_text("{rules: 7}")
        for name in ("PostToolUse", "PostToolBatch", "PreToolUse"):
            read: dict[str, Any] = {"tool_use_id": "t1", "tool_name": "Read", "tool_calls": [{"tool_use_id": "t1"}]}
            with pytest.raises((PolicyError, StoreError)):
                session.hook(name, **read)
    session.policy.write_text(policy)
    if ends:
        session.end()

    assert session.pre("t3").verdict == "allow"


@pytest.mark.parametrize("session", [False], ids=["kept"], indirect=True)
def test_a_call_that_completes_after_it_was_assumed_not_to_run_is_evidence(session: Any) -> None:
    """Its hook was slow. The daemon knows that it only assumed this."""
    session.policy.write_text("{name: p, on_violation: deny, rules: [{type: before, first: Read, then: Bash}]}")
    session.pre("t1", "Read")
    session.batch("t1")
    session.post("t1", "Read")

    assert session.pre("t2").verdict == "allow"


def test_a_call_that_never_ran_is_no_evidence(session: Any) -> None:
    """It was allowed here and rejected by the user in the client, so it has failed."""
    session.policy.write_text("{name: p, on_violation: deny, rules: [{type: before, first: Read, then: Bash}]}")
    session.pre("t1", "Read")
    session.batch("t1")
    denied = session.pre("t2")
    session.pre("t3", "Read")
    session.post("t3", "Read")
    allowed = session.pre("t4")

    assert (denied.verdict, allowed.verdict) == ("deny", "allow")


def test_an_id_serves_no_other_call_while_its_own_runs_and_names_a_new_one_afterwards(session: Any) -> None:
    """No call runs unevaluated with an id that was allowed once. A new one is evaluated and counted like
    any other.
    """
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}")
    running = [session.pre("t1", command=command).verdict for command in ("a", "a", "b")]
    session.post("t1", command="a")
    after = []
    for _ in range(2):
        after.append(session.pre("t1", command="a").verdict)
        session.post("t1", command="a")

    assert running == ["allow", "deny", "deny"]
    assert after == ["allow", "deny"]


@pytest.mark.parametrize("command", ["a", "b"])
def test_a_pending_call_is_never_allowed_when_asked_about_again(session: Any, command: str) -> None:
    """With the same input or another, the hook answers only that it is pending."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    first = session.pre("t1", command="a").verdict
    again = session.pre("t1", command=command).verdict
    session.post("t1", command="a")

    assert (first, again) == ("ask", "deny")


async def test_two_hook_lines_on_one_store_each_evaluate_the_session(session: Any, tmp_path: Path) -> None:
    """A user's policy and a project's: neither uses the other's log."""
    session.policy.write_text("{name: lax}")
    strict = tmp_path / "strict.yaml"
    strict.write_text("{name: strict, limits: {max_tool_calls: {max: 1, action: deny}}}")
    other = HookDecider(session.line("two", strict))
    answers = []
    for id in ("t1", "t2"):
        call = {"session_id": "s", "hook_event_name": "PreToolUse", "prompt_id": "p1", "tool_use_id": id}
        data = json.dumps({**call, "tool_name": "Bash"}).encode()
        answers.append((session.pre(id).verdict, other.answer_hook(data)[0].verdict))
    other.close()

    assert answers == [("allow", "allow"), ("allow", "deny")]
    assert len(await session.events("tool_call_started")) == 2


RM = "{tool: Bash, where: [{path: $.command, regex: rm}]}"


@pytest.mark.parametrize(("policy", "verdict", "broken"), [
    ("{name: p}", "allow", {"input_changed"}),
    ("{name: p, on_violation: warn, rules: [{type: blocklist, tools: [Read]}]}", "allow", {"input_changed"}),
    (f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{RM}]}}]}}", "allow", {"input_changed", "deny-1"}),
    ("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}", "ask", {"input_changed", "deny-1"}),
])  # fmt: skip
async def test_an_input_that_another_hook_rewrote_ends_the_response(
    session: Any, policy: str, verdict: str, broken: set[str]
) -> None:
    """The call that ran is not the evaluated one. It is evaluated now, and the change itself is a violation. A rule
    that would have denied it is named, and the user's approval of the old input does not count.
    """
    session.policy.write_text(policy)
    before = session.pre("t1", command="ls")
    after = session.post("t1", command="rm x")
    sibling = session.pre("t2", command="ls")
    found = [event for event in await session.events("policy_violation") if event.tool_call_id == "t1"]
    started = await session.events("tool_call_started")

    assert before.verdict == verdict
    assert (after.stop, sibling.verdict) == (True, "deny")
    assert {event.rule for event in found} == broken
    assert [(event.policy, event.action) for event in found if event.rule == "input_changed"] == [
        ("supervision", "cancel")
    ]
    assert "interrupted" in {event.enforcement for event in found}
    assert started[-1].tool_input == {"command": "rm x"}
    assert await session.events("tool_approval_granted") == []


@pytest.mark.parametrize("named", [True, False])
async def test_after_a_cancel_nothing_of_that_prompt_runs(session: Any, named: bool) -> None:
    """Parallel calls and subagents of the ended response are denied, even while the next prompt, a new run, is
    active. A hook without a prompt id belongs to the latest.
    """
    session.policy.write_text("{name: p, tool_rules: [{deny: [Write]}]}")
    session.prompt("p1" if named else "")
    cancelled = session.pre("t1", "Write")
    sibling = session.pre("t2")
    question = session.hook("PermissionRequest", tool_name="Bash", tool_input={})
    session.hook("Stop")
    session.prompt("p2" if named else "")
    allowed = session.pre("t3")
    session.prompt_id = "p1" if named else ""
    late = session.pre("t4")
    below = session.hook("PreToolUse", tool_use_id="t5", tool_name="Bash", tool_input={}, agent_id="sub")

    assert (cancelled.verdict, cancelled.stop) == ("deny", True)
    assert (sibling.verdict, sibling.stop) == ("deny", True)
    assert question.verdict == "deny"
    assert (allowed.verdict, late.verdict) == ("allow", "deny" if named else "allow")
    assert below.verdict == late.verdict
    assert not late.stop
    assert len(await session.events("run_cancelled", "run_completed", "run_failed")) == 1


def test_a_hook_without_a_prompt_id_is_denied_after_a_cancel(session: Any) -> None:
    """Such as those of a Codex subagent that outlives its response."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Write]}]}")
    session.prompt_id = ""
    alone = session.pre("t1")
    session.prompt("p1")
    session.pre("t2", "Write")
    session.prompt_id = ""

    assert (alone.verdict, session.pre("t3").verdict) == ("allow", "deny")


async def test_the_end_of_a_session_ends_its_run_and_only_the_user_may_change_its_settings(session: Any) -> None:
    """A repository's settings could remove the hooks."""
    session.prompt("p1", policy="{name: p}")
    changed = [session.hook("ConfigChange", source=source) for source in ("policy_settings", "project_settings")]
    session.hook("SessionEnd", reason="clear")
    [end] = await session.events("run_cancelled", "run_completed")

    assert [answer.verdict for answer in changed] == ["allow", "deny"]
    assert end.reason == "the session ended: clear"


def test_an_unsatisfied_requirement_of_a_prompt_is_reported_to_the_user(session: Any) -> None:
    """When the response ends without the required call."""
    session.prompt("p1", policy="{name: p, on_violation: warn, rules: [{type: require, tool: Test}]}")
    ended = session.hook("Stop", last_assistant_message="done")

    assert len(ended.notes) == 1
    assert "`p`" in ended.notes[0]
    assert ended.verdict == "allow"


def test_the_workspace_is_the_folder_in_which_the_session_began(session: Any, tmp_path: Path) -> None:
    """The client's shell may have gone elsewhere since."""
    edits = "{tool: edit, where: [{path: $.path, within: kept}]}"
    session.policy.write_text(f"{{name: p, on_violation: deny, tool_rules: [{{allow: [{edits}]}}]}}")
    began, elsewhere = tmp_path / "began", tmp_path / "elsewhere"
    session.hook("UserPromptSubmit", prompt="go", cwd=str(began))
    answers = [
        session.hook(
            "PreToolUse",
            tool_use_id=folder.name,
            tool_name="Edit",
            tool_input={"file_path": str(folder / "kept" / "x"), "old_string": "a", "new_string": "b"},
            cwd=str(elsewhere),
        ).verdict
        for folder in (began, elsewhere)
    ]

    assert answers == ["allow", "deny"]


def test_a_limit_that_is_almost_reached_is_reported_to_the_user_once(session: Any) -> None:
    """`warn_at` shows with the call that passed it, and not again."""
    session.policy.write_text("{name: p, limits: {max_tool_calls: {max: 4, warn_at: 0.5}}}")
    notes = [session.pre(f"t{n}").notes for n in range(4)]

    assert [note for note in notes if note] == [("`max_tool_calls`: 2 of 4 used",)]


async def test_turns_are_counted_by_finished_responses(session: Any) -> None:
    """`max_parallel` counts within one response, which a subagent's response does not end."""
    session.policy.write_text("{name: p, on_violation: deny, rules: [{type: max_parallel, max: 2}]}")
    first = [session.pre(f"a{n}").verdict for n in range(3)]
    session.hook("PostToolBatch", tool_calls=[], agent_id="a")
    first.append(session.pre("a3").verdict)
    session.batch("a0", "a1", "a2", "a3")
    second = [session.pre(f"b{n}").verdict for n in range(4)]

    assert first == second == ["allow", "allow", "deny", "deny"]
    assert [event.tool_call_id for event in await session.events("tool_call_failed")] == ["a0", "a1"]


def test_a_hook_that_hangs_ends_before_the_clients_timeout() -> None:
    """After that, the client would let the call run. The hook's alarm is set before anything is read."""
    code = f"import sys; sys.path.insert(0, {str(DAEMON_CLIENT.parent)!r}); import daemon_client, signal;"
    code += "daemon_client.refuse = lambda *_: print(signal.alarm(0)); daemon_client.main([])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="")

    assert 0 < int(ended.stdout) < TIMEOUT_S


def test_the_user_is_told_of_an_input_that_ends_the_run(session: Any) -> None:
    """It is too large to record. No rule denied it, so none has a text."""
    session.policy.write_text("{name: p}")
    answer = session.pre("t1", "TodoWrite", todos=[[]] * 200_001)

    assert (answer.verdict, answer.stop) == ("deny", True)
    [note] = answer.notes
    assert note.startswith("the run failed: ")
    assert note.endswith("of more than 200,000 parts")


NINE_CALLS = "{name: p, limits: {max_tool_calls: 9}}"


@pytest.mark.parametrize("scope", [{"everything": True}, {"tenant": "acme"}, {"label": "team=x"}], ids=str)
async def test_nothing_starts_while_starts_are_frozen(session: Any, scope: dict[str, Any]) -> None:
    """The user gets the person, the time and the reason. A call of an unknown prompt ends its response, and the model
    does not learn why.
    """
    session.policy.write_text(NINE_CALLS)
    session.context = RunContext(tenant="acme", labels={"team": "x"})
    session.prompt("p1")
    await session.using(lambda store: KillSwitch(store).block_starts(by="ana", reason="an incident", **scope))
    blocked = session.prompt("p2")
    session.hook("Stop")
    unseen = session.pre("c1", command="ls")
    await session.using(lambda store: KillSwitch(store).lift(by="ana", **scope))

    assert blocked.verdict == "deny"
    assert " starts: `ana` froze them at" in blocked.reason
    assert "an incident" in blocked.reason
    assert (unseen.verdict, unseen.stop) == ("deny", True)
    assert "incident" not in unseen.reason
    assert session.prompt("p3").verdict == "allow"
    assert session.pre("c2", command="ls").verdict == "allow"


ASKS = "{name: p, approval: {%s}, tool_rules: [{deny: [Bash], action: request_approval}]}"


async def granted(session: Any, scope: Literal["once", "run", "session"]) -> None:
    """An earlier run of the session, under the same policy, with an approved call."""

    async def ana(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", scope=scope)

    agent = FakeAdapter([Ask(id="c1", name="Bash", input={"command": "make"})])
    policies = load_policies(session.policy)
    async with SQLiteStore(session.store) as store:
        await run_once(agent, "go", policies=policies, store=store, session_id="s", approver=ana)


@pytest.mark.parametrize(("scope", "verdict"), [("session", "allow"), ("run", "ask"), ("once", "ask")])
async def test_an_approval_for_the_session_covers_later_prompts(session: Any, scope: Any, verdict: str) -> None:
    """With any input, as it covers what the rule asks about and not one call."""
    session.policy.write_text(ASKS % "scope: session")
    await granted(session, scope)
    answers = []
    for n in (2, 3):
        session.prompt(f"p{n}")
        answers += [session.pre(f"c{n}{k}", command=f"make {k}").verdict for k in "ab"]
        session.hook("Stop")

    assert answers == [verdict] * 4


async def test_a_covered_call_names_its_approval_while_the_policy_accepts_it(session: Any) -> None:
    """Nobody is asked, and the log has the approval and its author. A stricter policy file counts from the next hook
    on, also in a folder of files.
    """
    session.policy.mkdir()
    (session.policy / "one.yaml").write_text(ASKS % "scope: session")
    await granted(session, "session")
    session.prompt("p2")
    allowed = session.pre("c2", command="make all").verdict
    first, covered = await session.events("tool_approval_granted")
    questions = [event.tool_call_id for event in await session.events("tool_approval_requested")]
    (session.policy / "one.yaml").write_text(ASKS % "scope: once, timeout_s: 60")
    session.prompt("p3")

    assert (covered.tool_call_id, covered.covered_by, covered.by) == ("c2", first.approval_id, "ana")
    assert questions == ["c1"]
    assert (allowed, session.pre("c3", command="x").verdict) == ("allow", "ask")


async def test_an_approval_covers_nothing_of_a_rule_that_was_edited_between_two_hooks(session: Any) -> None:
    """The rule has no id of its own, so another one stands in its place."""
    asks = "{tool: Bash, where: [{path: $.command, contains: %s}]}"
    policy = "{name: p, approval: {scope: session}, tool_rules: [{deny: [%s], action: request_approval}]}"
    session.policy.write_text(policy % asks % "make")
    await granted(session, "session")
    session.prompt("p2")
    covered = session.pre("c2", command="make; deploy").verdict
    session.policy.write_text(policy % asks % "deploy")

    assert (covered, session.pre("c3", command="make; deploy").verdict) == ("allow", "ask")


@pytest.mark.parametrize(
    "rule", ["approvers: [ana]", "approvers: [ana], on_timeout: cancel", "approvers: ['@sre']", "four_eyes: true"]
)
async def test_a_policy_with_named_approvers_does_not_ask_the_user_at_the_client(session: Any, rule: str) -> None:
    """The client does not say who answers. The call is denied, and the log says that nobody could be asked."""
    session.prompt("p1", policy=ASKS % rule)
    denied = session.pre("c1", command="x")
    session.post("c1", command="x")

    assert denied == HookAnswer(verdict="deny", reason="Tool 'Bash' is not available in this context.")
    assert [event.decision for event in await session.events("tool_call_denied")][:1] == ["approval_unanswerable"]
    assert await session.events("tool_approval_granted") == []


POLICY = """
name: mine
on_violation: deny
limits: {max_tool_calls: {max: 2, scope: session}}
tool_rules: [{deny: [WebFetch], tell_model: Use the files.}]
"""


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The output of a command, which must succeed."""
    answer = called(capsys, *arguments)
    assert answer.code == 0, answer.err
    return str(answer.out)


def test_each_prompt_is_a_run_whose_decisions_are_explained(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """By the rule that denied, in the state after the earlier prompts. Evaluated again from the log, each call has
    the decision that the client got.
    """
    session.policy.write_text(POLICY)
    session.prompt("p1", "tidy up")
    answers = {"c1": session.pre("c1", "WebFetch", url="https://x").verdict}
    for id, prompt in (("c2", ""), ("c3", "p2"), ("c4", "")):
        if prompt:
            session.hook("Stop", last_assistant_message="done")
            session.prompt(prompt, "and now")
        answers[id] = session.pre(id, command="ls").verdict
        if answers[id] == "allow":
            session.post(id, command="ls")
    session.hook("Stop", last_assistant_message="done")
    store = ("--store", session.store)
    runs = [json.loads(line) for line in output_of(capsys, "runs", "--json", *store).splitlines()]
    explained = [output_of(capsys, "explain", run, "--refused", *store) for run in ("s-1", "s-2")]
    lines = [
        line for run in ("s-1", "s-2") for line in output_of(capsys, "explain", run, "--json", *store).splitlines()
    ]
    decisions = [decision for line in lines if (decision := json.loads(line).get("decision"))]

    assert [(run["run_id"], run["status"]) for run in runs] == [("s-2", "completed"), ("s-1", "completed")]
    assert ("WebFetch" in explained[0], "max_tool_calls" in explained[0]) == (True, False)
    assert ("WebFetch" in explained[1], "max_tool_calls" in explained[1]) == (False, True)
    assert answers == {"c1": "deny", "c2": "allow", "c3": "allow", "c4": "deny"}
    assert {decision["tool_call_id"]: decision["action"] for decision in decisions} == answers


def test_a_store_put_in_the_place_of_the_open_one_is_not_believed(tmp_path: Path) -> None:
    """It is another, although it has the name."""
    deciding = decider_for(tmp_path, "{name: p}")
    deciding.answer_hook(json.dumps(call_of("claude", "c1")).encode())
    record.store_id(tmp_path / "other.db")
    (tmp_path / "other.db").replace(tmp_path / "store.db")
    for beside in tmp_path.glob("store.db-*"):  # SQLite would make the other of them what the first was
        beside.unlink()
    with pytest.raises(StoreError, match="is not the store the hooks were installed with"):
        deciding.answer_hook(json.dumps(call_of("claude", "c2")).encode())
    deciding.close()


class RefusedMeanwhile(Future[Any]):
    """A reply that is cancelled while the hook is decided."""

    def cancelled(self) -> bool:
        return False


@pytest.mark.parametrize("reply", [Future, RefusedMeanwhile])
def test_a_call_whose_client_was_refused_before_is_not_recorded(reply: type[Future[Any]], tmp_path: Path) -> None:
    """The hook took too long: what it would have decided spends nothing."""
    deciding = decider_for(tmp_path, "{name: p, limits: {max_tool_calls: {max: 1, action: deny}}}")
    refused = reply()
    refused.cancel()
    with pytest.raises(EventError, match="denied before"):
        deciding.answer_hook(json.dumps(call_of("claude", "c1")).encode(), reply=refused)
    answer, _ = deciding.answer_hook(json.dumps(call_of("claude", "c2")).encode(), reply=Future())
    deciding.close()

    assert answer.verdict == "allow"


def test_an_older_copy_of_the_store_is_not_believed(tmp_path: Path) -> None:
    """It does not have what the session has used since."""
    deciding = decider_for(tmp_path, "{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}")
    store = tmp_path / "store.db"
    for id in ("c1", "c2"):
        deciding.answer_hook(json.dumps(call_of("claude", id)).encode())
        deciding.close()
        if id == "c1":
            shutil.copy(store, tmp_path / "older.db")
    shutil.copy(tmp_path / "older.db", store)
    with pytest.raises(StoreError, match="has lost events of this session"):
        deciding.answer_hook(json.dumps(call_of("claude", "c3")).encode())
    deciding.close()


def test_a_clock_that_jumps_returns_no_call(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days back and forth: the session's usage stays, and each hook is answered."""
    session.prompt("p1", policy="{name: p, limits: {max_tool_calls: {max: 4, scope: session, action: deny}}}")
    answers = []
    for number, days in enumerate((0, -10, 10, -3000, 30, 0)):

        class Clock(datetime):
            """This many days from now."""

            @classmethod
            def now(cls, tz: Any = None, days: int = days) -> Any:
                return datetime.now(tz) + timedelta(days)

        monkeypatch.setattr(decider, "datetime", Clock)
        answers.append(session.pre(f"c{number}", command="ls").verdict)
        session.post(f"c{number}", command="ls")

    assert answers == ["allow"] * 4 + ["deny"] * 2
