"""Wrong locations of the store, and users without a name."""

import os
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.kit.values import login_name
from proctor.adapters.stores import open_store
from proctor.supervisor.errors import UsageError

NOBODY = 10_001
"""A user without a name in the system, as in containers."""


@pytest.mark.parametrize(("url", "message"), [
    ("mysql://ana:secret-word@db/x", "no store is kept at `mysql://...`; a store is a file or postgresql://..."),
    ("https://ops.example/runs.db", "no store is kept at `https://...`"),
    ("postgresql+psycopg://db/x", "no store is kept at `postgresql+psycopg://...`"),
    ("sqlite:///runs.db", "no store is kept at `sqlite://...`; name the file itself"),
])  # fmt: skip
@pytest.mark.parametrize(
    "command", [("runs",), ("approvals",), ("tail", "--follow"), ("serve",), ("audit", "verify")]
)
def test_a_url_of_something_else_is_no_store(cli: Any, place: Path, command: Any, url: str, message: str) -> None:
    """It is not read as the path of a missing file, and its password is not shown."""
    answer = cli(*command, "--store", url)

    assert (answer.code, message in answer.err) == (2, True), answer
    assert "secret-word" not in answer.err
    assert list(place.glob("*:*")) == []
    with pytest.raises(UsageError, match="no store is kept at"):
        open_store(url)


def test_a_misspelt_parameter_of_a_url_is_named(cli: Any) -> None:
    """The password in the URL is not."""
    pytest.importorskip("psycopg")
    answer = cli("runs", "--store", "postgresql://ana:secret-word@db/x?sslmod=require")

    assert answer.code == 2
    assert answer.err.startswith("error: the store's URL has an unknown parameter `sslmod`; use `postgresql://")
    assert "secret-word" not in answer.err


READING = [("runs",), ("approvals",), ("tail",), ("budgets",), ("reap",), ("prune", "--older-than", "1d")]


@pytest.mark.parametrize("command", [
    *(*READING, ("store",), ("watch",), ("show", "last"), ("explain", "last"), ("audit", "verify"), ("export",)),
    *(("tail", "--run", "x"), ("approve", "x.1"), ("kill", "--all"), ("hook", "--explain-last")),
])  # fmt: skip
def test_a_missing_store_that_was_named_is_reported(cli: Any, place: Path, command: Any) -> None:
    """It may be a typo. If the default store is missing, nothing has run yet."""
    named = cli(*command, "--store", "rums.db")

    assert (named.code, named.out) == (2, "")
    assert named.err.startswith("error: there is no store at `rums.db`; ")
    assert not (place / "rums.db").exists()


@pytest.mark.parametrize("command", [*READING, ("watch",), ("store",), ("hook", "--explain-last")])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_missing_default_store_is_an_empty_one(cli: Any, place: Path, command: Any, form: Any) -> None:
    """Nothing is listed, and no store is created."""
    answer = cli(*command, *form)

    assert (answer.code, answer.err.startswith("error")) == (0, False)
    assert command[0] in ("watch", "hook") or answer.out == ""
    assert not (place / "state" / "proctor" / "runs.db").exists()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a name and a home directory, as in a container with an arbitrary uid."""
    for variable in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_STATE_HOME", "PROCTOR_STORE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)


def test_a_user_without_a_name_is_recorded_by_their_uid(nobody: None) -> None:
    assert login_name() == f"uid {NOBODY}"


def test_without_a_home_the_error_says_what_to_set(cli: Any, nobody: None) -> None:
    """Instead of an error of Python's."""
    answer = cli("runs")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: you have no home directory; set XDG_STATE_HOME, or name the store: `--store`\n"
