"""The calls of a run that were allowed: one outcome each, and which call a sub-agent's is inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import ToolCallCompleted, ToolCallFailed
from proctor.policies.values.foreign import named_error

from ...kit.event_stream import EventStream
from ...kit.values.jsonable import plain

_inside: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("proctor_inside_calls", default=())
"""The calls whose tools run this code, outermost first, each with the run it is of: a tool may start a run."""


class AllowedCalls:
    """Reports exactly one outcome for each allowed call."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._running: dict[str, str] = {}

    def proposed(self, call_id: str, name: str, tool_input: Any, turn: int) -> ToolCall:
        """A call to put to the gate: a sub-agent's names the call it is inside."""
        given = plain(tool_input)
        return ToolCall(
            id=call_id,
            name=name,
            input=given if isinstance(given, dict) else {"input": given},
            turn=turn,
            parent_tool_call_id=self.parent(call_id),
        )

    def parent(self, call_id: str | None = None) -> str | None:
        """The call whose tool runs this code, if any; for a call, the call around it."""
        path = [inside for run, inside in _inside.get() if run is self]
        if path and path[-1] == call_id:
            path.pop()
        return path[-1] if path else None

    def within(self, call_id: str) -> str:
        """The run's id for a call made by this code: a sub-agent's model may reuse its parent's ids."""
        parent = self.parent()
        return call_id if parent is None else f"{parent}.{call_id}"

    @contextmanager
    def inside(self, call_id: str) -> Iterator[None]:
        """The tool of this call does what is done in this context."""
        token = _inside.set((*_inside.get(), (self, call_id)))
        try:
            yield
        finally:
            _inside.reset(token)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Calls entered in this context are left at its end."""
        token = _inside.set(_inside.get())
        try:
            yield
        finally:
            _inside.reset(token)

    def enter(self, call_id: str) -> None:
        """The tool of this call does what this task does from here on."""
        if self.parent() != call_id:
            _inside.set((*_inside.get(), (self, call_id)))

    def allowed(self, call: ToolCall) -> None:
        """The gate allowed a call: it owes an outcome."""
        self._running[call.id] = call.name

    async def completed(self, call_id: str, result: Any) -> None:
        """A call is done."""
        name = self._running.pop(call_id, None)
        if name is not None:
            output = plain(result)
            await self._stream.emit(ToolCallCompleted(tool_call_id=call_id, tool_name=name, tool_output=output))

    def failed(self, call_id: str, error: BaseException | str) -> None:
        """A call ended in an exception, or was ended."""
        name = self._running.pop(call_id, None)
        if name is not None:
            self._stream.post(ToolCallFailed(tool_call_id=call_id, tool_name=name, error=_error_text(error)))

    def end(self) -> None:
        """Nothing runs any more."""
        for call_id in list(self._running):
            self.failed(call_id, "ended before it was done")


def _error_text(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, Exception):
        return "ended before it was done"
    return named_error(error)
