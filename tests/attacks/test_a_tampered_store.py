"""A store's file changed by SQL in many ways: `audit` finds each change, with its position and its kind."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from stored_rows import in_store

from proctor.adapters.hooks.record import HookStore, store_id
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import AuditReport, audited
from proctor.adapters.stores.audit.verify import Heads
from proctor.adapters.stores.tables.seals import all_marks, command_mark, run_mark
from proctor.policies import Limits, Policy
from proctor.supervisor import Redaction, Store, export_lines, import_lines, prune, run_once
from proctor.supervisor.ports.stored_types import Block, Cancel, UnblockStarts
from proctor.supervisor.testing import Ask, FakeAdapter

from .test_a_rewritten_run import rewrite
from .test_a_tampered_cell import record as everything

POLICY = Policy(name="open", limits=Limits(max_tool_calls=1000))
ABOUT: dict[str, Any] = {"metadata": {"ticket": "7"}}
OTHER_TEXT = "CAST(replace(CAST(data AS TEXT), 'call-', 'CALL-') AS BLOB)"
SESSION = "(SELECT key FROM sessions WHERE session_id = 'b')"


def record(path: Path, sessions: str = "abc") -> None:
    """Some sessions of one run each, of equal length."""

    async def runs(store: Store) -> None:
        for session_id in sessions:
            asks = [Ask(name="bash", input={"command": f"echo {n}"}) for n in range(4)]
            await run_once(FakeAdapter(asks), "go", policies=[POLICY], store=store, session_id=session_id, **ABOUT)

    in_store(path, runs)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three sessions."""
    path = tmp_path_factory.mktemp("untouched") / "s.db"
    record(path)
    return path


@pytest.fixture
def path(untouched: Path, tmp_path: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copy(untouched, tmp_path / "s.db"))


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0 or statement.startswith("CREATE"), statement
        connection.commit()


def codes(report: AuditReport) -> set[str]:
    return {finding.code for finding in report.findings}


def places(report: AuditReport) -> set[tuple[str, int]]:
    return {(finding.session_id, finding.seq) for finding in report.findings}


def test_an_untouched_store_is_intact_and_complete(path: Path) -> None:
    """The audit does not change a byte."""
    before = path.read_bytes()
    report = audited(path)
    assert (report.intact, report.complete, report.findings) == (True, True, ())
    assert audited(path, report.heads).anchored == 3
    assert audited(path, report.heads).findings == ()
    assert path.read_bytes() == before


def event(change: str, seq: int = 6) -> str:
    """One event of the second session, changed."""
    return f"UPDATE events SET {change} WHERE session_key = {SESSION} AND seq = {seq}"


def spec(function: str, *where: str) -> str:
    """The stored specification of runs, changed by one of SQLite's JSON functions."""
    return f"UPDATE runs SET spec = CAST({function}({', '.join(('CAST(spec AS TEXT)', *map(repr, where)))}) AS BLOB)"


THE_TEXT_OF_THE_OTHER = """data = (SELECT data FROM events AS other
    WHERE other.session_key = events.session_key AND other.seq = 13 - events.seq)"""
IN_ANOTHER = "session_key = (SELECT key FROM sessions WHERE session_id = 'c')"
COLUMNS = "session_key, seq, run_id, event_id, type, at, data, digest"
INSERTED = f"""INSERT INTO events ({COLUMNS}) SELECT {COLUMNS.replace("seq", "900")} FROM events
    WHERE session_key = {SESSION} AND seq = 6"""
PLANTED = """CREATE TRIGGER kept BEFORE INSERT ON events WHEN new.type = 'policy_violation'
    BEGIN SELECT RAISE(IGNORE); END"""
CHANGES: dict[str, tuple[list[str], str]] = {
    "a record's text": ([event(f"data = {OTHER_TEXT}")], "changed"),
    "a digest": ([event("digest = zeroblob(32)")], "changed"),
    "all digests": ([f"UPDATE events SET digest = zeroblob(0) WHERE session_key = {SESSION}"], "changed"),
    "a type in a row": ([event("type = 'run_started'")], "moved"),
    "a record made unreadable": ([event("data = x'00ff'")], "unreadable"),
    "two records exchanged": ([event("seq = 100"), event("seq = 6", 7), event("seq = 7", 100)], "moved"),
    "the texts of two records exchanged": (
        [f"UPDATE events SET {THE_TEXT_OF_THE_OTHER} WHERE session_key = {SESSION} AND seq IN (6, 7)"],
        "changed",
    ),
    "a record in another session": ([event(f"{IN_ANOTHER}, seq = 999")], "moved"),
    "a session's name": (["UPDATE sessions SET session_id = 'z' WHERE session_id = 'b'"], "moved"),
    "a session's name that is no text": (["UPDATE sessions SET session_id = x'00' WHERE session_id = 'b'"], "moved"),
    "a record inserted": ([INSERTED], "moved"),
    "how a run ended, in the list": (["UPDATE runs SET status = 'failed'"], "list_changed"),
    "what a run has cost, in the list": (["UPDATE runs SET cost_usd = 0.01"], "list_changed"),
    "a figure in the list that is none": (["UPDATE runs SET input_tokens = 'many'"], "list_changed"),
    "the session of a run, in the list": (
        [f"UPDATE runs SET {IN_ANOTHER} WHERE session_key = {SESSION}"],
        "list_changed",
    ),
    "what a run was asked, in the list": ([spec("json_set", "$.prompt", "stay")], "list_changed"),
    "what a run was asked, out of the list": ([spec("json_remove", "$.prompt")], "list_changed"),
    "what a run was asked, as if a secret": ([spec("json_set", "$.prompt", "[redacted:x:0]")], "list_changed"),
    "what the caller said of a run": ([spec("json_set", "$.metadata.ticket", "8")], "list_changed"),
    "more that the caller said of a run": ([spec("json_set", "$.metadata.by", "x")], "list_changed"),
    "nothing that the caller said of a run": ([spec("json_remove", "$.metadata")], "list_changed"),
    "words where the caller said something": ([spec("json_set", "$.metadata", "x")], "list_changed"),
    "a row of the list made unreadable": (["UPDATE runs SET spec = x'00'"], "list_changed"),
    "a trigger that keeps records from being stored": ([PLANTED], "planted"),
    "a view in place of the records": (
        ["ALTER TABLE events RENAME TO hidden", "CREATE VIEW events AS SELECT * FROM hidden WHERE seq < 900"],
        "planted",
    ),
    "a digest that is text": ([event("digest = 'x'")], "changed"),
    "a number that is text": ([event("seq = 'x'", 7)], "moved"),
    "a count that is text": (["UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'events'"], "uncounted"),
    "text that no encoding has": ([event("event_id = CAST(x'ff' AS TEXT)")], "moved"),
    "a session put behind the others": (
        [f"UPDATE events SET position = position + 1000 WHERE session_key = {SESSION}"],
        "uncounted",
    ),
    "no count": (["DELETE FROM sqlite_sequence"], "uncounted"),
    "the count": (["UPDATE sqlite_sequence SET seq = seq - 3 WHERE name = 'events'"], "uncounted"),
}
REMOVALS: dict[str, tuple[list[str], str]] = {
    "a record in the middle": ([f"DELETE FROM events WHERE session_key = {SESSION} AND seq = 6"], "missing"),
    "the first records": ([f"DELETE FROM events WHERE session_key = {SESSION} AND seq < 4"], "missing"),
    "the last records": ([f"DELETE FROM events WHERE session_key = {SESSION} AND seq > 6"], "end_missing"),
    "the last records, and the run in the list": (
        [
            f"DELETE FROM runs WHERE run_id = (SELECT run_id FROM events WHERE session_key = {SESSION} AND seq = 6)",
            f"DELETE FROM events WHERE session_key = {SESSION} AND seq > 6",
        ],
        "uncounted",
    ),
    "a run in the list": ([f"DELETE FROM runs WHERE session_key = {SESSION}"], "not_listed"),
    "a session": (
        [
            f"DELETE FROM events WHERE session_key = {SESSION}",
            f"DELETE FROM runs WHERE session_key = {SESSION}",
            "DELETE FROM sessions WHERE session_id = 'b'",
        ],
        "uncounted",
    ),
    "everything": (["DELETE FROM events", "DELETE FROM runs", "DELETE FROM sessions"], "uncounted"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(path: Path, change: str) -> None:
    """As a finding of integrity, at its position, also with checkpoints."""
    statements, code = CHANGES[change]
    anchor = audited(path).heads
    sql(path, *statements)
    report, anchored = audited(path), audited(path, anchor)
    assert not report.intact
    assert code in codes(report)
    assert not (anchored.intact and anchored.complete)
    if "seq = 6" in statements[-1] and "999" not in statements[-1] and "900" not in statements[-1]:
        assert {session for session, _ in places(report)} == {"b"}
        assert min(seq for _, seq in places(report)) == 6


@pytest.fixture(scope="module")
def with_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with approvals, budgets in use, and runs that have ended or never started."""
    path = tmp_path_factory.mktemp("all") / "s.db"
    in_store(path, everything)
    hooks = HookStore(path, store_id(path))
    for data in (b"1", b"2"):
        with hooks.record("s") as record:
            record.keep("judge", data)
    hooks.close()
    return path


TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


@pytest.mark.parametrize("value", ["'x'", "NULL", "x'00ff'", "1e300", "-9223372036854775808", "''"])
def test_a_value_of_another_type_in_any_column_does_not_break_the_audit(
    with_all: Path, tmp_path: Path, value: str
) -> None:
    """It is found, or equivalent to the old value. SQLite stores any type in any column."""
    heads = audited(with_all).heads
    with closing(sqlite3.connect(with_all)) as connection:
        tables = [name for (name,) in connection.execute(TABLES)]
        columns = [(table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]
    found = 0
    for table, column in columns:
        path = Path(shutil.copy(with_all, tmp_path / "s.db"))
        with closing(sqlite3.connect(path)) as connection:
            with suppress(sqlite3.Error):  # a key, or a column that is NOT NULL
                connection.execute(f"UPDATE {table} SET {column} = {value}")
            connection.commit()
        found += not audited(path, heads).intact

    assert found > 10


ORDERS: dict[str, tuple[list[str], str, str]] = {
    "an order removed": (["DELETE FROM instructions WHERE number = 2"], "completeness", "order_missing"),
    "the first order removed": (["DELETE FROM instructions WHERE number = 1"], "completeness", "order_missing"),
    "the last order removed": (["DELETE FROM instructions WHERE number = 5"], "integrity", "list_changed"),
    "an order that cannot be read": (
        ["UPDATE instructions SET data = x'00' WHERE number = 2"],
        "integrity",
        "order_changed",
    ),
    "an order that is text": (["UPDATE instructions SET data = 'x' WHERE number = 2"], "integrity", "order_changed"),
    "a block that nobody lifted": (["DELETE FROM blocks"], "integrity", "list_changed"),
    "a block that somebody lifted": (
        ["INSERT INTO blocks VALUES (2, 'tenant', 'acme')"],
        "integrity",
        "list_changed",
    ),
    "a block of something else": (["UPDATE blocks SET value = 'evil'"], "integrity", "list_changed"),
    "a lift nobody ordered": (
        [
            """UPDATE instructions SET data = (SELECT replace(CAST(data AS TEXT), 'acme', 'evil') FROM instructions
                WHERE number = 4) WHERE number = 4"""
        ],
        "integrity",
        "list_changed",
    ),
}


@pytest.fixture
def ordered(tmp_path: Path) -> Path:
    """A store with a cancel, a lifted freeze and an active one, in five commands."""
    acme: dict[str, Any] = {"scope": "tenant", "value": "acme", "by": "ana"}

    async def orders(store: Store) -> None:
        for order in (
            Cancel(scope="all", by="ana"),
            *(kind(**acme) for kind in (Block, Cancel, UnblockStarts, Block)),
        ):
            await store.send_command(order)

    in_store(tmp_path / "s.db", orders)
    return tmp_path / "s.db"


@pytest.mark.parametrize("change", ORDERS)
def test_commands_have_no_gap_and_say_what_freezes_starts(ordered: Path, change: str) -> None:
    """Every cancel, freeze and lift stores a command, so a freeze that was lifted by SQL is found."""
    statements, about, code = ORDERS[change]
    untouched = audited(ordered).findings
    sql(ordered, *statements)
    report = audited(ordered)

    assert untouched == ()
    assert ("integrity" if report.complete else "completeness", codes(report) & {code}) == (about, {code})


def test_a_change_of_a_commands_author_is_found_by_a_checkpoint(ordered: Path) -> None:
    """An expert can make the digests fit. Commands stored since the checkpoint are no finding."""
    kept = audited(ordered).heads
    changed, cut = (Path(shutil.copy(ordered, ordered.with_name(name))) for name in ("changed.db", "cut.db"))
    sql(changed, "UPDATE instructions SET data = replace(CAST(data AS TEXT), 'ana', 'bob') WHERE number = 1")
    sql(cut, "DELETE FROM blocks", "DELETE FROM instructions WHERE number = 5")
    assert codes(audited(changed)) == codes(audited(cut)) == {"list_changed"}
    for path in (changed, cut):
        with closing(sqlite3.connect(path)) as connection:
            orders = connection.execute("SELECT number, CAST(data AS BLOB) FROM instructions").fetchall()
        marks = all_marks(command_mark(*order) for order in orders)
        sql(path, f"UPDATE seals SET marks = {marks} WHERE name = 'commands'")
    in_store(ordered, lambda store: store.send_command(Cancel(scope="all", by="bob")))
    assert audited(ordered, kept).findings == ()
    assert (codes(audited(changed)), codes(audited(changed, kept))) == (set(), {"orders_rewritten"})
    assert (codes(audited(cut)), codes(audited(cut, kept))) == (set(), {"order_missing"})


def test_a_prompt_that_an_export_redacts_is_no_finding(tmp_path: Path) -> None:
    """Events stored without redaction keep their secrets; the run's line in an export has none."""

    async def moved() -> None:
        secret = "ghp" + "_" + "k9" * 18
        about: dict[str, Any] = {"redaction": Redaction(off=True), "metadata": {"key": secret}}
        async with SQLiteStore(tmp_path / "from.db") as store:
            await run_once(FakeAdapter(), f"use {secret}", policies=[POLICY], store=store, **about)
            lines = [line async for line in export_lines(store)]
        assert [secret.encode() in line for line in lines[1:3]] == [False, False]
        async with SQLiteStore(tmp_path / "to.db") as store:
            await import_lines(store, lines)

    anyio.run(moved)
    assert audited(tmp_path / "from.db").findings == audited(tmp_path / "to.db").findings == ()


def test_checkpoints_from_before_commands_were_counted_cover_only_sessions(ordered: Path) -> None:
    """The signature covers the same bytes as before."""
    old = b'{"type":"proctor_heads","store_id":"x","records":0,"made_at":"","sessions":[],"signature":"ab"}'
    heads = msgspec.json.decode(old, type=Heads)

    assert heads.signed_bytes() == old.replace(b"ab", b"")
    assert codes(audited(ordered, heads)) == {"replaced"}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_is_found_and_distinguished_from_a_change(path: Path, removal: str) -> None:
    """What remains is intact and not complete. Checkpoints find it too."""
    statements, code = REMOVALS[removal]
    anchor = audited(path).heads
    sql(path, *statements)
    report, anchored = audited(path), audited(path, anchor)
    assert (report.intact, report.complete) == (True, False)
    assert code in codes(report)
    assert not (anchored.intact and anchored.complete)


@pytest.mark.parametrize("also", ["", "DELETE FROM sessions WHERE key NOT IN (SELECT session_key FROM runs)"])
def test_a_removed_run_that_never_started_is_missed(with_all: Path, tmp_path: Path, also: str) -> None:
    """It has no events."""
    path = Path(shutil.copy(with_all, tmp_path / "s.db"))
    sql(path, "DELETE FROM runs WHERE status = 'created'", *filter(None, [also]))
    report = audited(path)

    assert (report.intact, report.complete) == (True, False)
    assert codes(report) == {"not_listed"}


def forged(path: Path) -> None:
    """A call's events changed, and all later digests recomputed."""
    sql(path, f"UPDATE events SET data = {OTHER_TEXT} WHERE session_key = {SESSION}")
    rewrite(path, session_id="b")


RENUMBERED = (
    "UPDATE events SET position = (SELECT count(*) FROM events AS other WHERE other.position <= events.position)",
    "UPDATE sqlite_sequence SET seq = (SELECT count(*) FROM events) WHERE name = 'events'",
)


def cut(path: Path) -> None:
    """The end of a session removed, with all that refers to it: the numbers, the count, the list."""
    sql(
        path,
        f"DELETE FROM events WHERE session_key = {SESSION} AND seq > 6",
        "UPDATE runs SET status = 'running', ended_seq = NULL, ended_ms = NULL, calls = (SELECT count(*) FROM events"
        f" WHERE run_id = runs.run_id AND type = 'tool_call_started') WHERE session_key = {SESSION}",
        *RENUMBERED,
    )


def session_removed(path: Path) -> None:
    """A session removed, with all that refers to it."""
    with closing(sqlite3.connect(path)) as connection:
        [(run_id,)] = connection.execute(f"SELECT run_id FROM runs WHERE session_key = {SESSION}").fetchall()
    mark = run_mark(run_id)
    sql(
        path,
        f"UPDATE seals SET marks = (marks | {mark}) - (marks & {mark}) WHERE name = 'runs'",
        f"DELETE FROM runs WHERE session_key = {SESSION}",
        f"DELETE FROM events WHERE session_key = {SESSION}",
        "DELETE FROM sessions WHERE session_id = 'b'",
        *RENUMBERED,
    )


def replaced_by_prune_event(path: Path) -> None:
    """A session replaced by an event that says it was pruned, with a valid digest."""
    with closing(sqlite3.connect(path)) as connection:
        [(key, last, head)] = connection.execute(
            f"SELECT session_key, seq, digest FROM events WHERE session_key = {SESSION} ORDER BY seq DESC LIMIT 1"
        ).fetchall()
        connection.execute("DELETE FROM events WHERE session_key = ?", (key,))
        data = (
            f'{{"type":"record_pruned","session_id":"b","seq":{last + 1},"events":{last},"head":"{bytes(32).hex()}"}}'
        ).encode()
        digest = sha256(bytes(32) + data).digest()
        columns = "session_key, seq, run_id, type, data, digest"
        values = (key, last + 1, "", "record_pruned", data, digest)
        connection.execute(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?)", values)
        connection.commit()
    assert head != bytes(32)


@pytest.mark.parametrize(("attack", "code"), [
    (forged, "rewritten"),
    (cut, "cut_off"),
    (session_removed, "session_missing"),
    (replaced_by_prune_event, "pruned_otherwise"),
])  # fmt: skip
def test_a_consistent_forgery_is_found_only_by_a_checkpoint(
    path: Path, attack: Callable[[Path], None], code: str
) -> None:
    """As documented: nothing in the file itself can show it. Checkpoints kept elsewhere can."""
    anchor = audited(path).heads
    attack(path)
    alone = audited(path)
    assert (alone.intact, alone.complete) == (True, True)
    assert code in codes(audited(path, anchor))


def test_a_replaced_store_is_found(path: Path, tmp_path: Path) -> None:
    """By one with the same sessions, or by an older copy."""
    old = tmp_path / "old.db"
    shutil.copy(path, old)
    record(path, "de")
    anchor = audited(path).heads
    other = tmp_path / "other.db"
    record(other)
    assert "replaced" in codes(audited(other, anchor))
    assert codes(audited(old, anchor)) == {"session_missing"}


def test_events_after_a_checkpoint_are_no_finding(path: Path) -> None:
    anchor = audited(path).heads
    record(path, "bx")
    assert audited(path, anchor).findings == ()


def test_very_many_findings_are_counted_and_not_kept(path: Path, monkeypatch: Any) -> None:
    """A report stays readable."""
    monkeypatch.setattr("proctor.adapters.stores.audit.verify.MOST_FINDINGS", 3)
    sql(path, "UPDATE events SET digest = zeroblob(32)")
    report = audited(path)
    assert len(report.findings) == 3
    assert report.more > 10


def test_a_pruned_session_is_distinguished_from_a_tampered_one(path: Path) -> None:
    """With a checkpoint and without. A restored list entry, and a change to the one remaining event, are found."""
    anchor = audited(path).heads
    later = datetime.now(UTC) + timedelta(days=1)
    in_store(path, lambda store: prune(store, older_than=timedelta(0), now=later, by="ana"))
    for report in (audited(path), audited(path, anchor)):
        assert (report.intact, report.complete) == (True, True)
        assert {one.session_id for one in report.pruned} == {"a", "b", "c"}
    columns = "approval_id, session_key, seq, run_id, state, held, ran"
    sql(path, f"INSERT INTO approvals ({columns}) SELECT 'x', {SESSION}, 1, 'r', 'granted', 1, 0")
    assert codes(audited(path)) == {"list_changed"}
    sql(path, "DELETE FROM approvals")
    sql(path, f"UPDATE events SET data = replace(data, 'ana', 'bob') WHERE session_key = {SESSION}")
    assert codes(audited(path)) == {"changed"}
    sql(path, f"DELETE FROM events WHERE session_key = {SESSION}")
    assert "session_missing" in codes(audited(path, anchor))
