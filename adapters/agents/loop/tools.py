"""Functions that ask the gate before each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import anyio.to_thread

from proctor.supervisor.errors import UsageError

from .errors import ToolRefused
from .inputs import Arguments

OnRefusal: TypeAlias = Literal["raise", "tell"]
Proposing: TypeAlias = Callable[[str, dict[str, Any], Callable[[dict[str, Any]], Awaitable[Any]]], Awaitable[Any]]
"""Proposes a call by name and input and, if it is allowed, does it; raises ToolRefused if not."""


def asking(
    function: Callable[..., Any], *, name: str | None, refused: OnRefusal, call: Proposing
) -> Callable[..., Awaitable[Any]]:
    """The function, to be awaited, proposing each of its calls. See `LoopGate.tool`."""
    tool_name = name or getattr(function, "__name__", "")
    if not tool_name:
        raise UsageError("the function has no name; use `gate.tool(name=...)`")

    @functools.wraps(function)
    async def proposed(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(function, args, kwargs)

        async def act(tool_input: dict[str, Any]) -> Any:
            arguments.change(tool_input)
            return await _result(function, arguments)

        try:
            return await call(tool_name, arguments.as_input(), act)
        except ToolRefused as refusal:
            if refused == "raise":
                raise
            return refusal.tell_model

    return proposed


async def _result(function: Callable[..., Any], arguments: Arguments) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments.args, **arguments.kwargs)
    bare = functools.partial(function, *arguments.args, **arguments.kwargs)
    result = await anyio.to_thread.run_sync(bare, abandon_on_cancel=True)
    return await result if isinstance(result, Awaitable) else result
