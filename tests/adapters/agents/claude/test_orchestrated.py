"""The real client, supervised in one process and answered for from another: what is shown is what runs, and of every
process that may go away none takes an answer with it that nobody gave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.stream.calls import input_digest
from proctor.policies.stream.events import Event, ToolCallStarted
from proctor.supervisor import StoredApproval
from proctor.supervisor.testing.patience import PATIENCE_S

pytestmark = pytest.mark.claude

HERE = Path(__file__).parent
ODD = "first\n\tsecond \\n 'quoted' \u202egnirts\u202c é \U0001f600 $(touch no.txt) \x1b[2J"
"""A content that looks otherwise than it is, if it is shown carelessly."""


class Program:
    """A process that is spoken to in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def said(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def tell(self, granted: bool, **answer: Any) -> None:
        """Answer what it has shown."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"granted": granted, "by": "ana", **answer}) + "\n")
        self.process.stdin.flush()

    def answered(self, granted: bool, **answer: Any) -> dict[str, Any]:
        """What came of an answer."""
        self.tell(granted, **answer)
        return self.said()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        with self.process:  # waits, and closes its pipes
            pass


class House:
    """Supervisors and orchestrators on one store."""

    def __init__(self, bench: Any, folder: Path) -> None:
        self.bench = bench
        self.path = folder / "runs.db"
        self.folder = folder
        self.programs: list[Program] = []

    def supervisor(self, session: str = "s", run: str = "r1", timeout_s: float = PATIENCE_S) -> Program:
        """A process with one run, of which every call is asked about."""
        policy = {
            "name": "p",
            "on_violation": "deny",
            "approval": {"timeout_s": timeout_s},
            "rules": [{"type": "blocklist", "tools": ["Bash", "Write"], "action": "request_approval"}],
        }
        return self._started("supervising.py", session, run, json.dumps(policy))

    def orchestrator(self, name: str = "inbox") -> Program:
        """A process that shows and answers; those of one name go on from one cursor."""
        return self._started("orchestrator.py", str(self.folder / f"{name}.cursor"))

    def _started(self, program: str, *arguments: str) -> Program:
        command = [sys.executable, str(HERE / program), str(self.path), *arguments]
        env = {**os.environ, **self.bench.env}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=self.bench.cwd, env=env)
        self.programs.append(Program(process))
        return self.programs[-1]

    def events(self, session: str = "s") -> list[Event]:
        """The record of a session."""

        async def read() -> list[Event]:
            async with SQLiteStore(self.path) as store:
                return [event async for event in store.read(session)]

        return anyio.run(read)

    def ran(self, session: str = "s") -> list[dict[str, Any]]:
        """The inputs of the calls that were started."""
        return [event.tool_input for event in self.events(session) if isinstance(event, ToolCallStarted)]

    def until(self, approval_id: str, there: Callable[[StoredApproval], bool]) -> StoredApproval:
        """An approval, once it is as expected."""

        async def read() -> StoredApproval:
            with anyio.fail_after(PATIENCE_S):
                async with SQLiteStore(self.path) as store:
                    token = 0
                    while (found := await store.approval(approval_id)) is None or not there(found):
                        token = await store.wait(token, 0.1)
                    return found

        return anyio.run(read)

    def exists(self, name: str) -> bool:
        """Whether the client's folder has a file."""
        return Path(self.bench.cwd, name).exists()


@pytest.fixture
def house(bench: Any, tmp_path: Path) -> Iterator[House]:
    """A store, and whoever comes; left, nobody stays."""
    opened = House(bench, tmp_path)
    yield opened
    for program in opened.programs:
        program.kill()


def told(api: Any) -> str:
    """What the model has been told with the last request."""
    return str(api.requests[-1]["messages"][-1]["content"])


def test_what_another_process_grants_runs_with_exactly_the_input_it_showed(house: House) -> None:
    """A no reaches the model in the approver's words, and a yes to another input is none."""
    api, shown = house.bench.api, []
    target = house.bench.cwd / "written.txt"
    api.say(
        api.reply(api.tool("Write", file_path=str(target), content=ODD)),
        api.reply(api.bash("touch denied.txt")),
        api.reply(api.bash("touch asked.txt")),
        api.reply(api.text("done")),
    )
    run, person = house.supervisor(), house.orchestrator()

    shown.append(person.said())
    assert not target.exists()
    assert person.answered(True, input_digest=shown[0]["digest"]) == {"state": "granted", "recorded": True}

    refused = person.said()
    assert person.answered(False, tell_model="use the other folder")["state"] == "denied"

    changed = {**person.said()["input"], "command": "touch changed.txt"}
    assert person.answered(True, input_digest=input_digest(changed))["refused"] == "other_input"
    shown.append(person.said())
    assert not house.exists("asked.txt")
    assert person.answered(True, input_digest=shown[1]["digest"])["state"] == "granted"

    assert run.said() == {"status": "completed", "output": "done"}
    assert target.read_bytes() == shown[0]["input"]["content"].encode() == ODD.encode()
    assert house.ran() == [each["input"] for each in shown]
    assert all(each["digest"] == input_digest(each["input"]) for each in shown)
    assert refused["input"]["command"] == "touch denied.txt"
    assert "use the other folder" in str(api.requests[2]["messages"][-1]["content"])
    assert sorted(path.name for path in house.bench.cwd.iterdir()) == ["asked.txt", "written.txt"]


def test_a_question_that_nobody_answers_in_time_is_a_no(house: House) -> None:
    """The model hears that nobody approved; the yes that comes late is told so, and nothing runs by it."""
    api = house.bench.api
    api.say(api.reply(api.bash("touch late.txt")), api.reply(api.text("then not")))
    run, person = house.supervisor(timeout_s=2), house.orchestrator()
    shown = person.said()

    assert run.said() == {"status": "completed", "output": "then not"}
    assert person.answered(True, input_digest=shown["digest"])["refused"] == "expired"
    assert "Nobody approved this call" in told(api)
    assert house.ran() == []
    assert not house.exists("late.txt")


def test_of_two_orchestrators_that_answer_at_once_one_counts(house: House) -> None:
    """One says yes and the other no, over and over: the call runs where the yes was first, and there alone."""
    api, rounds = house.bench.api, range(5)
    api.say(*(api.reply(api.bash(f"touch {number}.txt")) for number in rounds), api.reply(api.text("done")))
    run, yes, no = house.supervisor(), house.orchestrator("yes"), house.orchestrator("no")
    expected = []
    for number in rounds:
        assert yes.said() == no.said()
        for person, granted in ((yes, True), (no, False)) if number % 2 else ((no, False), (yes, True)):
            person.tell(granted)
        first, second = yes.said(), no.said()
        assert sorted([*first, *second]) == ["recorded", "refused", "state", "why"]
        assert {first.get("refused"), second.get("refused")} == {None, "answered"}
        expected += [f"{number}.txt"] if "state" in first else []

    assert run.said() == {"status": "completed", "output": "done"}
    assert sorted(path.name for path in house.bench.cwd.iterdir()) == expected


def test_an_orchestrator_killed_while_answering_loses_no_question_and_no_answer(house: House) -> None:
    """Killed before its answer, the next one is asked; killed after, the answer counts, and once."""
    api = house.bench.api
    api.say(api.reply(api.bash("echo ran >> effect.txt")), api.reply(api.text("done")))
    run, asked = house.supervisor(), house.orchestrator()
    shown = asked.said()
    asked.kill()

    answering = house.orchestrator()
    assert answering.said() == shown
    run.process.send_signal(signal.SIGSTOP)
    answering.tell(True, input_digest=shown["digest"])
    house.until(shown["id"], lambda approval: approval.answer is not None)
    answering.kill()
    run.process.send_signal(signal.SIGCONT)

    again = house.orchestrator()
    assert run.said() == {"status": "completed", "output": "done"}
    assert again.said() == shown
    late = again.answered(False, by="bob")
    assert late["refused"] == "answered"
    assert "ana" in late["why"]
    assert (house.bench.cwd / "effect.txt").read_text() == "ran\n"
