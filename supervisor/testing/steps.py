"""What a fake agent does, one step after another. An event among the steps is reported as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from proctor.policies.stream.events import Event


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Propose one call. If it may run, it returns `output` or fails with `error`.

    `ungated`: run it without asking the gate, like a client that cannot hold this call. `first` is
    awaited before it asks, `meanwhile` while the call runs.
    """

    name: str
    input: dict[str, Any] = {}
    id: str = ""
    turn: int = 0
    output: Any = "done"
    error: str | None = None
    ungated: bool = False
    first: Callable[[], Awaitable[object]] | None = None
    meanwhile: Callable[[], Awaitable[object]] | None = None


class Together(msgspec.Struct, frozen=True):
    """Propose several calls at once."""

    asks: tuple[Ask, ...]


class Pause(msgspec.Struct, frozen=True):
    """Do nothing for some seconds, or until interrupted; without a number, for ever."""

    seconds: float | None = None


class Crash(msgspec.Struct, frozen=True):
    """Fail like a client: the stream of events raises this."""

    error: Exception


class Stop(msgspec.Struct, frozen=True):
    """End the stream of events without saying how it ended."""


Step: TypeAlias = Event | Ask | Together | Pause | Crash | Stop
