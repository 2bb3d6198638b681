"""Whether a store gave back what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from proctor.policies.stream.events import Event

from ...errors import StoreError
from ...store.admission import same_but_seq


def check_stored(given: Sequence[Event], stored: Sequence[Event]) -> None:
    """Raises StoreError for a store that gives back other events than it was given, but for their `seq`.

    Of a repeated `event_id` it gives the event that it stored before.
    """
    if len(stored) != len(given):
        raise StoreError(f"the store gave back {len(stored)} events of {len(given)}; nothing of it is believed")
    if all(map(is_, given, stored)):  # as almost always
        return
    for event, back in zip(given, stored, strict=True):
        if back is event or (event.event_id and event.event_id == back.event_id):
            continue
        if not same_but_seq(back, event):
            raise StoreError(f"the store gave back another event than `{event.type}`; nothing of it is believed")
