"""A fleet is asked what a supervisor is: whatever one can be asked and the other not has its reason here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from proctor.adapters.fleet import Fleet, FleetHandle
from proctor.supervisor import RunHandle, Supervisor

LEFT_OUT: dict[Any, dict[str, str]] = {
    Supervisor: {
        "cancel_all": "a store's runs are not one caller's: `switch.kill` says by whom and of what, `everything` too",
        "claim": "a worker claims what it starts",
        "execute": "a worker executes what was put down",
        "statistics": "they are of one process; the runs of a store are counted by `store.size()`",
    },
    RunHandle: {
        "add_net": "its callables are of one process, and the run goes on in another",
        "cancel_for_approval": "it is about a call that the process of the run holds",
        "done": "the store is asked, so it is awaited: `info`",
        "released": "the agent is a worker's: nobody's event loop waits for it here",
        "remove_net": "as `add_net`",
        "resolve": "as `status`",
        "status": "the state of nets is in the process of the run",
    },
}
"""What only a supervisor, and its handle, can be asked, and why."""
ADDED: dict[Any, dict[str, str]] = {
    Fleet: {
        "drain": "of workers on a cluster",
        "handle": "runs outlive whoever put them down",
        "status": "of workers on a cluster",
        "up": "of workers on a cluster",
    },
    FleetHandle: {"info": "the store is asked, so it is awaited"},
}
"""What only a fleet, and its handle, can be asked, and why."""
OTHERWISE = {
    "approvals": "the store is asked, so it is awaited",
    "cancel": "an order to another process has somebody who gave it, and is awaited for so long",
    "start": "a run is put down as data, a `RunSpec`",
}
"""What both can be asked in other words, and why."""


def public(kind: type) -> set[str]:
    """What a class can be asked."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("here", "there"), [(Supervisor, Fleet), (RunHandle, FleetHandle)])
def test_what_one_can_be_asked_and_the_other_cannot_has_a_reason(here: type, there: type) -> None:
    """Whoever adds something to one of them adds it to the other, or says why not."""
    assert public(here) - public(there) == LEFT_OUT[here].keys()
    assert public(there) - public(here) == ADDED[there].keys()


@pytest.mark.parametrize(("here", "there"), [(Supervisor, Fleet), (RunHandle, FleetHandle)])
def test_what_both_can_be_asked_is_asked_in_the_same_words(here: type, there: type) -> None:
    """The same parameters with the same defaults, awaited or not; else it has a reason."""
    for name in (public(here) & public(there)) - OTHERWISE.keys() - {"run_id", "session_id"}:
        one, other = getattr(here, name), getattr(there, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name
        assert inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(other), name


def test_no_reason_is_given_for_what_is_the_same() -> None:
    """A reason that holds no more is taken out."""
    for name in OTHERWISE:
        one, other = next((getattr(a, name), getattr(b, name)) for a, b in PAIRS if hasattr(a, name))
        same = inspect.signature(one).parameters == inspect.signature(other).parameters
        assert not (same and inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(other)), name


PAIRS: tuple[tuple[Any, Any], ...] = ((Supervisor, Fleet), (RunHandle, FleetHandle))
