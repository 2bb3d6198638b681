"""The kinds of a store's errors."""

from __future__ import annotations

from typing import get_args

from proctor.supervisor.errors import StoreErrorKind

from .markdown import code, table

MEANINGS: dict[StoreErrorKind, str] = {
    "unwritable": "the store can't be reached, or can't be written",
    "not_a_store": "the file or database is another program's",
    "newer_schema": "a newer proctor wrote the store",
    "older_schema": "the store is of a version that this use of it can't read",
    "truncated": "the file was cut short",
    "corrupt": "what is stored can't be read",
    "gone": "the store was removed, or an older copy took its place, while it was in use",
    "closed": "this program has closed the store",
    "forked": "the store was opened before this process was forked",
    "bad_record": "an event or a run can't be stored",
    "conflict": "something else is stored in this place",
    "run_exists": "the run's id is taken",
    "no_run": "there is no such run",
    "run_over": "the run has ended",
    "started": "the run was started before",
    "claimed": "the run has an owner that is alive",
    "session_busy": "another run of the session is active",
    "fenced": "another owner has the run now",
    "call_started": "the call was started before, and isn't over",
    "no_approval": "there is no such approval",
    "answered": "the approval is closed",
    "other_input": "the approval was requested for another input",
    "not_allowed": "this person may not answer, or not for so much",
    "no_command": "a kill command can't be read",
}


def store_kinds(_: str) -> str:
    """What each means. Raises KeyError for one that nobody has explained."""
    return table(["kind", "means"], ([code(kind), MEANINGS[kind]] for kind in get_args(StoreErrorKind)))
