"""A hook that is held until somebody answers, as the process that judges sees it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import anyio
import pytest

from proctor.adapters.hooks.hook_judge import HookJudge
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.errors import ApprovalError
from proctor.supervisor.ports.processes import as_owner
from proctor.supervisor.ports.stored_types import CLIENT, ApprovalAnswer

ASK = "{name: p, tool_rules: [{action: request_approval, deny: [Bash]}]}"


class Asking:
    """A session whose client asks about a call."""

    def __init__(self, session: Any) -> None:
        self.session = session
        session.client = as_owner(os.getpid(), CLIENT)
        session.policy.write_text(ASK)
        session.prompt("p1")

    @property
    def judge(self) -> HookJudge:
        """What judges now."""
        judge: HookJudge = self.session._judge
        return judge

    def question(self, command: str = "deploy") -> tuple[str, Any]:
        """The client's question about a call: the approval that its hook is held for, and the hook."""
        given = {"session_id": "s", "hook_event_name": "PermissionRequest", "prompt_id": "p1", "tool_name": "Bash"}
        data = {**given, "tool_input": {"command": command}, "transcript_path": str(self.session.log)}
        answer, hook = self.judge.answered(json.dumps(data).encode(), self.session.client)
        return answer.held, hook

    def answers(self, approval_id: str, *, granted: bool) -> None:
        """Somebody answers on the page."""

        async def take() -> None:
            async with SQLiteStore(self.session.store) as store:
                given = ApprovalAnswer(granted=granted, by="ana", tell_model=None if granted else "not today")
                await approval_inbox.record_answer(store, approval_id, given)

        anyio.run(take)

    def types(self) -> list[str]:
        """The stored events about the call."""
        return [e.type for e in anyio.run(self.session.events) if e.type.startswith(("tool_", "policy_"))]


@pytest.fixture
def asking(session: Any) -> Asking:
    """A session whose client asks."""
    return Asking(session)


@pytest.mark.parametrize("granted", [True, False])
def test_an_answer_of_the_page_is_the_hooks(asking: Asking, granted: bool) -> None:
    """Until then there is none."""
    assert asking.session.pre("c1", command="deploy").verdict == "ask"
    held, hook = asking.question()
    early = asking.judge.heard(hook, held)
    asking.answers(held, granted=granted)
    answer = asking.judge.heard(hook, held)

    assert early is None
    assert answer is not None
    assert (answer.verdict, answer.reason) == (
        ("allow", "proctor: approved by ana") if granted else ("deny", "not today")
    )


def test_two_questions_alike_have_an_answer_each(asking: Asking) -> None:
    """A yes to the one is none to the other, and a question that the policy does not ask is left to the client."""
    asking.session.pre("c1", command="deploy")
    asking.session.pre("c2", command="deploy")
    if asking.session._forgetful:
        pytest.skip("who is kept waiting is known to the process that keeps them")
    first, hook = asking.question()
    second, _ = asking.question()
    asking.answers(first, granted=True)
    answer = asking.judge.heard(hook, first)

    assert first != second
    assert answer is not None
    assert answer.verdict == "allow"
    assert asking.judge.heard(hook, second) is None
    assert asking.question()[0] == asking.question("other")[0] == ""


def test_a_no_that_comes_after_the_persons_yes_is_on_record_as_what_ran(asking: Asking) -> None:
    """The client goes by its person; the call that ran in spite of a no is a violation."""
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    asking.answers(held, granted=False)
    asking.judge.heard(hook, held)
    asking.session.post("c1", command="deploy")

    assert asking.types()[-5:-2] == ["tool_call_denied", "tool_call_started", "policy_violation"]


def test_a_person_who_answers_there_is_first(asking: Asking) -> None:
    """What the log shows of a refusal is a no; a call that the log has no result of has begun."""
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    undecided = asking.judge.heard(hook, held, gone_s=0.1)
    asking.session.log.parent.mkdir(exist_ok=True)
    asking.session.log.write_text('{"tool_use_id":"c1","type":"tool_result"}')
    answer = asking.judge.heard(hook, held, gone_s=0.2)

    assert undecided is None
    assert answer is not None
    assert "tool_approval_denied" in asking.types()
    assert asking.types()[-1] == "tool_call_denied"


def test_a_yes_of_the_page_with_a_no_at_the_terminal_runs_nothing(asking: Asking) -> None:
    """Both at once: the page's is the recorded answer, and the call is over without having run."""
    asking.session.pre("c1", command="deploy")
    held, hook = asking.question()
    asking.answers(held, granted=True)
    answer = asking.judge.heard(hook, held, gone_s=0.1)
    asking.session.batch("c1")

    assert answer is not None
    assert [type for type in asking.types() if type.startswith("tool_approval")][-1] == "tool_approval_granted"
    assert asking.types()[-1] == "tool_call_failed"
    assert "policy_violation" not in asking.types()[-2:]


def test_of_two_answers_at_once_one_counts(asking: Asking) -> None:
    """The other is told that somebody was first."""
    asking.session.pre("c1", command="deploy")
    held, _ = asking.question()
    errors: list[ApprovalError] = []

    async def both() -> None:
        async def one(store: SQLiteStore, by: str, *, granted: bool) -> None:
            try:
                await approval_inbox.record_answer(store, held, ApprovalAnswer(granted=granted, by=by))
            except ApprovalError as error:
                errors.append(error)

        async with SQLiteStore(asking.session.store) as store, anyio.create_task_group() as group:
            group.start_soon(lambda: one(store, "ana", granted=True))
            group.start_soon(lambda: one(store, "ben", granted=False))

    anyio.run(both)

    assert [error.kind for error in errors] == ["answered"]


def test_an_answer_after_the_client_was_killed_counts_for_nothing(asking: Asking) -> None:
    """Whether the process that judges has seen it or not."""
    with subprocess.Popen(["sleep", "600"]) as client:
        asking.session.client = as_owner(client.pid, CLIENT)
        asking.session.hook("SessionEnd")
        asking.session.prompt("p2")
        asking.session.pre("c1", command="deploy")
        held, _ = asking.question()
        client.kill()
    with pytest.raises(ApprovalError) as unseen:
        asking.answers(held, granted=True)
    asking.session.raw(b'{"session_id": "s", "hook_event_name": "Notification"}')
    with pytest.raises(ApprovalError) as seen:
        asking.answers(held, granted=True)

    assert unseen.value.kind == "owner_gone"
    assert seen.value.kind == "withdrawn"
    assert "tool_call_started" not in asking.types()
