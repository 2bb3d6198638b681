"""The exit code of each error is a promise to scripts."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from proctor.adapters.cli.exits import code_of
from proctor.policies.errors import EventError, ProctorError
from proctor.supervisor.errors import StoreError, StoreErrorKind, UnknownSessionError

ROOT = Path(__file__).parents[3]
DEFINES_ERRORS = re.compile(r"^class \w+\(\w*Error\b", re.MULTILINE)
EXITS = {
    "bad_event": 2,
    "bad_policy": 2,
    "unjudgeable_line": 2,
    "policy_violation": 1,
    "bad_usage": 2,
    "approval_closed": 2,
    "not_installed": 3,
    "starts_blocked": 3,
    "owner_lost": 3,
    "store_error": 3,
    "provider_error": 3,
    "provider_unavailable": 3,
    "unknown_session": 3,
    "tool_refused": 1,
    "bad_trace": 2,
    "not_found": 2,
    "conflict": 2,
    "too_large": 2,
    "too_many_tries": 2,
}
OF_STORES = {
    **dict.fromkeys(("not_a_store", "newer_schema", "older_schema", "run_exists"), 2),
    **dict.fromkeys(("truncated", "corrupt", "gone", "unwritable", "bad_record", "closed", "no_run", "run_over"), 3),
    **dict.fromkeys(("started", "claimed", "session_busy", "fenced", "no_approval", "answered", "other_input"), 3),
    **dict.fromkeys(("not_allowed", "no_command", "conflict", "call_started", "forked"), 3),
}


def below(kind: type[ProctorError]) -> Iterator[type[ProctorError]]:
    """The subclasses of this one that this project defines, at any depth; not those made of an event log."""
    for each in kind.__subclasses__():
        module = each.__module__
        if module.startswith("proctor.") and getattr(sys.modules[module], each.__name__, None) is each:
            yield each
        yield from below(each)


def test_every_error_has_the_promised_exit_code() -> None:
    """A new error needs a line here. Removing one, or changing its meaning, breaks scripts."""
    for path in (path for row in ("policies", "supervisor", "adapters") for path in (ROOT / row).rglob("*.py")):
        if DEFINES_ERRORS.search(path.read_text()):
            importlib.import_module(".".join(("proctor", *path.relative_to(ROOT).with_suffix("").parts)))

    assert {kind.code: code_of(kind.__new__(kind)) for kind in below(ProctorError)} == EXITS


def test_every_kind_of_store_error_has_the_promised_exit_code() -> None:
    """Bad input if the file is no store of this version, or the run exists already."""
    assert {kind: code_of(StoreError("x", kind=kind)) for kind in get_args(StoreErrorKind)} == OF_STORES


def test_an_invalid_event_of_an_agent_is_the_agents_failure() -> None:
    """An event that can't be decoded is bad input only in a file from the user."""
    error = EventError("x")
    error.partial = "a result"  # type: ignore[attr-defined]  # as the end of a run has it

    assert (code_of(EventError("x")), code_of(error)) == (2, 3)


@pytest.mark.parametrize(("base", "code"), [(UnknownSessionError, 3), (ProctorError, 2)])
def test_an_error_of_a_third_party_adapter_exits_as_its_base_class(base: type[ProctorError], code: int) -> None:
    """Its own `code` is not in the table."""
    own: type[ProctorError] = type("OwnError", (base,), {"code": "own"})

    assert code_of(own.__new__(own)) == code
