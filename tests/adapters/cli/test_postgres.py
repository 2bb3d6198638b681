"""The command line with a PostgreSQL store: every command accepts its URL, and shows no password."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from postgres_server import VARIABLE, needs_postgres, new_database, server_url

pytestmark = needs_postgres


@pytest.fixture
def url() -> Iterator[str]:
    with new_database() as found:
        yield found


@pytest.fixture(autouse=True)
def _here(place: Path) -> None:
    """In an empty directory, with a store of its own."""


def test_events_recorded_by_one_command_are_read_by_the_others(
    cli: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo, then the lists, the session, its size, its integrity, its lines; the variable may be a URL.

    Their owner creates the tables before anyone else reads them.
    """
    assert "`proctor store --make` creates one" in cli("store", "--store", url).err
    made = cli("store", "--make", "--store", url, "--json")
    assert (made.code, made.lines[0]["runs"]) == (0, {})
    with monkeypatch.context() as named:
        named.setenv("PROCTOR_STORE", url)
        assert cli("runs").code == 0
        assert cli("demo").code == 0
    [run] = cli("runs", "--store", url, "--json").lines
    shown = cli("show", "last", "--store", url)
    size = cli("store", "--store", url, "--json").lines[0]
    verified = cli("audit", "verify", "--store", url)
    head = cli("audit", "head", "--store", url)

    assert run["status"] == "cancelled"
    assert (shown.code, run["run_id"] in shown.out) == (0, True)
    assert (size["runs"], size["events"] > 5) == ({"cancelled": 1}, True)
    assert (verified.code, "nothing is missing" in verified.out) == (0, True)
    assert head.code == 0
    assert cli("explain", "last", "--store", url).code == 0
    assert cli("tail", "--store", url).code == 0
    assert cli("approvals", "--store", url).code == 0
    assert cli("watch", "--store", url).code == 0
    assert cli("reap", "--store", url).code == 0
    assert cli("kill", "--lift", "--store", url).code == 0


def test_a_log_survives_export_to_a_database_and_back_byte_for_byte(cli: Any, url: str) -> None:
    """With its own numbers. Pruned sessions stay listed."""
    assert cli("demo", "--store", "a.db").code == 0
    assert cli("export", "--store", "a.db", "-o", "a.jsonl").code == 0
    assert cli("import", "a.jsonl", "--store", url).code == 0
    assert cli("export", "--store", url, "-o", "b.jsonl").code == 0
    assert Path("a.jsonl").read_bytes().partition(b"\n")[2] == Path("b.jsonl").read_bytes().partition(b"\n")[2]
    assert cli("prune", "--older-than", "0s", "--store", url).code == 0
    verified = cli("audit", "verify", "--store", url)

    assert (verified.code, "pruned: session" in verified.out) == (0, True), verified.out
    assert cli("runs", "--store", url, "--json").lines == []


def test_a_database_without_a_store_is_reported(cli: Any, url: str) -> None:
    """Read commands create no tables there."""
    for command in (("runs",), ("show", "last"), ("store",), ("audit", "verify"), ("prune", "--older-than", "1d")):
        ended = cli(*command, "--store", url)

        assert (ended.code, "there is no store at `postgresql://" in ended.err) == (2, True), (command, ended)
    assert cli("demo", "--store", url).code == 0


def test_an_error_in_a_url_is_reported_without_its_password(cli: Any) -> None:
    """A missing server, role or database, a wrong password, an invalid URL."""
    there = urlsplit(server_url())
    host = there.netloc.rpartition("@")[2]
    refused = "this role" if VARIABLE in os.environ else "does not let this role in with this password"
    for wrong, message in {
        "postgresql://ana:s3cret@127.0.0.1:1/x": "cannot be reached",
        there._replace(netloc=f"ana:s3cret@{host}").geturl(): refused,
        there._replace(netloc=f"postgres:s3cret@{host}", path="/nowhere").geturl(): "does not exist",
        "postgresql://ana:s3cret@host:port/x?%": "cannot be read",
        "postgresql://ana:s3cret@h/x?sslmode=s3cret": "s",
    }.items():
        answer = cli("runs", "--store", wrong)

        assert answer.code in (2, 3), answer
        assert message in answer.err
        assert "s3cret" not in answer.out + answer.err


def test_a_newer_store_is_not_touched(cli: Any, url: str) -> None:
    """The error has the supported version."""
    import psycopg

    assert cli("demo", "--store", url).code == 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE proctor.store SET version = 99")
    ended = cli("runs", "--store", url)

    assert (ended.code, "has schema version 99" in ended.err) == (2, True)
