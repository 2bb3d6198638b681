"""The real client, its supervisor killed with SIGKILL while a call waits, and two supervisors on one store."""

from __future__ import annotations

import anyio
import pytest
from claude_processes import ClaudeProcesses
from stopping import stop_between_writes

from proctor.policies.events import ErrorOccurred, RunFailed

pytestmark = pytest.mark.claude


@pytest.mark.parametrize(
    ("ended_by", "answered", "goes_on"),
    [("reap", "after", "resumed"), ("the next run", "before", "told")],
)
def test_a_question_of_a_killed_supervisor_is_asked_again_elsewhere(
    processes: ClaudeProcesses, ended_by: str, answered: str, goes_on: str
) -> None:
    """The run is lost and its client's processes are gone. A yes after that is refused; one just before it, which the
    supervisor never read, permits nothing. Whoever goes on with the session asks anew, and that yes counts once,
    whether or not the client had written its conversation when it was killed.
    """
    api = processes.bench.api
    api.say(api.reply(api.bash("echo ran >> effect.txt")))
    run, person = processes.supervisor(), processes.orchestrator()
    first = person.next_line()
    if goes_on == "resumed":
        anyio.run(processes.until_written, "echo ran")
    if answered == "before":
        stop_between_writes(run.process, processes.path)
        person.tell(True, input_digest=first["digest"])
        processes.until(first["id"], lambda approval: approval.answer is not None)
    run.kill_before_its_clients()
    if answered == "after":
        person.tell(True, input_digest=first["digest"])
    outcome = person.next_line()

    assert outcome.get("refused") == "owner_gone" or (answered == "before" and not outcome["recorded"])
    assert processes.bench.marked("r1") == []
    if goes_on == "told":
        processes.forget()
    if ended_by == "reap":
        assert processes.reaped() == ["r1"]

    api.say(api.reply(api.bash("echo ran >> effect.txt")), api.reply(api.text("done")))
    elsewhere = processes.supervisor(run="r2")
    second = person.next_line()

    assert not processes.exists("effect.txt")
    assert (second["input"], second["digest"]) == (first["input"], first["digest"])
    assert second["id"] != first["id"]
    assert processes.until(first["id"], lambda approval: approval.recorded).state == "withdrawn"
    assert person.answered(True, input_digest=second["digest"])["state"] == "granted"
    assert elsewhere.next_line() == {"status": "completed", "output": "done"}
    assert (processes.bench.cwd / "effect.txt").read_text() == "ran\n"
    ends = [
        (event.run_id, (event.error or {})["code"]) for event in processes.events() if isinstance(event, RunFailed)
    ]
    assert ends == [("r1", "owner_lost")]
    with_transcript = [event.code for event in processes.events() if isinstance(event, ErrorOccurred)]
    assert with_transcript == (["unknown_session"] if goes_on == "told" else [])


def test_two_supervisors_on_one_store_each_act_on_their_own_questions(processes: ClaudeProcesses) -> None:
    """An answer moves the run it is for, and a session that one of them has is not the other's as well."""
    api = processes.bench.api
    api.say(api.reply(api.bash("touch one.txt")))
    one, person = processes.supervisor("s1", "r1"), processes.orchestrator()
    first = person.next_line()
    refused = processes.supervisor("s1", "r1b").next_line()
    api.say(api.reply(api.bash("touch two.txt")))
    two, other = processes.supervisor("s2", "r2"), processes.orchestrator("other")

    assert "already has a run that is not over" in refused["refused"]
    assert other.next_line() == first
    assert processes.approval_request("s2").approval_id != first["id"]

    api.say(api.reply(api.text("one is done")))
    assert person.answered(True, input_digest=first["digest"])["recorded"]
    assert one.next_line()["output"] == "one is done"
    assert (processes.exists("one.txt"), processes.exists("two.txt")) == (True, False)

    second = person.next_line()
    api.say(api.reply(api.text("two is done")))
    assert other.answered(True)["refused"] == "answered"
    assert other.next_line() == second
    assert other.answered(True, input_digest=second["digest"])["recorded"]
    assert two.next_line()["output"] == "two is done"
    assert processes.ran("s1") == [first["input"]]
    assert processes.ran("s2") == [second["input"]]


def test_a_supervisor_beside_a_killed_one_ends_its_run_and_continues_with_its_own(processes: ClaudeProcesses) -> None:
    """Nobody has to ask for it; the question of the one that lives is answered as if nothing had happened."""
    api = processes.bench.api
    api.say(api.reply(api.bash("touch one.txt")))
    one, person = processes.supervisor("s1", "r1"), processes.orchestrator()
    lost = person.next_line()
    api.say(api.reply(api.bash("touch two.txt")))
    two = processes.supervisor("s2", "r2")
    request = processes.approval_request("s2")
    one.kill_before_its_clients()
    withdrawn = processes.until(lost["id"], lambda approval: approval.state == "withdrawn")
    api.say(api.reply(api.text("two is done")))

    assert person.answered(True)["refused"] in ("owner_gone", "withdrawn")
    assert person.next_line()["id"] == request.approval_id
    assert person.answered(True, input_digest=request.input_digest)["recorded"]
    assert two.next_line() == {"status": "completed", "output": "two is done"}
    assert withdrawn.answer is None
    assert (processes.exists("one.txt"), processes.exists("two.txt")) == (False, True)
    assert [type(event) for event in processes.events("s1")][-1] is RunFailed
