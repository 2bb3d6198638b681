"""What a run does about its record: it is written, hurried at the end, and asked for again where a store failed."""

from __future__ import annotations

from collections.abc import Callable

from proctor.policies.stream.events import Event

from ..log import RunLog
from ..machine.boundary import inputs
from ..machine.machine import RunMachine
from .foreign.isolation import contained, silence
from .journal import Journal
from .services import Services

HURRY_S = 5.0
"""So long does the cancel of a run wait for its record; what the store was asked for may still be stored."""
SILENCE_MS = 10_000
"""So long may a store leave an append unanswered while an agent acts that cannot be held."""


class RunRecorder:
    """Has the record of one run written, and feeds its machine what came of it.

    Args:
        machine: whose record it is.
        services: the store and the timers.
        epoch: of the run's owner.
        holds_all: whether the adapter holds every call: a store may then be silent for as long as it likes.
        feed: takes an input for the machine.
        now_ms: the moment.
        publish: gets what was stored, and about how many bytes it takes.
        log: is told of errors.
    """

    __slots__ = ("_feed", "_log", "_now_ms", "_silence", "journal")

    def __init__(
        self,
        machine: RunMachine,
        services: Services,
        epoch: int,
        *,
        holds_all: bool,
        feed: Callable[[inputs.Input], None],
        now_ms: Callable[[], int],
        publish: Callable[[list[Event], int], None],
        log: RunLog,
    ) -> None:
        self._feed = feed
        self._now_ms = now_ms
        self._log = log
        self._silence = None if holds_all else services.timers.alarm(self._silent)
        self.journal = Journal(
            services.store, machine, epoch=epoch, stored=self._stored, failed=self._failed, publish=publish
        )

    async def flush(self) -> None:
        """Write what waits, and what comes meanwhile."""
        self._expect_answer()
        await self.journal.flush()
        self.close()

    async def hurry(self) -> None:
        """The run is to end, and nobody waits for long for a store that does not answer now."""
        silent = await self.journal.drained(HURRY_S)
        if silent is not None:
            self._failed(silent)

    async def retry(self) -> None:
        """A store that failed is asked once more: the record should not lack its end."""
        refused = failed = None
        try:
            refused = await contained(self.journal.retry)
        except Exception as error:
            self._log.failed("store.incomplete", error)
            failed = error
        self._feed(inputs.Retried(now_ms=self._now_ms(), refused=refused, error=failed))

    def close(self) -> None:
        """The store has answered everything."""
        if self._silence is not None:
            self._silence.set(None)

    def _stored(self, count: int) -> None:
        self._expect_answer()
        self._feed(inputs.Stored(now_ms=self._now_ms(), count=count))

    def _failed(self, error: Exception) -> None:
        self._log.failed("store.failed", error)
        self._feed(inputs.StoreFailed(now_ms=self._now_ms(), error=error))

    def _expect_answer(self) -> None:
        """An agent that cannot be held goes on acting while the store is silent: that is bounded."""
        if self._silence is not None:
            self._silence.set(self._now_ms() + SILENCE_MS)

    def _silent(self, _: int) -> None:
        self._failed(silence(SILENCE_MS / 1000))
