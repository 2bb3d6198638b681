"""The calls of a client's session, from first mention to outcome, its model responses, and their usage figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import (
    Event,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
)
from proctor.policies.events.calls import ToolCall


class ClientCall(msgspec.Struct, kw_only=True):
    """One call: what asked for it, and how far it got.

    Attributes:
        id: Its id, as events have it.
        name: The tool.
        input: The input it was requested with, or allowed with.
        turn: The model response it belongs to.
        parent: The call that started the subagent which makes it.
        proposed: The gate was asked.
        allowed: The gate let it run.
        refused: The gate refused it: what the client tells the model about it is no outcome.
        reported: It was reported as started, as it runs without the gate's leave.
        over: Its outcome is known.
    """

    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    turn: int = 0
    parent: str | None = None
    proposed: bool = False
    allowed: bool = False
    refused: bool = False
    reported: bool = False
    over: bool = False

    def as_tool_call(self) -> ToolCall:
        """The call as it is proposed to the gate."""
        return ToolCall(id=self.id, name=self.name, input=self.input, turn=self.turn, parent_tool_call_id=self.parent)

    def requested(self) -> ToolCallRequested:
        """The event that the model requested it."""
        return ToolCallRequested(
            tool_call_id=self.id,
            tool_name=self.name,
            tool_input=self.input,
            turn=self.turn,
            parent_tool_call_id=self.parent,
        )

    def started(self) -> ToolCallStarted:
        """The event that it runs without the gate's answer, so that it is evaluated."""
        self.reported = True
        return ToolCallStarted(
            tool_call_id=self.id,
            tool_name=self.name,
            tool_input=self.input,
            turn=self.turn,
            parent_tool_call_id=self.parent,
        )

    def ended(self, output: Any, *, failed: bool) -> ToolCallCompleted | ToolCallFailed:
        """The event of its end; `output` is its result, or its error if it failed."""
        self.over = True
        if failed:
            return ToolCallFailed(tool_call_id=self.id, tool_name=self.name, error=output)
        return ToolCallCompleted(tool_call_id=self.id, tool_name=self.name, tool_output=output)


CallT = TypeVar("CallT", bound=ClientCall)


class CallBook(Generic[CallT]):
    """The calls of one session, by id, in the order in which they began.

    An id that comes again after its call's outcome is another call.

    Args:
        kind: what is kept of each call.
    """

    def __init__(self, kind: type[CallT]) -> None:
        self._kind = kind
        self._calls: dict[str, CallT] = {}

    def __iter__(self) -> Iterator[CallT]:
        return iter(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, call_id: str | None) -> CallT | None:
        """The latest call of an id, None where there is none."""
        return self._calls.get(call_id or "")

    def request(self, call_id: str, **what: Any) -> CallT:
        """The call of an id; one that is not known yet is begun, with `what` is said of it."""
        return self._calls.get(call_id) or self.begin(call_id, **what)

    def begin(self, call_id: str, **what: Any) -> CallT:
        """A call that begins, in the place of one that had its id before."""
        call = self._calls[call_id] = self._kind(id=call_id, **what)
        return call

    def drop(self, call_id: str) -> CallT | None:
        """Forget a call whose outcome is known."""
        return self._calls.pop(call_id, None)


class Turns:
    """Counts the model responses of a session; `number` is that of the latest, `is_open` whether it goes on."""

    def __init__(self) -> None:
        self.number = 0
        self.is_open = False

    def begin(self) -> Iterator[Event]:
        """Begin the next response, unless one has begun."""
        if not self.is_open:
            self.is_open = True
            self.number += 1
            yield TurnStarted(turn=self.number)

    def end(self) -> Iterator[Event]:
        """End the current response, if there is one."""
        if self.is_open:
            self.is_open = False
            yield TurnCompleted(turn=self.number)


def tokens(report: Mapping[str, Any], name: str) -> int:
    """The count of tokens at `name` in a `report`; one that is absent or null is 0.

    Raises EventError for anything that is not a whole number, and for one below zero.
    """
    value = report.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount of tokens")
    return value


def dollars(report: Mapping[str, Any], name: str) -> float:
    """The amount in USD at `name` in a `report`; one that is absent or null is 0.

    Raises EventError for anything that is not a number, and for one below zero.
    """
    value = report.get(name)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount in USD")
    return float(value)


def check_growth(before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Check that no running total of `now` is below `before`. Raises EventError for one that fell."""
    for name, value in now.items():
        if value < before.get(name, 0) - 1e-9:  # amounts in USD are sums of fractions
            raise EventError(f"usage: `{name}` fell from {before[name]} to {value}: what was used stays used")
