"""How many messages of one run are recorded, and how large they may be together."""

from __future__ import annotations

import msgspec

from proctor.policies.events import (
    USER_MESSAGES_FULL,
    ErrorOccurred,
    Event,
    MessageEvent,
    MessageStreamed,
)

from .validation import MOST_BYTES, weight

MESSAGES_FULL = "messages_full"


class MessageBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a run are recorded, and about how many bytes; those of users count by themselves."""

    messages: int = 50_000
    bytes: int = 32 * 1024 * 1024


BOUNDS = MessageBounds()


class MessageCounts:
    """A run's recorded messages, counted by the code of the event that reports the bound."""

    __slots__ = ("_bounds", "_full", "_used")

    def __init__(self, bounds: MessageBounds) -> None:
        self._bounds = bounds
        self._used: dict[str, tuple[int, int]] = {}
        self._full: set[str] = set()

    def recorded_for(self, event: MessageEvent | MessageStreamed) -> Event | None:
        """The records for a message: the message, once the event that says the bound is reached, or nothing."""
        code = USER_MESSAGES_FULL if event.role == "user" else MESSAGES_FULL
        if code in self._full:
            return None
        messages, size = self._count(code, event)
        if messages <= self._bounds.messages and size <= self._bounds.bytes:
            return event
        self._full.add(code)
        whose = "users" if code == USER_MESSAGES_FULL else "the agent"
        bounds = f"{self._bounds.messages:,} messages and {self._bounds.bytes:,} bytes of them"
        return ErrorOccurred(
            code=code, message=f"no more messages of {whose} are recorded in this run: it may record {bounds}"
        )

    def recall(self, event: Event) -> None:
        """Count what the run's record holds."""
        if isinstance(event, MessageEvent | MessageStreamed):
            self._count(USER_MESSAGES_FULL if event.role == "user" else MESSAGES_FULL, event)
        elif isinstance(event, ErrorOccurred) and event.code in (USER_MESSAGES_FULL, MESSAGES_FULL):
            self._full.add(event.code)

    def _count(self, code: str, event: Event) -> tuple[int, int]:
        messages, size = self._used.get(code, (0, 0))
        self._used[code] = used = messages + 1, size + min(weight(event), MOST_BYTES)
        return used
