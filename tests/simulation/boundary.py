"""The boundary between a supervisor, or people, and their store: slow, failing and late as the plan says."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from proctor.supervisor.errors import StoreError

from .plans import OPERATIONS, PEOPLES, Fault

STRETCH_S: Final = 5.0
_PASSED_ON: Final = ("read", "log", "session", "budgets", "prune", "size", "compact", "aclose")


class Boundary:
    """The store as one owner reaches it: each operation may fail."""

    def __init__(self, store: Any, faults: Sequence[Fault], latency: float, chance: random.Random) -> None:
        self._store = store
        self._latency = latency
        self._faults = {(fault.operation, fault.nth): fault for fault in faults}
        self._uses: Counter[str] = Counter()
        self._chance = chance
        self._in_stretch: Counter[int] = Counter()
        self.gone = False

    @property
    def busiest(self) -> int:
        """The most operations, except appends, in one period of `STRETCH_S`."""
        return max(self._in_stretch.values(), default=0)

    async def use(self, name: str, *args: Any, **options: Any) -> Any:
        await (anyio.sleep(self._chance.uniform(0, self._latency)) if self._latency else checkpoint())
        if self.gone:
            raise StoreError("the store is closed", kind="closed")
        self._uses[name] += 1
        self._in_stretch[int(anyio.current_time() // STRETCH_S)] += name != "append"
        fault = self._faults.get((name, self._uses[name]))
        if fault is None:
            return await getattr(self._store, name)(*args, **options)
        if fault.kind == "fails":
            raise StoreError("the disk is full", kind="unwritable")
        if fault.kind == "slow":
            await anyio.sleep(fault.seconds)
        given = await getattr(self._store, name)(*args, **options)
        if fault.kind == "late":
            await anyio.sleep(fault.seconds)
        if fault.kind == "unheard":
            raise StoreError("the connection was lost", kind="unwritable")
        return given


def _used(name: str) -> Any:
    async def operation(self: Boundary, *args: Any, **options: Any) -> Any:
        return await self.use(name, *args, **options)

    return operation


def _passed_on(name: str) -> Any:
    def operation(self: Boundary, *args: Any, **options: Any) -> Any:
        return getattr(self._store, name)(*args, **options)

    return operation


for _name in {*OPERATIONS, *PEOPLES}:
    setattr(Boundary, _name, _used(_name))
for _name in _PASSED_ON:
    setattr(Boundary, _name, _passed_on(_name))
