"""Handing stored events to observers, who cannot hurt a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.policies.stream.events import Event

from ..log import failure
from ..ports.adapters import Publisher


class Publishers:
    """The observers; one that raises is dropped, reported and counted."""

    def __init__(self, publishers: Sequence[Publisher], log: Any) -> None:
        self._publishers = list(publishers)
        self._log = log
        self.dropped = 0

    def publish(self, events: list[Event]) -> None:
        """Hand events to each observer, in order."""
        for publisher in list(self._publishers):
            try:
                for event in events:
                    publisher(event)
            except BaseException as error:  # it waits for nothing, so this is no cancel of ours
                self._publishers.remove(publisher)
                self.dropped += 1
                self._log.error("publisher.dropped", publisher=repr(publisher), **failure(error))
