"""From the store's events to deliveries: in order, one at a time, from a cursor that is kept.

The cursor moves when an event has arrived, so that each event arrives at least once, whatever dies in between; a
receiver recognises a repeated event by its id. Without a cursor, sending begins with new events.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import anyio
import httpx

from proctor.supervisor.errors import StoreError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.watch.subscriptions import Subscription, Subscriptions

from .cursor import CursorFile
from .delivery import Courier
from .target import Target

KEPT_EVERY = 1_000
"""Events that are passed over without being sent, after which the place is kept all the same."""
STORE_PAUSE_S = 1.0


async def send(store: Store, target: Target, cursor: CursorFile) -> None:
    """Send events until cancelled, or until the receiver wants no more.

    Raises UsageError when the cursor is of another store.
    """
    log = logger(webhook=urlsplit(target.url).netloc)
    subscriptions = Subscriptions(store)
    after = cursor.read()
    async with httpx.AsyncClient(follow_redirects=False, timeout=None, trust_env=False) as client:
        while True:
            try:
                async with subscriptions.subscribe(after=after or 0) as events:
                    place = str(events.cursor)
                    cursor.write(place)
                    courier = Courier(target, place.rpartition(".")[0], client, log)
                    return await _send(events, target, cursor, courier)
            except StoreError as error:
                if error.kind == "closed":
                    return
                log.warning("webhook.store_unreadable", why=str(error))
                await anyio.sleep(STORE_PAUSE_S)
            after = cursor.read()


async def _send(events: Subscription, target: Target, cursor: CursorFile, courier: Courier) -> None:
    passed = 0
    async for event in events:
        if event.type in target.types:
            if await courier.deliver(event) == "gone":
                return
            passed = KEPT_EVERY
        passed += 1
        if passed >= KEPT_EVERY:
            cursor.write(str(events.cursor))
            passed = 0
