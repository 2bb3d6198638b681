"""The latest events of a run, for its result: a bound on their number and on their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.policies.stream.events import Event

MOST = 10_000
MOST_BYTES = 64 * 1024 * 1024


class KeptEvents:
    """What was stored last, in the batches it was stored in. `before` counts what was stored before that; the store
    has it.
    """

    __slots__ = ("_batches", "_bytes", "_count", "_gone", "before")

    def __init__(self) -> None:
        self._batches: list[tuple[Sequence[Event], int]] = []  # a deque takes 0.7 KiB of each idle run
        self._gone = 0
        self._bytes = 0
        self._count = 0
        self.before = 0

    def add(self, events: Sequence[Event], size: int) -> None:
        """Keep a batch that was just stored, of that many bytes, and drop the oldest beyond the bounds."""
        self._batches.append((events, size))
        self._count += len(events)
        self._bytes += size
        while len(self._batches) > self._gone + 1 and self._too_much():
            gone, its_size = self._batches[self._gone]
            self._batches[self._gone] = (), 0
            self._gone += 1
            self._count -= len(gone)
            self._bytes -= its_size
            self.before += len(gone)
        if self._gone > len(self._batches) // 2:  # many at a time
            del self._batches[: self._gone]
            self._gone = 0

    def _too_much(self) -> bool:
        return self._bytes > MOST_BYTES or self._count - len(self._batches[self._gone][0]) >= MOST

    def latest(self) -> tuple[Event, ...]:
        """Those that are kept, oldest first."""
        kept = [event for events, _ in self._batches for event in events]
        self.before += max(len(kept) - MOST, 0)
        latest = kept[-MOST:]
        self._batches, self._gone = [(latest, self._bytes)], 0
        self._count = len(latest)
        return tuple(latest)
