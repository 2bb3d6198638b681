"""Subscribers that leave, come back and continue from their cursor: each gets every event once."""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from proctor.policies.events import Event, RecordPruned
from proctor.supervisor import ProctorError
from proctor.supervisor.watch.subscriptions import Subscription, Subscriptions

from .plans import Plan, Subscriber

CATCH_UP_S = 30.0
SOON_S = 5.0


class Follower:
    """One subscriber.

    Args:
        subscriber: what it follows, and for how long at a time.
        found: gets the violated invariants.
    """

    def __init__(self, subscriber: Subscriber, found: list[str]) -> None:
        self.subscriber = subscriber
        self._found = found
        self._cursor: int | str = "start"
        self._seen: Counter[str] = Counter()
        self._is_over = False
        self._since = math.inf

    async def follow(self, subscribe: Callable[..., Subscription]) -> None:
        """Leave and come back until no more events come."""
        while not self._is_over:
            with suppress(ProctorError), anyio.move_on_after(self.subscriber.stays_s):
                await self._take(subscribe, self.subscriber.takes)
            await anyio.sleep(self.subscriber.every_s)

    async def catch_up(self, store: Any) -> None:
        """Follow in another process once nothing is stored any more: then every stored event was delivered."""
        with suppress(ProctorError), anyio.move_on_after(CATCH_UP_S):
            await self._take(Subscriptions(store).subscribe, 0)
        self._check(await self._last(store))

    async def check_timely(self, store: Any) -> None:
        """An active subscriber gets stored events soon."""
        now, last = anyio.current_time(), await self._last(store)
        await anyio.sleep(SOON_S)
        if self._since <= now:
            self._check(last)

    async def _last(self, store: Any) -> dict[str, int]:
        return {entry.session_id: entry.seq async for entry in store.log() if self._is_of(entry)}

    def _check(self, last: dict[str, int]) -> None:
        if missed := {session: seq for session, seq in last.items() if self._seen[session] < seq}:
            self._found.append(f"a follower of {self._scope} saw {dict(self._seen)}, and there are {missed}")

    @property
    def _scope(self) -> dict[str, str]:
        what = self.subscriber.what
        return {} if not what else {"session_id" if what.startswith("s") else "run_id": what}

    def _is_of(self, entry: Any) -> bool:
        return all(getattr(entry, name) == value for name, value in self._scope.items())

    async def _take(self, subscribe: Callable[..., Subscription], most: int) -> None:
        async with subscribe(**self._scope, after=self._cursor) as events:
            self._since = anyio.current_time()
            try:
                async for event in events:
                    self._see(event)
                    most -= 1
                    if not most:
                        return
            finally:
                self._cursor = events.cursor
                self._since = math.inf
        self._is_over = "run_id" in self._scope

    def _see(self, event: Event) -> None:
        before = self._seen[event.session_id]
        follows = event.seq == before + 1 or "run_id" in self._scope or isinstance(event, RecordPruned)
        if event.seq <= before or not follows:
            self._found.append(f"a follower of {self._scope} saw {event.session_id}/{event.seq} after {before}")
        self._seen[event.session_id] = event.seq


def followers_of(plan: Plan, found: list[str]) -> list[Follower]:
    """The subscribers of a plan."""
    return [Follower(subscriber, found) for subscriber in plan.subscribers]
