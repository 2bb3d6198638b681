"""The latest stored events, read from the end, as many as it takes to show so many lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.policies.stream.events import ToolEvent
from proctor.supervisor.store.codec import event_of
from proctor.supervisor.store.paging import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from proctor.policies.stream.events import Event
    from proctor.supervisor.ports.adapters import RunInfo, Store


class Latest:
    """Events that make `lines` lines, and calls that they may be about; `cursor` is the place after the last."""

    def __init__(self, lines: int, shows: Callable[[Event], bool]) -> None:
        self.cursor: int | str = 0
        self._left = lines
        self._shows = shows
        self._found: list[Event] = []

    async def of_run(self, store: Store, run: RunInfo) -> list[Event]:
        """Of one run, oldest first."""
        async with closing(store.read(run.session_id, run_id=run.run_id, newest_first=True)) as events:
            async for event in events:
                self.cursor = self.cursor or event.seq
                if not self._take(event):
                    break
        return self._found[::-1]

    async def of_all(self, store: Store) -> list[Event]:
        """Of the whole store, in the order in which they were stored."""
        place = await store.place()
        self.cursor = str(place)
        first = True
        async with closing(store.log(newest_first=True)) as entries:
            async for entry in entries:
                if first:
                    self.cursor, first = str(msgspec.structs.replace(place, position=entry.position)), False
                if not self._take(event_of(entry)):
                    break
        return self._found[::-1]

    def _take(self, event: Event) -> bool:
        """Take an event, the next one before; whether one more is wanted."""
        shown = self._shows(event)
        if shown:
            self._left -= 1
        if self._left < 0:
            return False
        if shown or isinstance(event, ToolEvent):
            self._found.append(event)
        return True


async def following(store: Store, run: RunInfo | None, cursor: int | str) -> AsyncIterator[Event]:
    """What is stored after the cursor, as it comes; of a run until its end."""
    from proctor.supervisor.watch.subscriptions import Subscriptions

    async with Subscriptions(store).subscribe(run_id=run.run_id if run else None, after=cursor) as events:
        async for event in events:
            yield event
