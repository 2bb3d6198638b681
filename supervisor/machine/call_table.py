"""The calls of a run that are not over: what was asked for, how far each has got, and who waits for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.errors import Violation
from proctor.policies.events.calls import ToolCall, same_input

from ..ports.adapter import GateAnswer

Stage: TypeAlias = Literal["requested", "waiting", "started"]
"""Reported by the provider; proposed at the gate and not decided; running."""

REFUSED_KEPT = 1024
"""How many refused calls are remembered: an outcome that a provider reports for one is not news."""


class OpenCall(msgspec.Struct, frozen=True, gc=False):
    """One call and its stage; `key` is the proposal it was permitted to, 0 where it started without one.

    `redact` is set where only the record is known: `input` is then what it makes of the exact one.
    """

    name: str
    input: dict[str, Any]
    stage: Stage
    key: int = 0
    redact: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    def same(self, name: str, input: dict[str, Any]) -> bool:
        """Whether it is the same tool with the same input: 7.0 is 7, and true is not 1."""
        if self.name != name:
            return False
        return same_input(self.input, input) or (
            self.redact is not None and same_input(self.input, self.redact(input))
        )


class OpenCalls:
    """Calls by id, from the request until the outcome; of the latest refused ones only the id."""

    __slots__ = ("_calls", "_refused")

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}
        self._refused: dict[str, None] = {}

    def get(self, call_id: str) -> OpenCall | None:
        """The call of that id, unless it is over or was never asked for."""
        return self._calls.get(call_id)

    def put(self, call_id: str, name: str, input: dict[str, Any], stage: Stage, key: int = 0) -> None:
        """Remember a call at a stage."""
        self._calls[call_id] = OpenCall(name, input, stage, key)
        if self._refused:
            self._refused.pop(call_id, None)

    def recall(self, call_id: str, call: OpenCall) -> None:
        """Remember a call as it was."""
        self._calls[call_id] = call
        self._refused.pop(call_id, None)

    def end(self, call_id: str) -> None:
        """Forget a call: its outcome is known. One that waits at the gate has none, whatever was reported."""
        call = self._calls.get(call_id)
        if call is not None and call.stage != "waiting":
            del self._calls[call_id]

    def refuse(self, call_id: str) -> None:
        """A call is over without having run; its id may serve another."""
        self._calls.pop(call_id, None)
        self._refused.pop(call_id, None)
        self._refused[call_id] = None
        if len(self._refused) > REFUSED_KEPT:
            del self._refused[next(iter(self._refused))]

    def was_refused(self, call_id: str) -> bool:
        """Whether the latest call of that id was refused."""
        return call_id in self._refused


class Proposal:
    """One call the gate holds, for who asked under `key`.

    `pending` are violations of a call that is held: what they come to is known when it is decided.
    """

    __slots__ = ("answer", "call", "key", "noted", "pending")

    def __init__(self, key: int, call: ToolCall) -> None:
        self.key = key
        self.call = call
        self.answer: GateAnswer | None = None
        self.noted: set[tuple[str, str]] = set()
        self.pending: list[Violation] = []
