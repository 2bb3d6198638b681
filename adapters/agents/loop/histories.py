"""The exact conversations of sessions that ran in this process, as their framework keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from proctor.policies.stream.events import Event

T = TypeVar("T")


class Histories(Generic[T]):
    """What the latest sessions ended with; a session that continued elsewhere is forgotten."""

    KEPT = 256

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, list[T]]] = {}

    def keep(self, session_id: str, run_id: str, items: Sequence[T]) -> None:
        """Note what a session's run ended with."""
        self._kept.pop(session_id, None)
        self._kept[session_id] = (run_id, list(items))
        while len(self._kept) > self.KEPT:
            del self._kept[next(iter(self._kept))]

    def find(self, session_id: str, transcript: Sequence[Event]) -> list[T] | None:
        """The conversation of these events, if the last run among them is the last that was kept."""
        last = next((event.run_id for event in reversed(transcript) if event.run_id), None)
        run_id, items = self._kept.get(session_id, (None, []))
        return list(items) if run_id is not None and run_id == last else None
