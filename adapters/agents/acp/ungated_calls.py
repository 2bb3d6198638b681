"""Calls that run though no question comes for them: noticed when they have been in progress for some time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.abc

from ...kit.event_stream import EventStream
from .calls import AcpCall
from .translation import AcpTranslation


class UngatedCalls:
    """Watches calls that are in progress; `over` once the prompt is.

    Args:
        translation: what the agent said so far.
        stream: where such a call is reported.
        patience_s: seconds after which a call counts as running unasked; agents ask one at a time, so those in
            which another question is open do not count.
    """

    def __init__(self, translation: AcpTranslation, stream: EventStream, *, patience_s: float) -> None:
        self._translation = translation
        self._stream = stream
        self._patience_s = patience_s
        self._questions = 0
        self._no_question = anyio.Event()
        self._watched: set[str] = set()
        self.over = False

    @contextmanager
    def question(self) -> Iterator[None]:
        """A question of the agent's is open."""
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._no_question.set()
                self._no_question = anyio.Event()

    def watch(self, call_id: str, tasks: anyio.abc.TaskGroup) -> None:
        """The agent says that a call is in progress."""
        call = self._translation.calls.get(call_id)
        if call is not None and call_id not in self._watched and not (call.proposals or call.over or call.reported):
            self._watched.add(call_id)
            tasks.start_soon(self._report, call)

    async def _report(self, call: AcpCall) -> None:
        while True:
            await anyio.sleep(self._patience_s)
            if call.proposals or call.over or self.over:
                return
            if not self._questions:
                break
            await self._no_question.wait()
        self._stream.post(*self._translation.ungated(call))
