"""Checks callers' arguments before anything starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.policies.events.calls import UNREADABLE
from proctor.policies.events.run_context import RunContext
from proctor.policies.values.foreign_code import isolated
from proctor.policies.values.json_values import json_words

from .errors import UsageError


def check_store(store: object) -> None:
    """Raises UsageError for anything that is not a store."""
    if isinstance(store, type) or not hasattr(store, "append"):
        raise UsageError(f"`store` is {_named(store)}, not a store; for example `SQLiteStore(path)`")


def check_adapter(adapter: object) -> None:
    """Raises UsageError for anything that is not an adapter."""
    if isinstance(adapter, type) or not isolated(hasattr, adapter, "capabilities"):
        raise UsageError(f"`adapter` is {_named(adapter)}, not an adapter; for example `ShellAdapter()`")


def check_text(**given: object) -> None:
    """Raises UsageError, naming the argument, for anything that is not text."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"`{name}` is {_named(value)}, not text")


def check_count(name: str, given: object) -> None:
    """Raises UsageError for anything that is not a whole number from 1."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(f"{name} is {given!r}; it must be a whole number from 1")


def check_named(**given: object) -> None:
    """Raises UsageError for anything that is not text, and for an empty name; None stands for a name not given."""
    for name, value in given.items():
        if value is not None:
            check_text(**{name: value})
        if value == "":
            raise UsageError(f"`{name}` is empty; leave it out, or name one")


def check_observers(approver: object, publishers: object) -> None:
    """Raises UsageError for what cannot be called."""
    if approver is not None and not callable(approver):
        raise UsageError(f"`approver` is {_named(approver)}, not a function")
    for publisher in publishers if isinstance(publishers, list | tuple) else [None]:
        if not callable(publisher):
            raise UsageError("`publishers` is a list of functions that are called with each event")
        if any(map(inspect.iscoroutinefunction, (publisher, getattr(publisher, "__call__", None)))):  # noqa: B004
            raise UsageError("a publisher is called, not awaited: give a plain function, not an `async def`")


def check_order(prompt: object, context: object, metadata: object = None) -> None:
    """Raises UsageError for a prompt that is not text, a context that is not a RunContext, metadata that is not a
    mapping.
    """
    check_text(prompt=prompt)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise UsageError(f"`metadata` is {_named(metadata)}, not a mapping")
    if context is not None and not isinstance(context, RunContext):
        raise UsageError(f"`context` is {_named(context)}, not a `RunContext`")


def recordable(name: str, given: object) -> Any:
    """The argument as JSON gives it back. Raises UsageError for one that no record can hold."""
    try:
        return msgspec.json.decode(msgspec.json.encode(given))
    except UNREADABLE as error:
        raise UsageError(f"`{name}` cannot be recorded: {json_words(error)}") from None


def check_cursor(after: object) -> None:
    """Raises UsageError for anything that is not a place in a session."""
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        shown = f"`{after}`" if isinstance(after, int | str) else _named(after)
        raise UsageError(f"`after` is {shown}; it is the `seq` of the last event seen, a whole number from 0")


def _named(value: object) -> str:
    if value is None:
        return "None"
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a value of type `{type(value).__name__}`"
