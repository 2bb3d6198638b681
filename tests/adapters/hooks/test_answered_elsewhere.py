"""A pending call without a real client: answered on the dashboard, by the user as the log shows it, or by nobody."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from stored_rows import in_store

from proctor.adapters.hooks import daemon
from proctor.adapters.hooks.clients import claude
from proctor.adapters.hooks.decider import HookDecider
from proctor.adapters.hooks.messages import HookAnswer
from proctor.adapters.hooks.origin import Origin
from proctor.policies.events import ToolApprovalDenied, ToolApprovalGranted
from proctor.supervisor import ApprovalError, KillSwitch
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.ports.processes import as_owner
from proctor.supervisor.ports.stored_types import CLIENT, ApprovalAnswer

ASK = "{name: p, tool_rules: [{action: request_approval, deny: [Bash]}]}"

INTERRUPTED = {
    "message": {"content": [{"tool_use_id": "c1", "type": "tool_result"}]},
    "toolUseResult": "User rejected tool use",
    "toolDenialKind": "user-rejected",
}
REFUSED = {**INTERRUPTED, "toolDenialBeforeRun": True}
REFUSED_BELOW = {**INTERRUPTED, "toolUseResult": "Error: no", "permissionDecision": {"decision": "reject"}}


class Asking:
    """A session whose client asks about a call."""

    def __init__(self, session: Any) -> None:
        self.session = session
        session.client = as_owner(os.getpid(), CLIENT)
        session.prompt("p1", policy=ASK)

    @property
    def decider(self) -> HookDecider:
        """The current decider."""
        decider: HookDecider = self.session._decider
        return decider

    def question(self, command: str = "deploy") -> tuple[str, Any]:
        """The client's question about a call: the approval that its hook waits for, and the hook."""
        given = {"session_id": "s", "hook_event_name": "PermissionRequest", "prompt_id": "p1", "tool_name": "Bash"}
        data = {**given, "tool_input": {"command": command}, "transcript_path": str(self.session.log)}
        answer, hook = self.decider.answer_hook(json.dumps(data).encode(), self.session.client)
        return answer.held, hook

    def answers(self, approval_id: str, *, granted: bool) -> None:
        given = ApprovalAnswer(granted=granted, by="ana", tell_model=None if granted else "not today")
        in_store(self.session.store, lambda store: approval_inbox.record_answer(store, approval_id, given))

    def logs(self, *rows: dict[str, Any], name: str = "s.jsonl") -> None:
        """The client writes these into its log, or into one of a subagent."""
        path = self.session.log.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode("latin-1"))

    def types(self) -> list[str]:
        """The stored events of the call."""
        return [e.type for e in anyio.run(self.session.events) if e.type.startswith(("tool_", "policy_"))]


@pytest.fixture
def asking(session: Any) -> Asking:
    """A session whose client asks."""
    return Asking(session)


@pytest.mark.parametrize("granted", [True, False])
def test_an_answer_on_the_dashboard_is_the_hooks(asking: Asking, granted: bool) -> None:
    """Until then there is none. The client obeys its user: a call that ran despite a denial is a violation."""
    assert asking.session.pre("c1", command="deploy").verdict == "ask"
    held, hook = asking.question()
    early = asking.decider.resolve_held(hook, held)
    asking.answers(held, granted=granted)
    answer = asking.decider.resolve_held(hook, held)
    asking.session.post("c1", command="deploy")

    assert early is None
    assert answer is not None
    assert (answer.verdict, answer.reason) == (
        ("allow", "proctor: approved by ana") if granted else ("deny", "not today")
    )
    if not granted:
        assert asking.types()[-5:-2] == ["tool_call_denied", "tool_call_started", "policy_violation"]


def test_a_question_is_about_its_call_also_once_the_users_aliases_are_known(asking: Asking, tmp_path: Path) -> None:
    """The client writes them down for the first command of a session, which may be after its hook."""
    asking.session.log = tmp_path / "home" / "projects" / "p" / "s.jsonl"
    asking.session.pre("c1", command="deploy")
    snapshot = tmp_path / "home" / "shell-snapshots" / "snapshot-bash-1.sh"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_text("alias -- deploy='make all'\n")
    held, hook = asking.question()
    asking.answers(held, granted=True)
    answer = asking.decider.resolve_held(hook, held)

    assert "aliased" in hook.tool_input
    assert answer is not None
    assert answer.verdict == "allow"


def test_a_subagents_question_goes_to_its_client_if_nobody_answers_elsewhere(
    asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a background call, a client waits for the hook before it asks."""
    monkeypatch.setattr(daemon, "_BELOW_S", -1.0)
    monkeypatch.chdir(tmp_path)
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    mine, its = socket.socketpair()
    with daemon._listening() as listener, mine, its:
        process = daemon._Daemon(listener, asking.decider)
        given = msgspec.structs.replace(hook, agent_id="a")
        answer = process._wait_for_approval(given, held, Origin(client=asking.session.client), mine)

    assert answer == HookAnswer()
    assert asking.types()[-1] == "tool_approval_requested"


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize("how", ["ran", "over", "gone"])
def test_a_stored_answer_counts_even_if_the_clients_own_is_seen_first(
    asking: Asking, granted: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted, so no other answer replaces it, whether the call runs, has ended, or lost its hook."""
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    decider = asking.decider
    if how == "gone":  # the answer arrives after the check of the approval
        before = decider._store.approval(held)
        monkeypatch.setattr(decider._store, "approval", lambda id: before)
    asking.answers(held, granted=granted)
    if how == "ran":
        asking.session.post("c1", command="deploy")
    elif how == "over":
        asking.session.batch("c1")
    else:
        asking.logs(REFUSED)
        decider.resolve_held(hook, held, gone=True)
    [answer] = [
        e for e in anyio.run(asking.session.events) if isinstance(e, ToolApprovalGranted | ToolApprovalDenied)
    ]

    assert (answer.by, isinstance(answer, ToolApprovalGranted)) == ("ana", granted)
    if how == "ran" and not granted:
        assert asking.types()[-5:-2] == ["tool_call_denied", "tool_call_started", "policy_violation"]


@pytest.mark.parametrize("session", [False], ids=["kept"], indirect=True)
def test_two_equal_questions_have_an_answer_each(asking: Asking) -> None:
    """Approving one does not approve the other. A question that the policy does not ask is left to the client. The
    waiting process knows which is which.
    """
    asking.session.pre("c1", command="deploy")
    asking.session.pre("c2", command="deploy")
    other = asking.question("other")[0]
    first, hook = asking.question()
    second, _ = asking.question()
    asking.answers(first, granted=True)
    answer = asking.decider.resolve_held(hook, first)

    assert first != second
    assert answer is not None
    assert answer.verdict == "allow"
    assert asking.decider.resolve_held(hook, second) is None
    assert other == asking.question()[0] == ""


@pytest.mark.parametrize("log", ["s.jsonl", "s/subagents/agent-a.jsonl"])
@pytest.mark.parametrize(
    ("row", "end"), [(REFUSED, "denied"), (REFUSED_BELOW, "denied"), (INTERRUPTED, "failed"), (None, "failed")]
)
def test_the_users_answer_in_the_client_is_read_from_its_log(
    asking: Asking, row: dict[str, Any] | None, end: str, log: str
) -> None:
    """A logged rejection is a denial; an interruption is an approval before it. Only the client's own line counts,
    not a model's text. A hook's exit says nothing: with an approval on the dashboard, that is recorded, and an ended
    call has not run.
    """
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    result, text = {"message": REFUSED["message"]}, {"message": {"content": [{"input": REFUSED}]}}
    asking.logs(result, text, {**REFUSED, "message": {}}, {**REFUSED, "toolDenialAfterRun": True})
    assert asking.decider.resolve_held(hook, held, gone=True) is None
    if row is not None:
        asking.logs({"half a": "line"}, {**REFUSED, "toolUseResult": "no text: ÿ"}, row, name=log)
    else:
        asking.answers(held, granted=True)
    answer = asking.decider.resolve_held(hook, held, gone=True)
    asking.session.check_clients()
    asking.session.batch("c1")

    assert answer is not None
    ends = [type for type in asking.types() if type.startswith("tool_approval")]
    assert ends[-1] == f"tool_approval_{'denied' if end == 'denied' else 'granted'}"
    assert asking.types()[-1] == f"tool_call_{end}"
    assert asking.types().count("policy_violation") == (end == "denied")


@pytest.mark.parametrize("next", ["s", "other"])
@pytest.mark.parametrize(("row", "answer"), [(REFUSED, "denied"), (INTERRUPTED, "granted")])
def test_the_users_answer_while_no_daemon_runs_is_read_by_the_next(
    asking: Asking, row: dict[str, Any], answer: str, next: str
) -> None:
    """With the session's next prompt, or with any hook."""
    asking.session.pre("c1", command="deploy")
    asking.logs(row)
    asking.session.end()
    asking.session.hook("UserPromptSubmit", session_id=next, prompt="go on")
    asking.session.check_clients()

    assert [type for type in asking.types() if type.startswith("tool_approval")][1:] == [f"tool_approval_{answer}"]


@pytest.mark.parametrize("answers", [False, True])
def test_a_question_of_a_cancelled_run_is_denied(asking: Asking, answers: bool) -> None:
    """The user is not asked, whether the client asks before or after the cancel."""
    asking.session.pre("c1", command="deploy")
    asking.session.pre("c2", command="undo")
    held, hook = asking.question()
    if answers:
        asking.answers(held, granted=True)
    in_store(asking.session.store, lambda store: KillSwitch(store).kill(by="ana", everything=True))
    waiting = asking.decider.resolve_held(hook, held)
    given = {"session_id": "s", "hook_event_name": "PermissionRequest", "prompt_id": "p1", "tool_name": "Bash"}
    later, question = asking.decider.answer_hook(json.dumps({**given, "tool_input": {"command": "undo"}}).encode())

    assert waiting is not None
    for answer in (waiting, later):
        assert (answer.verdict, bool(answer.reason), answer.held) == ("deny", True, "")
    assert claude.output(later, question)["hookSpecificOutput"]["decision"]["behavior"] == "deny"


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("next", ["Stop", "UserPromptSubmit"])
def test_a_question_of_an_ended_run_is_denied(asking: Asking, next: str, answered: bool) -> None:
    """A subagent asks while the user prompts. The log has the call as denied, or as one that never ran, so it does
    not run.
    """
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    if answered:
        asking.answers(held, granted=True)
        asking.session.hook("PostToolBatch", tool_calls=[{"tool_use_id": "c1", "tool_name": "Bash"}])
    asking.session.hook(next, prompt="go on", prompt_id="p2" if next == "UserPromptSubmit" else "p1")
    answer = asking.decider.resolve_held(hook, held)

    assert answer is not None
    assert answer.verdict == "deny"


def test_an_answer_after_the_client_was_killed_has_no_effect(asking: Asking) -> None:
    """Whether or not the daemon has noticed."""
    with subprocess.Popen(["sleep", "600"]) as client:
        asking.session.client = as_owner(client.pid, CLIENT)
        asking.session.hook("SessionEnd")
        asking.session.prompt("p2")
        asking.session.pre("c1", command="deploy")
        held, _ = asking.question()
        client.kill()
    with pytest.raises(ApprovalError) as raised:
        asking.answers(held, granted=True)
    asking.session.raw(b'{"session_id": "s", "hook_event_name": "Notification"}')
    with pytest.raises(ApprovalError) as seen:
        asking.answers(held, granted=True)

    assert raised.value.kind == "owner_gone"
    assert seen.value.kind == "withdrawn"
    assert "tool_call_started" not in asking.types()
