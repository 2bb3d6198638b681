"""What the runs of agents of every framework have in common: turns, calls, and the conversation that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from proctor.policies.stream.events import RunCompleted, TurnCompleted, TurnStarted
from proctor.supervisor.ports import Launch

from ...kit.event_stream import EventStream
from ...kit.jsonable import plain
from ...kit.task_provider import TaskProvider
from .framework_calls import FrameworkCalls
from .histories import Histories

T = TypeVar("T")


class FrameworkSession(TaskProvider, Generic[T]):
    """A Provider: one run of an agent.

    Args:
        own: what the caller gives the framework.
        launch: what to run.
        histories: the exact conversations of earlier runs.
    """

    def __init__(self, own: Mapping[str, Any], launch: Launch, histories: Histories[T]) -> None:
        self._stream = EventStream()
        super().__init__(self._stream, launch.gate)
        self._own = own
        self._launch = launch
        self._histories = histories
        self._turn = 0
        self.calls = FrameworkCalls(self._stream)

    async def begin_turn(self) -> None:
        """The next response is asked for; a sub-agent's belongs to the turn of the call it is inside."""
        if self.calls.parent() is not None:
            return
        if self._turn:
            await self._stream.emit(TurnCompleted(turn=self._turn))
        self._turn += 1
        await self._stream.emit(TurnStarted(turn=self._turn))

    async def _turn_refused(self, cap: int | None) -> None:
        """The framework refused the response that the policy's `max_turns` does not allow: the policy judges."""
        if cap is not None and self._turn >= cap:
            await self._stream.emit(TurnStarted(turn=self._turn + 1))

    async def _finished(self, conversation: Sequence[T], output: Any) -> None:
        """Keep the conversation for the runs to come, and report the result."""
        self._histories.keep(self._launch.session_id, self._launch.run_id, list(conversation))
        await self._stream.emit(TurnCompleted(turn=self._turn))
        await self._stream.emit(RunCompleted(output=plain(output)))
