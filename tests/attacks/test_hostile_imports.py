"""Imported lines that `export` did not write: none of them corrupts an existing event log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import called
from stored_rows import in_store

from proctor.adapters.stores.audit.audit import audited
from proctor.supervisor import Owner, ProctorError, Store, StoreError, UsageError, export_lines, import_lines

from .test_a_tampered_store import record

Lines = list[bytes]


def exported(path: Path) -> Any:
    async def lines(store: Store) -> Lines:
        return [line async for line in export_lines(store)]

    return in_store(path, lines)


def imported(path: Path, lines: Lines) -> None:
    in_store(path, lambda store: import_lines(store, lines))


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    """The export of a store with two sessions."""
    record(tmp_path / "from.db", "ab")
    return exported(tmp_path / "from.db")


def changed(line: bytes, **fields: Any) -> bytes:
    """An event's line with other fields."""
    event = json.loads(line)
    event["event"] |= fields
    return json.dumps(event).encode() + b"\n"


def events(lines: Lines) -> list[int]:
    """The indices of the event lines."""
    return [number for number, line in enumerate(lines) if line.startswith(b'{"event"')]


def with_line(lines: Lines, at: int, line: bytes) -> Lines:
    return [*lines[:at], line, *lines[at + 1 :]]


def fourth(lines: Lines, **fields: Any) -> Lines:
    return with_line(lines, events(lines)[3], changed(lines[events(lines)[3]], **fields))


def exchanged(lines: Lines) -> Lines:
    first, second = events(lines)[3:5]
    return [*lines[:first], lines[second], lines[first], *lines[second + 1 :]]


WRONG: dict[str, Callable[[Lines], Lines]] = {
    "nothing at all": lambda lines: [b""],
    "no head": lambda lines: lines[1:],
    "a head of another version": lambda lines: [b'{"format":"proctor record 2"}\n', *lines[1:]],
    "broken off within a line": lambda lines: [*lines[:-1], lines[-1][:-20]],
    "bytes that are no text": lambda lines: [*lines[:6], b"\xff\xfe\x00\x01\n", *lines[6:]],
    "nested without end": lambda lines: [*lines[:6], b'{"event":' + b"[" * 100_000 + b"\n"],
    "a list in place of a line": lambda lines: [*lines[:6], b"[]\n"],
    "an event that is a number": lambda lines: [*lines[:6], b'{"event":7}\n'],
    "a number that is text": lambda lines: fourth(lines, seq="4"),
    "a number too large": lambda lines: fourth(lines, seq=2**70),
    "a number beyond what can be counted": lambda lines: fourth(lines, seq=2**62),
    "two events exchanged": exchanged,
    "an event left out": lambda lines: [*lines[: events(lines)[3]], *lines[events(lines)[3] + 1 :]],
    "an event without a session": lambda lines: with_line(lines, events(lines)[0],
        changed(lines[events(lines)[0]], session_id="")),
    "a run without an id": lambda lines: [lines[0], b'{"run":{"run_id":"","session_id":"a"}}\n', *lines[1:]],
    "a run whose spec is a list": lambda lines: [lines[0], b'{"run":{"run_id":"x","session_id":"a","spec":[]}}\n',
        *lines[1:]],
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_lines_are_one_error_and_the_log_stays_valid(lines: Lines, wrong: str, tmp_path: Path) -> None:
    """The lines before it form a log without a gap. After the error, the import can be repeated."""
    path = tmp_path / "to.db"
    record(path, "kept")
    before = exported(path)
    with pytest.raises(ProctorError) as raised:
        imported(path, WRONG[wrong](lines))
    report = audited(path)

    assert isinstance(raised.value, UsageError | StoreError)
    assert (report.intact, {one.code for one in report.findings} <= {"not_listed"}) == (True, True)
    assert [line for line in exported(path) if b'"kept"' in line] == [line for line in before if b'"kept"' in line]
    imported(path, lines)
    assert {*lines[1:]} <= {*exported(path)}
    assert audited(path).findings == ()


def test_an_import_does_not_write_to_a_session_with_an_active_run(lines: Lines, tmp_path: Path) -> None:
    """The run has an owner, and an import is none."""
    path = tmp_path / "to.db"
    cut = [line for line in lines if b'"run_completed"' not in line]
    imported(path, cut)

    async def claimed(store: Store) -> None:
        owner = await store.register(Owner(owner_id="o"), lease_s=3600)
        for run in await store.runs():
            await store.claim_run(run.run_id, epoch=owner.epoch, lost=True)
        with pytest.raises(StoreError) as raised:
            await import_lines(store, lines)
        assert raised.value.kind == "fenced"

    in_store(path, claimed)
    assert {json.loads(line)["event"]["type"] for line in exported(path)[3:]}.isdisjoint({"run_completed"})


@pytest.mark.parametrize("at", [0, 3, -1])
def test_an_altered_event_does_not_replace_an_existing_one(lines: Lines, at: int, tmp_path: Path) -> None:
    """The first, a middle or the last event of a session: the existing log is unchanged."""
    path = tmp_path / "to.db"
    imported(path, lines)
    before = exported(path)
    number = events(lines)[at]
    forged = with_line(lines, number, changed(lines[number], run_id="forged"))
    with pytest.raises(StoreError) as raised:
        imported(path, forged)

    assert raised.value.kind == "conflict"
    assert exported(path) == before


def test_the_end_of_a_run_in_its_line_is_not_trusted(lines: Lines, tmp_path: Path) -> None:
    """Its status, its usage and its owner are derived from events."""
    path = tmp_path / "to.db"
    run = json.loads(lines[1])["run"]
    more = {"status": "completed", "calls": 99, "violations": 9, "usage": {"cost_usd": 5.0}, "ended_seq": 7}
    owned = {"owner": {"owner_id": "o", "epoch": 1}, "tenant": "evil", "after": 9}
    imported(path, [lines[0], json.dumps({"run": {**run, **more, **owned}}).encode(), *lines[2:]])

    assert exported(path)[1:] == lines[1:]
    assert audited(path).findings == ()


def test_an_endless_line_is_not_read_to_its_end(
    lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No more than the largest event is in memory, and the lines before it are imported."""
    longest = max(map(len, lines))
    monkeypatch.setattr("proctor.supervisor.store.records.MAX_BYTES", longest)
    file, store = tmp_path / "lines.jsonl", tmp_path / "to.db"
    file.write_bytes(b"".join(lines))
    taken = called(capsys, "import", file, "--store", store)
    file.write_bytes(b"".join(lines[:5]) + b"x" * (longest + 100))
    rejected = called(capsys, "import", file, "--store", tmp_path / "other.db")

    assert (taken.code, rejected.code) == (0, 2)
    assert "a line is longer than" in rejected.err


@pytest.mark.parametrize("kind", ["folder", "missing", "link to itself", "link to nothing"])
def test_a_file_without_lines_is_one_error(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No store is created."""
    at, store = tmp_path / "at", tmp_path / "to.db"
    match kind:
        case "folder":
            at.mkdir()
        case "link to itself":
            at.symlink_to(at)
        case "link to nothing":
            at.symlink_to(tmp_path / "nothing")
    answer = called(capsys, "import", at, "--store", store)

    assert (answer.code, answer.err.count("\n"), "Traceback" in answer.err) == (2, 1, False)
    assert not store.exists()


def test_secrets_in_imported_lines_are_not_shown(
    lines: Lines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists and explanations redact them. The stored events keep their bytes, for their digests."""
    secret = "ghp" + "_" + "k9" * 18
    run = json.loads(lines[1])["run"]
    run["spec"]["prompt"] = f"use {secret}"
    planted = fourth([lines[0], json.dumps({"run": run}).encode() + b"\n", *lines[2:]], tool_name=f"use {secret}")
    path = tmp_path / "to.db"
    imported(path, planted)
    commands = (["runs"], ["runs", "--json"], ["explain", run["run_id"]], ["show", run["run_id"]])
    shown = [called(capsys, *command, "--store", path).out for command in commands]

    assert [secret in text for text in shown] == [False] * 4
    assert all(shown)
    assert secret.encode() not in exported(path)[1]
    assert [json.loads(line) for line in exported(path)[3:]] == [json.loads(line) for line in planted[3:]]
