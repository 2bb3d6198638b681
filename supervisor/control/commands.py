"""Instructions for the runs of this process from any process: an approval's answer, or a cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from proctor.policies.values.foreign import error_text

from ..errors import StoreError
from ..ports.adapters import Store
from ..ports.orders import Instruction
from ..run.foreign.isolation import contained

LONGEST_WAIT_S = 60.0
PAUSE_S = 0.02
"""The least time between two looks at a busy store."""
RETRY_S = 1.0


class CommandReader:
    """Reads a store's instructions and delivers each once, in order."""

    def __init__(self, store: Store, deliver: Callable[[Instruction], None], log: Any) -> None:
        self._store = store
        self._deliver = deliver
        self._log = log
        self._after = 0
        self._token = 0
        self._closed = False

    async def run(self, after: int) -> None:
        """Deliver what has a number > after, until cancelled or the store is closed; one that cannot be read is tried
        again.
        """
        self._after = after
        while not self._closed:
            try:
                await contained(self._wait)
            except Exception as error:  # it must not end any run of this process
                self._closed = isinstance(error, StoreError) and error.kind == "closed"
                if not self._closed:
                    self._log.warning("instructions.unreadable", error=error_text(error))
                    await anyio.sleep(RETRY_S)
            await anyio.sleep(PAUSE_S)

    async def _wait(self) -> None:
        token = await self._store.wait(self._token, LONGEST_WAIT_S)
        instructions = await self._store.instructions(after=self._after)
        self._token = token  # only now: what could not be read is not waited for again
        for instruction in instructions:
            self._after = instruction.number
            try:
                self._deliver(instruction)
            except Exception as error:  # whoever wrote it, it must not end any run of this process
                self._log.error("instruction.undeliverable", number=instruction.number, error=error_text(error))
