"""What callers pass, checked before anything starts."""

from __future__ import annotations

from proctor.policies.calls import RunContext

from .errors import UsageError


def check_store(store: object) -> None:
    """Raises UsageError for what is no store."""
    if not hasattr(store, "append"):
        raise UsageError(f"`store` is {_named(store)}, not a store; say for example `SQLiteStore(path)`")


def check_adapter(adapter: object) -> None:
    """Raises UsageError for what is no adapter."""
    if isinstance(adapter, type) or not hasattr(adapter, "capabilities"):
        raise UsageError(f"`adapter` is {_named(adapter)}, not an adapter; say for example `ShellAdapter()`")


def check_order(prompt: object, context: object) -> None:
    """Raises UsageError for a prompt that is no text, or a context that is none."""
    if not isinstance(prompt, str):
        raise UsageError(f"`prompt` is {_named(prompt)}, not text")
    if context is not None and not isinstance(context, RunContext):
        raise UsageError(f"`context` is {_named(context)}, not a `RunContext`")


def check_cursor(after: object) -> None:
    """Raises UsageError for what is no place in a session."""
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        shown = f"`{after}`" if isinstance(after, int | str) else _named(after)
        raise UsageError(f"`after` is {shown}; it is the `seq` of the last event seen, a whole number from 0")


def _named(value: object) -> str:
    if value is None:
        return "None"
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a value of type `{type(value).__name__}`"
