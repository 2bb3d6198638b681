"""A store from before runs had owners: what waited goes on waiting, what went on is lost, what was ordered holds.

`older_files` are dumps of files that those versions wrote, with a supervisor killed under them and mail left over.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proctor.adapters.cli import main
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.sqlite.schema import SCHEMA_VERSION
from proctor.policies import Policy, parse_policies
from proctor.policies.events import RunCancelled, RunCompleted, RunFailed
from proctor.supervisor import ApprovalAnswer, ApprovalError, answer, execute_run, pending, run_once
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.testing import Ask, FakeAdapter

anyone = pytest.mark.anyio

OLDER = sorted(Path(__file__).with_name("older_files").glob("*.sql"))
ASKS = parse_policies("{name: p, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")
YES = ApprovalAnswer(granted=True, by="ana")


@pytest.fixture(params=OLDER, ids=lambda path: path.stem)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file as that version left it."""
    path = tmp_path / "record.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(request.param.read_text(encoding="utf-8"))
    return path


def deploys() -> FakeAdapter:
    return FakeAdapter([Ask(id="c1", name="deploy", input={"to": "prod"})])


def records(path: Path) -> list[tuple[str, int, bytes]]:
    """Every event as its bytes are stored."""
    sql = "SELECT session_id, seq, data FROM events JOIN sessions ON key = session_key ORDER BY key, seq"
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@anyone
async def test_no_record_and_no_run_of_an_older_store_is_lost(older: Path) -> None:
    """Every event is there byte for byte; what nobody runs any more is lost, what never started still may."""
    before = records(older)
    async with SQLiteStore(older) as store:
        runs = {run.run_id: run.status for run in await store.runs()}

    assert records(older) == before
    assert audited(older).findings == ()
    assert runs == {
        "answered": "completed",
        "put-off": "cancelled",
        "held": "lost",
        "created": "created",
        "cancelled-before-it-starts": "created",
        "hooked-1": "running",
    }


@anyone
async def test_approvals_of_an_older_store_carry_over(older: Path) -> None:
    """Those that wait are listed, those that were answered say by whom."""
    async with SQLiteStore(older) as store:
        found = {approval.request.run_id: approval for approval in await store.approvals(waiting=False)}
        waiting = [request.run_id for request in await pending(store)]

    assert {run: approval.state for run, approval in found.items()} == {
        "answered": "granted",
        "put-off": "requested",
        "held": "requested",
        "hooked-1": "requested",
    }
    assert found["answered"].answer == ApprovalAnswer(granted=True, by="ana", reason="fine")
    assert found["answered"].recorded
    assert set(waiting) == {"put-off", "held", "hooked-1"}


@anyone
async def test_an_approval_that_an_older_run_ended_for_is_answered_and_holds(older: Path) -> None:
    """The next run of its session makes the call, and nobody is asked again."""
    async with SQLiteStore(older) as store:
        [waiting] = await store.approvals(run_id="put-off")
        taken = await answer(store, waiting.request.approval_id, YES)
        agent = deploys()
        result = await run_once(
            agent, "go", policies=ASKS, store=store, session_id="s-put-off", continuation="replay"
        )

    assert (taken.state, taken.recorded) == ("granted", True)
    assert (result.status, len(agent.ran)) == ("completed", 1)


@anyone
async def test_a_lost_run_of_an_older_store_is_reaped_and_its_session_asks_again(older: Path) -> None:
    """One end that says so; the approval it held is withdrawn, and an answer says whose it was."""
    async with SQLiteStore(older) as store:
        [held] = await store.approvals(run_id="held")
        with pytest.raises(ApprovalError) as before:
            await answer(store, held.request.approval_id, YES)
        ended = await reap(store)
        with pytest.raises(ApprovalError) as after:
            await answer(store, held.request.approval_id, YES)
        ends = [event async for event in store.read("s-held") if isinstance(event, RunFailed)]
        agent = deploys()

        async def ask(request: object) -> ApprovalAnswer:
            return YES

        result = await run_once(agent, "go", policies=ASKS, store=store, session_id="s-held", approver=ask)

    assert (before.value.kind, after.value.kind) == ("owner_gone", "withdrawn")
    assert [run.run_id for run in ended] == ["held"]
    assert [(event.error or {}).get("code") for event in ends] == ["owner_lost"]
    assert (result.status, len(agent.ran)) == ("completed", 1)


@anyone
@pytest.mark.parametrize(("run_id", "end"), [("created", RunCompleted), ("cancelled-before-it-starts", RunCancelled)])
async def test_a_created_run_of_an_older_store_starts_unless_it_was_cancelled(
    older: Path, run_id: str, end: type
) -> None:
    """A cancel that lay in the mail for it is honoured; one to everything that had started is not for it."""
    agent = FakeAdapter([Ask(id="c1", name="read")])
    async with SQLiteStore(older) as store:
        result = await execute_run(store, agent, run_id, policy=Policy(name="p"))
        last = [event async for event in store.read(f"s-{run_id}")][-1]

    assert type(last) is end
    assert result.status == ("completed" if end is RunCompleted else "cancelled")
    assert len(agent.ran) == (end is RunCompleted)
    assert end is RunCompleted or (isinstance(last, RunCancelled) and last.reason == "not today")


def test_a_store_of_a_newer_version_is_refused_with_one_sentence(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line too, whatever the file holds; it is left as it was."""
    with closing(sqlite3.connect(older)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = older.read_bytes()
    with pytest.raises(SystemExit) as exit:
        main(["runs", "--store", str(older)])
    printed = capsys.readouterr()

    assert (exit.value.code, printed.out) == (2, "")
    assert printed.err.strip().splitlines() == [
        f"error: store `{older}` has schema version {SCHEMA_VERSION + 1}, this proctor reads up to "
        f"{SCHEMA_VERSION}; upgrade proctor, or restore the backup from before it was upgraded"
    ]
    assert older.read_bytes() == before
