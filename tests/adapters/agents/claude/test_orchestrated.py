"""The real client, supervised in one process and answered for from another: what is shown is what runs, and of every
process that may go away none takes an answer with it that nobody gave.
"""

from __future__ import annotations

import signal

import pytest
from claude_processes import ClaudeProcesses
from stopping import stop_between_writes

from proctor.policies.events.calls import input_digest

pytestmark = pytest.mark.claude

ODD = "first\n\tsecond \\n 'quoted' \u202egnirts\u202c é \U0001f600 $(touch no.txt) \x1b[2J"
"""A content that looks otherwise than it is, if it is shown carelessly."""


def test_what_another_process_grants_runs_with_exactly_the_input_it_showed(processes: ClaudeProcesses) -> None:
    """A no reaches the model in the approver's words, and a yes to another input does not count."""
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

    refused = person.next_line()
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
    assert refused["input"]["command"] == "touch denied.txt"
    assert "use the other folder" in str(api.requests[2]["messages"][-1]["content"])
    assert sorted(path.name for path in processes.bench.cwd.iterdir()) == ["asked.txt", "written.txt"]


def test_of_two_orchestrators_that_answer_at_once_one_counts(processes: ClaudeProcesses) -> None:
    """One says yes and the other no, over and over: the call runs where the yes was first, and there alone."""
    api, rounds = processes.bench.api, range(5)
    api.say(*(api.reply(api.bash(f"touch {number}.txt")) for number in rounds), api.reply(api.text("done")))
    run, yes, no = processes.supervisor(), processes.orchestrator("yes"), processes.orchestrator("no")
    expected = []
    for number in rounds:
        assert yes.next_line() == no.next_line()
        for person, granted in ((yes, True), (no, False)) if number % 2 else ((no, False), (yes, True)):
            person.tell(granted)
        first, second = yes.next_line(), no.next_line()
        assert sorted([*first, *second]) == ["recorded", "refused", "state", "why"]
        assert {first.get("refused"), second.get("refused")} == {None, "answered"}
        expected += [f"{number}.txt"] if "state" in first else []

    assert run.next_line() == {"status": "completed", "output": "done"}
    assert sorted(path.name for path in processes.bench.cwd.iterdir()) == expected


def test_an_orchestrator_killed_while_answering_loses_no_question_and_no_answer(processes: ClaudeProcesses) -> None:
    """Killed before its answer, the next one is asked; killed after, the answer counts, and once."""
    api = processes.bench.api
    api.say(api.reply(api.bash("echo ran >> effect.txt")), api.reply(api.text("done")))
    run, orchestrator = processes.supervisor(), processes.orchestrator()
    shown = orchestrator.next_line()
    orchestrator.kill()

    answering = processes.orchestrator()
    assert answering.next_line() == shown
    stop_between_writes(run.process, processes.path)
    answering.tell(True, input_digest=shown["digest"])
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
