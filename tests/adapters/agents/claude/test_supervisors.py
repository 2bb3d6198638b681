"""The real client, its supervisors and approving processes, each in its own process and killed at some point."""

import os
import signal
from typing import Any

import anyio
import psutil
import pytest
from claude_processes import ClaudeProcesses
from cluster_processes import ASKING, waiting_approval, working
from stopping import stop_between_writes

from proctor.adapters.fleet import Fleet, RunSpec
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, ErrorOccurred, Event, RunFailed, RunStarted, ToolCallStarted
from proctor.policies.events.calls import input_digest
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.claude
CHANGES = {"tool": "bash", "where": [{"path": "$.command", "runs": ["echo"]}]}

ODD = "first\n\tsecond \\n 'quoted' \u202egnirts\u202c é \U0001f600 $(touch no.txt) \x1b[2J"
"""A text that looks different from what it is if it is printed unescaped."""


def test_a_call_approved_by_another_process_runs_with_exactly_the_input_it_showed(processes: ClaudeProcesses) -> None:
    """A denial reaches the model with the approver's reason, and an approval of another input does not count."""
    api, shown = processes.bench.api, []
    target = processes.bench.cwd / "written.txt"
    api.say(
        api.reply(api.tool("Write", file_path=str(target), content=ODD)),
        api.reply(api.bash("touch denied.txt")),
        api.reply(api.bash("touch asked.txt")),
        api.reply(api.text("done")),
    )
    run, person = processes.supervisor(), processes.orchestrator()

    shown.append(person.next_line())
    assert not target.exists()
    assert person.answered(True, input_digest=shown[0]["digest"]) == {"state": "granted", "recorded": True}

    declined = person.next_line()
    assert person.answered(False, tell_model="use the other folder")["state"] == "denied"

    changed = {**person.next_line()["input"], "command": "touch changed.txt"}
    assert person.answered(True, input_digest=input_digest(changed))["refused"] == "other_input"
    shown.append(person.next_line())
    assert not processes.exists("asked.txt")
    assert person.answered(True, input_digest=shown[1]["digest"])["state"] == "granted"

    assert run.next_line() == {"status": "completed", "output": "done"}
    assert target.read_bytes() == shown[0]["input"]["content"].encode() == ODD.encode()
    assert processes.ran() == [each["input"] for each in shown]
    assert all(each["digest"] == input_digest(each["input"]) for each in shown)
    assert declined["input"]["command"] == "touch denied.txt"
    assert "use the other folder" in str(api.requests[2]["messages"][-1]["content"])
    assert sorted(path.name for path in processes.bench.cwd.iterdir()) == ["asked.txt", "written.txt"]


def test_a_killed_approving_process_loses_no_request_and_no_answer(processes: ClaudeProcesses) -> None:
    """Killed before its answer, the next process is asked. Killed after it, the answer counts once."""
    api = processes.bench.api
    api.say(api.reply(api.bash("echo ran >> effect.txt")), api.reply(api.text("done")))
    run, orchestrator = processes.supervisor(), processes.orchestrator()
    shown = orchestrator.next_line()
    orchestrator.kill()

    answering = processes.orchestrator()
    assert answering.next_line() == shown
    stop_between_writes(run.process, processes.path)
    answering.send(True, input_digest=shown["digest"])
    processes.until(shown["id"], lambda approval: approval.answer is not None)
    answering.kill()
    run.process.send_signal(signal.SIGCONT)

    again = processes.orchestrator()
    assert run.next_line() == {"status": "completed", "output": "done"}
    assert again.next_line() == shown
    late = again.answered(False, by="bob")
    assert late["refused"] == "answered"
    assert "ana" in late["why"]
    assert (processes.bench.cwd / "effect.txt").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("ended_by", "answered", "goes_on"), [("reap", "after", "resumed"), ("the next run", "before", "told")]
)
def test_a_request_of_a_killed_supervisor_is_made_again(
    processes: ClaudeProcesses, ended_by: str, answered: str, goes_on: str
) -> None:
    """The run is lost and its client's processes are gone. A later approval is rejected, and one just before that was
    never read allows nothing. The next run of the session requests approval again, and that approval counts once,
    whether or not the client had saved its conversation.
    """
    api = processes.bench.api
    api.say(api.reply(api.bash("echo ran >> effect.txt")))
    run, person = processes.supervisor(), processes.orchestrator()
    first = person.next_line()
    if goes_on == "resumed":
        anyio.run(processes.until_written, "echo ran")
    if answered == "before":
        stop_between_writes(run.process, processes.path)
        person.send(True, input_digest=first["digest"])
        processes.until(first["id"], lambda approval: approval.answer is not None)
    run.kill_before_its_clients()
    if answered == "after":
        person.send(True, input_digest=first["digest"])
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


def test_two_supervisors_on_one_store_each_handle_their_own_requests(processes: ClaudeProcesses) -> None:
    """An answer affects only its run, and two supervisors can't have the same session."""
    api = processes.bench.api
    api.say(api.reply(api.bash("touch one.txt")))
    one, person = processes.supervisor("s1", "r1"), processes.orchestrator()
    first = person.next_line()
    rejected = processes.supervisor("s1", "r1b").next_line()
    api.say(api.reply(api.bash("touch two.txt")))
    two, other = processes.supervisor("s2", "r2"), processes.orchestrator("other")

    assert "already has a run that is not over" in rejected["refused"]
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


def test_a_supervisor_beside_a_killed_one_ends_its_run_and_continues_its_own(processes: ClaudeProcesses) -> None:
    """Nobody has to start this; requests of the live supervisor are answered as usual."""
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


@pytest.mark.anyio
@pytest.mark.parametrize(("home", "errors"), [("home", []), ("elsewhere", ["unknown_session"])])
async def test_a_killed_workers_session_is_continued_by_another(
    processes: ClaudeProcesses, home: str, errors: list[str]
) -> None:
    """The conversation is kept, whether the client has its own session or the machine has none. The call runs once,
    after the request of the new run is approved.
    """
    api, place = processes.bench.api, str(processes.path)
    where: dict[str, Any] = {"env": {**os.environ, **processes.bench.env}, "cwd": processes.bench.cwd}
    other = processes.bench.cwd.with_name(home)
    there = {**where, "env": {**where["env"], "HOME": str(other), "CLAUDE_CONFIG_DIR": str(other / "claude")}}
    call = api.bash("echo ran >> effect.txt")
    api.say(api.reply(api.text("I look first"), api.bash("true")), api.reply(call))
    policies = parse_policies({**ASKING, "rules": [{**ASKING["rules"][0], "tools": [CHANGES]}]})
    spec = RunSpec.of("claude", "Write the file", policies=policies, options={"tools": ["Bash"], "model": "sonnet"})
    async with SQLiteStore(processes.path) as store, Fleet(store) as fleet:
        handle = await fleet.start(spec)
        with working(place, **where) as first:
            await waiting_approval(store, handle.run_id)
            await processes.until_written("echo ran")
            clients = psutil.Process(first.pid).children(recursive=True)
            first.kill()
            assert not psutil.wait_procs(clients, PATIENCE_S)[1]  # otherwise one of them requests the API again
        api.say(api.reply(call), api.reply(api.text("done")))
        with working(place, **there):
            again = await waiting_approval(store, f"{handle.run_id}.2")
            assert not processes.exists("effect.txt")
            await fleet.approve(again.request.approval_id, by="ana")
            result = await handle.wait()
        events: list[Event] = [event async for event in store.read(handle.session_id)]

    started = [event for event in events if isinstance(event, RunStarted)]
    calls = [event.tool_input["command"] for event in events if isinstance(event, ToolCallStarted)]
    assert (result.run_id, result.status, result.output) == (f"{handle.run_id}.2", "completed", "done")
    assert [event.metadata.get("continuation") for event in started] == [None, "native"]
    assert [event.code for event in events if isinstance(event, ErrorOccurred)] == errors
    assert calls == ["true", "echo ran >> effect.txt"]
    assert (processes.bench.cwd / "effect.txt").read_text() == "ran\n"
    assert "Write the file" in str(api.requests[-1]["messages"])
    assert "I look first" in str(api.requests[-1]["messages"])
    assert [event.run_id for event in events if isinstance(event, TERMINAL)] == [handle.run_id, result.run_id]
    assert processes.bench.marked(handle.run_id) == []
