"""Handing stored events to observers, who cannot hurt a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.policies.stream.events import Event
from proctor.policies.values.foreign import error_text, isolated

from ..log import failure
from ..ports.adapters import Publisher
from ..run.foreign.isolation import pass_on


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
                    isolated(publisher, event)
            except Exception as error:
                self._publishers = [one for one in self._publishers if one is not publisher]
                self.dropped += 1
                self._log.error("publisher.dropped", publisher=error_text(publisher), **failure(error))
            except BaseException as ctrl_c:  # it hit while this observer was called
                pass_on(ctrl_c)
