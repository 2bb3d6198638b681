"""What several clients report in one run, as one count: each client starts its turns, totals and ids anew."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event, TokenUsageUpdated, ToolEvent, TurnEvent

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


class Counting:
    """Adds what the clients before have reported to what the present one reports."""

    def __init__(self) -> None:
        self._client = 0
        self._turns = 0
        self._turns_before = 0
        self._before = TokenUsageUpdated(cost_usd=0.0)
        self._deltas = TokenUsageUpdated(cost_usd=0.0)
        self._total = TokenUsageUpdated(cost_usd=0.0)

    def next_client(self) -> None:
        """Another client takes over."""
        self._client += 1
        self._turns_before = self._turns
        self._before = _sum(_sum(self._before, self._deltas), self._total)
        self._deltas = self._total = TokenUsageUpdated(cost_usd=0.0)

    def event(self, event: Event) -> Event:
        """An event of the present client, as one of the run."""
        if isinstance(event, TokenUsageUpdated):
            event = self._usage(event)
        if isinstance(event, TurnEvent | ToolEvent) and event.turn:
            event = replace(event, turn=self._turn(event.turn))
        if not self._client:
            return event
        if isinstance(event, ToolEvent):
            parent = event.parent_tool_call_id
            event = replace(event, parent_tool_call_id=self._id(parent) if parent else None)
        if (id := getattr(event, "tool_call_id", None)) is not None:
            event = replace(event, tool_call_id=self._id(id))
        return replace(event, event_id=self._id(event.event_id)) if event.event_id else event

    def call(self, call: ToolCall) -> ToolCall:
        """A call that the present client proposes, as one of the run."""
        call = replace(call, turn=self._turn(call.turn)) if call.turn else call
        if not self._client:
            return call
        parent = call.parent_tool_call_id
        return replace(call, id=self._id(call.id), parent_tool_call_id=self._id(parent) if parent else None)

    def _turn(self, turn: int) -> int:
        counted = turn + self._turns_before
        self._turns = max(self._turns, counted)
        return counted

    def _id(self, id: str) -> str:
        """An id that no client before has given."""
        return f"{self._client}.{id}"

    def _usage(self, event: TokenUsageUpdated) -> TokenUsageUpdated:
        if event.scope == "delta":
            self._deltas = _sum(self._deltas, event)
            return event
        self._total = event
        counted = _sum(self._before, event)
        return counted if event.cost_usd is not None else replace(counted, cost_usd=None)


def _sum(one: TokenUsageUpdated, other: TokenUsageUpdated) -> TokenUsageUpdated:
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    return replace(other, **counts, cost_usd=(one.cost_usd or 0.0) + (other.cost_usd or 0.0))
