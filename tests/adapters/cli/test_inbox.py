"""`approvals` lists pending requests; `approvals --watch` and `tail -f` follow new ones, even without a store yet."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from answering import token_for
from stored_rows import in_store

from proctor.adapters.agents.catalog import adapter_named
from proctor.adapters.operations.service import OperatorService
from proctor.adapters.operations.timeline import TimelineItems
from proctor.adapters.stores import SQLiteStore
from proctor.policies import encode_event, load_policies
from proctor.policies.events import (
    Event,
    MessageReceived,
    RunCancelled,
    RunCompleted,
    RunStarted,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
)
from proctor.supervisor import RunInfo, run_once
from proctor.supervisor.ports.stored_types import APPROVAL_WORDS, ApprovalState, Owner
from proctor.supervisor.testing.fakes import PATIENCE_S, FakeApprover


def request(n: int, run_id: str = "run_1") -> ToolApprovalRequested:
    return ToolApprovalRequested(
        run_id=run_id,
        session_id="s",
        approval_id=f"{run_id}.{n}",
        tool_name="deploy",
        tool_input={"to": n},
        input_digest="d",
    )


def granted(n: int) -> ToolApprovalGranted:
    return ToolApprovalGranted(run_id="run_1", session_id="s", approval_id=f"run_1.{n}", input_digest="d", by="ana")


def withdrawn(n: int) -> ToolApprovalExpired:
    ids: Any = {"run_id": "run_1", "session_id": "s", "approval_id": f"run_1.{n}"}
    return ToolApprovalExpired(**ids, input_digest="d", withdrawn=True)


async def store(path: Path, *events: Event) -> None:
    async with SQLiteStore(path) as opened:
        await opened.append(events)


def test_a_limited_number_is_listed_oldest_first_with_whole_ids(cli: Any, place: Path) -> None:
    """And a note that there are more."""
    some: list[Event] = [*(request(n) for n in range(1, 6)), granted(2)]
    anyio.run(store, place / "some.db", *some)
    two = cli("approvals", "--limit", "2", "--store", "some.db")
    every = cli("approvals", "--store", "some.db", "--json")

    assert [line for line in two.out.splitlines() if not line.startswith(" ")] == ["run_1.1", "run_1.3"]
    assert two.err == "more are pending; `--limit` shows them\n"
    assert [line["approval_id"] for line in every.lines] == [f"run_1.{n}" for n in (1, 3, 4, 5)]


@pytest.mark.parametrize("how", ["its owner is gone", "it was imported"])
def test_a_request_of_a_run_with_which_nobody_goes_on_is_listed_as_such(cli: Any, place: Path, how: str) -> None:
    """As long as nobody has ended the run, its requests are open, and nobody can answer them. `kill` ends it."""

    async def asking(goes_on: bool) -> None:
        async with SQLiteStore(place / "some.db") as opened:
            epoch = (await opened.register(Owner(owner_id="o", host="h"), lease_s=3600)).epoch
            await opened.create_run(RunInfo(run_id="run_1", session_id="s"), epoch=epoch)
            await opened.append([RunStarted(run_id="run_1", session_id="s"), request(1)], epoch=epoch)
            if not goes_on:
                await opened.release(epoch)

    anyio.run(asking, how == "it was imported")
    if how == "it was imported":
        [here] = cli("approvals", "--json", "--store", "some.db").lines
        assert not here["lost"]
        cli("export", "--store", "some.db", "-o", "events.jsonl")
        (place / "some.db").unlink()
        cli("import", "events.jsonl", "--store", "some.db")
    shown = cli("approvals", "--store", "some.db")
    [approval] = cli("approvals", "--json", "--store", "some.db").lines
    killed = cli("kill", "run_1", "--store", "some.db")

    assert "nobody can: nobody goes on with the run, and `proctor kill` ends it" in shown.out
    assert approval["lost"]
    assert (killed.code, "run_1: ended, " in killed.out) == (0, True), killed


def test_people_who_may_not_answer_are_listed(cli: Any, place: Path) -> None:
    """Under `four_eyes`: the person who started the run, or everyone if that person is unknown."""
    some = [msgspec.structs.replace(request(n), started_by=by) for n, by in enumerate(("bo", "", None), 1)]
    anyio.run(store, place / "some.db", *some)
    listed = cli("approvals", "--store", "some.db").out.splitlines()

    assert [line for line in listed if line.startswith("  not by ")] == [
        "  not by   bo",
        "  not by   anyone: who started the run is not known; give its context a `user`",
    ]


@pytest.mark.parametrize(("word", "state"), [("approve", "granted"), ("deny", "denied")])
def test_interrupting_the_wait_after_an_answer_says_that_it_counts(
    tmp_path: Path, word: str, state: ApprovalState
) -> None:
    """The run's owner is active and has not read it."""
    place = tmp_path / "runs.db"
    command = [sys.executable, "-m", "proctor", word, "run_1.1", "--by", "ana", "--store", str(place)]

    async def interrupted() -> tuple[str, ...]:
        async with SQLiteStore(place) as store:
            epoch = (await store.register(Owner(owner_id="o", host="h"), lease_s=3600)).epoch
            await store.create_run(RunInfo(run_id="run_1", session_id="s"), epoch=epoch)
            await store.append([msgspec.structs.replace(request(1), held=True)], epoch=epoch)
            async with await anyio.open_process(command, env=os.environ | token_for(place)) as process:
                while (approval := await store.approval("run_1.1")) and approval.state == "requested":
                    await anyio.sleep(0.01)
                process.send_signal(signal.SIGINT)
                assert process.stderr is not None
                lines = b"".join([chunk async for chunk in process.stderr]).decode().split("\n")
            assert process.returncode == 3
            return approval.state if approval else "", *filter(None, lines)

    stays = f"`run_1.1` stays {APPROVAL_WORDS[state]}, as ana answered"
    assert anyio.run(interrupted) == (state, stays, "interrupted")


@contextmanager
def following(*words: str) -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """A command that follows, as a function that reads this many lines; Ctrl-C ends it with exit code 0."""
    command = [sys.executable, "-m", "proctor", *words, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        lines = process.stdout
        yield lambda count: [json.loads(lines.readline()) for _ in range(count)]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) in (0, 3)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def test_approvals_are_watched_with_their_outcomes(tmp_path: Path) -> None:
    """From before the store exists, for writes of any process, until it is interrupted."""
    path = tmp_path / "later.db"
    with following("approvals", "--watch", "--store", str(path)) as next_lines:
        anyio.run(store, path, RunStarted(run_id="run_1", session_id="s"), request(1), request(2), request(3))
        seen = next_lines(3)
        anyio.run(store, path, granted(1), withdrawn(3), RunCompleted(run_id="run_1", session_id="s"))
        seen += next_lines(3)

    assert [line["approval_id"] for line in seen] == [f"run_1.{n}" for n in (1, 2, 3, 1, 3, 2)]
    assert [(line["state"], line["by"]) for line in seen[3:]] == [("granted", "ana"), *[("withdrawn", None)] * 2]


def test_a_call_that_a_cancelled_run_held_is_withdrawn_and_one_for_a_later_run_is_not(tmp_path: Path) -> None:
    """As the store says, also where the run's owner could record nothing about the call."""
    path = tmp_path / "later.db"
    held = msgspec.structs.replace(request(1), held=True)
    with following("approvals", "--watch", "--store", str(path)) as next_lines:
        anyio.run(store, path, RunStarted(run_id="run_1", session_id="s"), held, request(2))
        seen = next_lines(2)
        anyio.run(store, path, RunCancelled(run_id="run_1", session_id="s", reason="lost"), granted(2))
        seen += next_lines(2)

    closed = [(line["approval_id"], line["state"], line["by"]) for line in seen[2:]]
    assert closed == [("run_1.1", "withdrawn", None), ("run_1.2", "granted", "ana")]


def test_tail_waits_for_the_store_and_shows_new_events(tmp_path: Path) -> None:
    """Events that other processes store, of any run."""
    path, seen = tmp_path / "later.db", []
    with following("tail", "-f", "--store", str(path)) as next_lines:
        for n in range(3):
            ids: Any = {"run_id": f"r{n}", "session_id": f"s{n}"}
            anyio.run(store, path, RunStarted(**ids), MessageReceived(content=n, **ids))
            seen += [(line["run_id"], line["type"]) for line in next_lines(2)]

    assert seen == [(f"r{n}", type) for n in range(3) for type in ("run_started", "message_received")]


ASKING = """
name: p
rules: [{type: before, id: by-a-person, first: human-approval, then: write}]
tool_rules: [{deny: [deploy], id: prod, action: request_approval}]
nets: [require human-approval before pay]
"""
STEPS = "name: a\ntools: [write, deploy, pay]\nsteps: [{call: write}, {call: deploy}, {call: pay}]\n"


def test_an_approved_call_is_no_violation_in_any_output(cli: Any, place: Path) -> None:
    """The requirement is satisfied: in the result, the list, the timeline, the explanation, `eval` and the
    dashboard's view.
    """
    place.joinpath("p.yaml").write_text(ASKING)
    place.joinpath("a.yaml").write_text(STEPS)
    given: Any = {"policies": load_policies("p.yaml"), "approver": FakeApprover(True)}
    agent = adapter_named("scripted", script="a.yaml")
    result = in_store("a.db", lambda store: run_once(agent, "go", store=store, **given))
    place.joinpath("s.jsonl").write_bytes(b"\n".join(map(encode_event, result.events)) + b"\n")
    evaluated = cli("eval", "--policy", "p.yaml", "s.jsonl", "--json")
    run, shown = cli("runs", "--store", "a.db", "--json").lines[0], cli("show", "last", "--store", "a.db")
    explained = cli("explain", "last", "--store", "a.db", "--json")
    view = in_store("a.db", lambda store: OperatorService(store).run(result.run_id))
    items = TimelineItems()

    assert [call.name for call in result.calls] == ["write", "deploy", "pay"]
    assert result.policy.violations == ()
    assert (run["violations"], run["calls"]) == (0, 3)
    assert (evaluated.code, evaluated.lines[0]["passed"], evaluated.lines[0]["violations"]) == (0, True, [])
    assert evaluated.lines[0]["rules"]["by-a-person"] == "held"
    assert "violation " not in shown.out
    assert shown.out.count("approved") == 3
    assert explained.code == 0
    assert view.violations == 0
    assert "violation" not in [item.label for event in result.events if (item := items.of(event))]
