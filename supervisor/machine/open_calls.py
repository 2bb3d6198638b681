"""The calls of a run that are not over: who asked for what, how far each has got, who waits for an answer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.stream.calls import ToolCall

from ..ports import GateAnswer

Stage: TypeAlias = Literal["requested", "started", "denied"]


class OpenCall(msgspec.Struct, frozen=True, gc=False):
    """One call and its stage."""

    name: str
    input: dict[str, Any]
    stage: Stage

    def same(self, name: str, input: dict[str, Any]) -> bool:
        """Whether it is the same tool with the same input."""
        return self.name == name and self.input == input


class OpenCalls:
    """Calls by id, from the request until the outcome."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}

    def get(self, call_id: str) -> OpenCall | None:
        """The call of that id, unless it is over or was never asked for."""
        return self._calls.get(call_id)

    def put(self, call_id: str, name: str, input: dict[str, Any], stage: Stage) -> None:
        """Remember a call at a stage."""
        self._calls[call_id] = OpenCall(name, input, stage)

    def end(self, call_id: str) -> OpenCall | None:
        """Forget a call: its outcome is known."""
        return self._calls.pop(call_id, None)


class Proposal:
    """One call the gate holds; `keys` are those who wait for the same answer, `key` the first who asked.

    `repeats`: the call runs already, allowed to somebody else.
    """

    __slots__ = ("answer", "call", "key", "keys", "noted", "repeats")

    def __init__(self, key: int, call: ToolCall) -> None:
        self.key = key
        self.keys = [key]
        self.repeats = False
        self.call = call
        self.answer: GateAnswer | None = None
        self.noted: set[tuple[str, str]] = set()
