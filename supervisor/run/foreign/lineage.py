"""Which run the code that an agent runs is part of, so that what it starts is known as its sub-run."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import msgspec

from proctor.policies.stream.calls import RunContext

from ...ports.adapters import Store


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run passes on to those that its agent starts.

    Attributes:
        run_id: The run.
        store: Where it draws on budgets.
        compiled: Its compiled policy.
        context: Its context.
        thread: The thread of its event loop.
    """

    run_id: str
    store: Store
    compiled: Any
    context: RunContext
    thread: int = msgspec.field(default_factory=threading.get_ident)


_parent: ContextVar[Parent | None] = ContextVar("parent", default=None)


def parent() -> Parent | None:
    """The run that this task or thread works for, where it has budgets to pass on."""
    return _parent.get()


def work_for(run: Parent | None) -> None:
    """What this task starts from now on works for that run."""
    if _parent.get() is not run:
        _parent.set(run)
