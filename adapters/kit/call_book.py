"""The calls of a client's session, from first mention to outcome, its turns, their usage figures, and what it reports
that nobody knows.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.calls import ToolCall, call_fields

from .client_tools import runs_in_background


class ClientCall(msgspec.Struct, kw_only=True):
    """One call and its progress.

    Attributes:
        id: Its id in events.
        name: The tool.
        input: The input it was requested with, or allowed with.
        turn: The turn it belongs to.
        parent: The call that started the subagent which makes it.
        proposed: Whether it was proposed to the gate.
        allowed: Whether the gate allowed it.
        refused: Whether the gate denied it, so that the client's result for the model is no outcome.
        reported: Whether its start was reported, because it runs without the gate.
        over: Whether its outcome is known.
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

    def requested(self) -> ev.ToolCallRequested:
        """The event of its request."""
        return ev.ToolCallRequested(**call_fields(self.as_tool_call()))

    def started(self) -> ev.ToolCallStarted:
        """The event of its start, for a call that runs without the gate's answer and is evaluated by this event."""
        self.reported = True
        return ev.ToolCallStarted(**call_fields(self.as_tool_call()))

    def ended(self, output: Any, *, failed: bool) -> ev.ToolCallCompleted | ev.ToolCallFailed:
        """The event of its end; `output` is its result, or its error if it failed."""
        self.over = True
        unfinished = not failed and runs_in_background(self.name, self.input, output)
        return outcome_of(self.as_tool_call(), output, failed=failed, unfinished=unfinished)


def outcome_of(
    call: ToolCall, output: Any, *, failed: bool, unfinished: bool = False
) -> ev.ToolCallCompleted | ev.ToolCallFailed:
    """The event of a call's end; `output` is its result, or its error if it failed. If it is `unfinished`, what it
    has started goes on.
    """
    if failed:
        return ev.ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error=output)
    return ev.ToolCallCompleted(tool_call_id=call.id, tool_name=call.name, tool_output=output, unfinished=unfinished)


CallT = TypeVar("CallT", bound=ClientCall)


class CallBook(Generic[CallT]):
    """The calls of one session, by id, in the order in which they began.

    An id that is used again after its call's outcome is another call.

    Args:
        kind: the class of its calls.
    """

    def __init__(self, kind: type[CallT]) -> None:
        self._kind = kind
        self._calls: dict[str, CallT] = {}

    def __iter__(self) -> Iterator[CallT]:
        return iter(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, call_id: str | None) -> CallT | None:
        """The latest call of an id, or None."""
        return self._calls.get(call_id or "")

    def request(self, call_id: str, **what: Any) -> CallT:
        """The call of an id; an unknown one is begun, with the fields `what`."""
        return self._calls.get(call_id) or self.begin(call_id, **what)

    def begin(self, call_id: str, **what: Any) -> CallT:
        """Begin a call, in place of an earlier one with its id."""
        call = self._calls[call_id] = self._kind(id=call_id, **what)
        return call

    def drop(self, call_id: str) -> CallT | None:
        """Forget a call whose outcome is known."""
        return self._calls.pop(call_id, None)


class Turns:
    """Counts the turns of a session; `number` is that of the latest, `is_open` whether it has not ended."""

    def __init__(self) -> None:
        self.number = 0
        self.is_open = False

    def begin(self) -> Iterator[ev.Event]:
        """Begin the next turn, unless one is open."""
        if not self.is_open:
            self.is_open = True
            self.number += 1
            yield ev.TurnStarted(turn=self.number)

    def end(self) -> Iterator[ev.Event]:
        """End the current turn, if there is one."""
        if self.is_open:
            self.is_open = False
            yield ev.TurnCompleted(turn=self.number)


def unrecognized(client: str, record: Mapping[str, Any], *named_by: str) -> ev.Unrecognized:
    """A client's record as it came. The client's name is before those in these fields: a record must not read back as
    an event of ours.
    """
    name = ".".join(str(record[field]) for field in named_by if field in record)
    return ev.Unrecognized(raw={"type": f"{client}.{name}", "record": dict(record)})


def tokens(report: Mapping[str, Any], name: str) -> int:
    """The count of tokens at `name` in a `report`; 0 if it is absent or null.

    Raises EventError unless it is a whole number, 0 or more.
    """
    value = _figures(report).get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount of tokens")
    return value


def dollars(report: Mapping[str, Any], name: str) -> float:
    """The amount in USD at `name` in a `report`; 0 if it is absent or null.

    Raises EventError unless it is a number, 0 or more.
    """
    value = _figures(report).get(name)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise EventError(f"usage: `{name}` is {value!r:.100}, which is not an amount in USD")
    return float(value)


def _figures(report: Any) -> Mapping[str, Any]:
    """The report. Raises EventError if it is none: what it hides is nobody's."""
    if not isinstance(report, Mapping):
        raise EventError(f"usage: {report!r:.100} has no figures")
    return report


def check_growth(before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Raises EventError if a running total of `now` is below `before`."""
    for name, value in now.items():
        if value < before.get(name, 0) - 1e-9:  # amounts in USD are sums of fractions
            raise EventError(f"usage: `{name}` fell from {before[name]} to {value}: what was used stays used")
