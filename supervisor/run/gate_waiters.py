"""Those who wait at a run's gate until their call is decided and the decision is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proctor.policies.stream.calls import ToolCall, tell_model_default

from ..machine.boundary import inputs
from ..machine.events.field_types import NO_CALL
from ..ports.adapters import GateAnswer
from .latch import Latch


class _Waiter:
    """One waiter at the gate."""

    __slots__ = ("answer", "call", "come")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.answer: GateAnswer | None = None
        self.come = Latch()

    def give(self, answer: GateAnswer) -> None:
        self.answer = answer
        self.come.set()


class GateWaiters:
    """Proposes calls through `feed` and holds their callers, each under a key that is never used again."""

    __slots__ = ("_by_key", "_closed", "_feed", "_key", "_now_ms")

    def __init__(self, feed: Callable[[inputs.Input], None], now_ms: Callable[[], int]) -> None:
        self._feed = feed
        self._now_ms = now_ms
        self._by_key: dict[int, _Waiter] = {}
        self._key = 0
        self._closed = False

    async def hold(self, proposed: Any) -> GateAnswer:
        """Propose a call and wait for its answer; a caller that goes away first has withdrawn the call."""
        call = proposed if isinstance(proposed, ToolCall) else NO_CALL
        if self._closed:
            return _refusal(call)
        self._key += 1
        key = self._key
        waiter = self._by_key[key] = _Waiter(call)
        try:
            self._feed(inputs.Proposed(now_ms=self._now_ms(), key=key, call=proposed))
            await waiter.come.wait()
        except BaseException:
            self._feed(inputs.Withdrawn(now_ms=self._now_ms(), key=key, call_id=call.id))
            raise
        finally:
            del self._by_key[key]
        assert waiter.answer is not None
        return waiter.answer

    def give(self, key: int, answer: GateAnswer) -> None:
        """Answer the caller under this key, if it still waits."""
        waiter = self._by_key.get(key)
        if waiter is not None:
            waiter.give(answer)

    def close(self) -> None:
        """The run is over: refuse every waiter, and whoever comes later."""
        self._closed = True
        for waiter in self._by_key.values():
            waiter.give(_refusal(waiter.call))


def _refusal(call: ToolCall) -> GateAnswer:
    return GateAnswer(allowed=False, tell_model=tell_model_default(call.name), stop=True)
