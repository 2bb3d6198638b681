"""A proposed call, the facts known about its run, and the decision on it."""

import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from ..errors import Action, RefusalCause, Violation, wrong_type
from .run_events import ToolEvent

ACTIONS: tuple[Action, ...] = ("allow", "warn", "request_approval", "deny", "cancel")
STRICTNESS: dict[str, int] = {action: rank for rank, action in enumerate(ACTIONS)}
"""Actions by strictness: a larger number denies more."""
ALLOWING: tuple[Action, ...] = ("allow", "warn")
"""Actions with which a call runs."""


def rule_name(policy: str, rule: str) -> str:
    """`policy/rule`; an id that is repeated in its stack begins with its policy already."""
    return rule if rule.startswith(f"{policy}/") else "/".join(part for part in (policy, rule) if part)


# gc=False: what is asked and what is answered leads to plain JSON only, never back to itself.


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool call as an agent asks for it.

    Attributes:
        id: The call's id, as the client gives it.
        name: The tool, as the client calls it.
        input: The arguments: an object of JSON.
        turn: The number of the model response that asks for it, from 1; 0 is the current one.
        parent_tool_call_id: For calls of a subagent: the call that started the subagent.
    """

    id: str
    name: str
    input: dict[str, Any] = {}
    turn: int = 0
    parent_tool_call_id: str | None = None


def call_of(event: ToolEvent) -> ToolCall:
    """The call that an event is of."""
    return ToolCall(
        id=event.tool_call_id,
        name=event.tool_name,
        input=event.tool_input,
        turn=event.turn,
        parent_tool_call_id=event.parent_tool_call_id,
    )


_HOLDERS = frozenset((dict, list))


def copied(value: Any) -> Any:
    """The value with objects and lists of its own: who changes those of one changes nothing of the other.

    One that stands in it twice, or in itself, does so in the copy.
    """
    if type(value) is dict and _HOLDERS.isdisjoint(map(type, value.values())):
        return value.copy()  # as almost always
    copies: dict[int, Any] = {}
    stack: list[Any] = []

    def copy_of(part: Any) -> Any:
        if type(part) not in _HOLDERS:
            return part
        copy = copies.get(id(part))
        if copy is None:
            copy = copies[id(part)] = type(part)()
            stack.append(part)
        return copy

    copy = copy_of(value)
    while stack:
        part = stack.pop()
        if type(part) is dict:
            copies[id(part)].update((key, copy_of(inner)) for key, inner in part.items())
        else:
            copies[id(part)].extend(map(copy_of, part))
    return copy


def own_call(call: ToolCall) -> ToolCall:
    """The call with an input of its own, for code of others: what that changes of it changes nothing here."""
    return msgspec.structs.replace(call, input=copied(call.input))


def call_fields(call: ToolCall) -> dict[str, Any]:
    """The fields of a call's events."""
    return {
        "tool_call_id": call.id,
        "tool_name": call.name,
        "tool_input": call.input,
        "turn": call.turn,
        "parent_tool_call_id": call.parent_tool_call_id,
    }


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The decision for one proposed call.

    Attributes:
        action: The strictest action of the violations; `allow` without any.
        tool_call_id: The call's id.
        tool_name: Its tool.
        violations: The violations, strictest action first.
        tell_model: The text for the model if the call is denied; it names no rule.
        tool_input: Its arguments.
        errors: The ids of rules that raised an error; each denies the call.
        steps: The explanation, if the monitor was asked for one.
    """

    action: Action
    tool_call_id: str
    tool_name: str
    violations: tuple[Violation, ...] = ()
    tell_model: str | None = None
    tool_input: dict[str, Any] = {}
    errors: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def input_digest(self) -> str:
        """The digest that an approval of this call is bound to."""
        return input_digest(self.tool_input)

    def explain(self) -> str:
        """Why this decision was taken, one step a line."""
        head = f"{self.tool_name} ({self.tool_call_id}): {self.action}"
        steps = self.steps or tuple(
            f"{rule_name(v.policy, v.rule)} ({v.kind}): {v.action} - {v.message}" for v in self.violations
        )
        lines = [head, *(f"  {step}" for step in steps or ("no rule denies it",))]
        return "\n".join(" ".join(line.splitlines()) for line in lines)


AsyncCheck: TypeAlias = "tuple[str, Callable[[ToolCall], Awaitable[Any]]]"
"""A check that has to wait: the id of its rule, and what answers it."""


class NeedsChecks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call cannot be decided before these have answered.

    Attributes:
        checks: The asynchronous checks that concern the call, each with its rule's id.
    """

    checks: tuple[AsyncCheck, ...]


class LimitWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that has passed its `warn_at`.

    Attributes:
        limit: The limit's name.
        used: The amount used, in the limit's unit: tokens, USD, milliseconds, calls or turns.
        max: The limit, in the same unit.
        fraction: `used` divided by `max`, a fraction of 1.
    """

    limit: str
    used: float
    max: float
    fraction: float


fingerprint = msgspec.json.Encoder(order="deterministic").encode
"""The canonical JSON of a value: the same bytes for the same value, whatever the order of its keys."""

UNREADABLE = (RecursionError, UnicodeError, OverflowError, ValueError, TypeError, msgspec.MsgspecError)
"""Errors raised for a value that cannot be written as JSON: too deep, circular, broken text, or another type."""

MOST_PARTS = 200_000
"""How many lists, objects and elements an input may hold, those it shares counted wherever they stand."""

_NESTING = (dict, list, tuple)
_SCALARS = (str, int)
_PLAIN: frozenset[type] = frozenset((str, int, bool, type(None)))
"""What JSON has that holds nothing else, whatever the value; not every float is one of its numbers."""


def check_input(input: Any) -> None:
    """Raises TypeError for an input that is not an object or holds what JSON does not have, and ValueError for one
    with too many parts, or without an end.
    """
    if type(input) is dict and len(input) < MOST_PARTS:
        for key in input:
            if type(key) is not str or type(input[key]) not in _PLAIN:
                break
        else:
            return  # it holds texts and whole numbers only
    elif not isinstance(input, dict):
        raise TypeError(wrong_type("an object as a call's input", input))
    stack: list[Any] = [input]
    left = MOST_PARTS
    while stack:
        outer = stack.pop()
        left -= 1 + len(outer)
        if left < 0:
            raise ValueError(f"a value in a circle, or of more than {MOST_PARTS:,} parts")
        if isinstance(outer, dict):
            for key in outer:
                if type(key) is not str and not isinstance(key, str):
                    raise TypeError(f"a key of type `{type(key).__name__}`; in JSON every key is a text")
        for inner in outer.values() if isinstance(outer, dict) else outer:
            if isinstance(inner, _NESTING):
                stack.append(inner)
            elif isinstance(inner, float):
                check_finite(inner)
            elif type(inner) not in _PLAIN and not isinstance(inner, _SCALARS):
                raise TypeError(f"a Python object of type `{type(inner).__name__}`, which JSON does not have")


def check_finite(value: object) -> None:
    """Raises ValueError for a number that JSON does not have: a record would say `null`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the number `{value}`, which JSON does not have")


def exact(value: Any) -> Any:
    """A value whose whole numbers are all written as such: 7.0 as 7."""
    return _whole(value) if _has_float(value) else value


def _has_float(value: Any) -> bool:
    for inner in value.values() if isinstance(value, dict) else value:
        kind = type(inner)
        if kind is float or (kind in _NESTING and _has_float(inner)):
            return True
    return False


def _whole(value: Any) -> Any:
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value


def input_digest(input: dict[str, Any]) -> str:
    """The digest an approval is bound to: SHA-256 over the canonical JSON of the call's input, in which 7.0 is 7."""
    return hashlib.sha256(fingerprint(exact(input))).hexdigest()


_SENTENCES: dict[RefusalCause, str] = {
    "tool": "Tool '{}' is not available in this context.",
    "input": "Tool '{}' may not be used with this input.",
    "step": "Tool '{}' may not be used yet.",
    "budget": "No more calls of tool '{}' are allowed in this run.",
}

ID_NOT_OVER = "This call of tool '{}' has the id of a call that has not ended. Use another id."


def tell_model_default(tool_name: str, cause: RefusalCause = "tool") -> str:
    """The model's text for a denied call, unless the rule has one; it reveals nothing about the rules."""
    return _SENTENCES[cause].format(tool_name)


MARK_LENGTH = 256
"""Up to how many bytes a tool and its input stand in a mark as they are; beyond, as a digest."""


def mark(name: str, input: Any) -> bytes:
    """The mark stored for a call whose input was checked. Raises one of UNREADABLE."""
    text = fingerprint((name, input))
    if len(text) <= MARK_LENGTH:
        return text
    written = exact(input)
    return _short(text if written is input else fingerprint((name, written)))


def matches_digest(mark_: bytes, name: str, input: Any) -> bool:
    """Whether a mark is that of this tool with this input: the order of keys aside, and 7.0 is 7.

    Raises one of UNREADABLE.
    """
    check_input(input)
    other = mark(name, input)
    return mark_ == other or _exact(mark_) == _exact(other)


def same_input(one: Any, other: Any) -> bool:
    """Whether two inputs are the same: the order of keys aside, 7.0 is 7, and true is not 1."""
    if one is other:
        return True
    try:
        return bool(one == other) and fingerprint(exact(one)) == fingerprint(exact(other))
    except UNREADABLE:
        return False


def _exact(text: bytes) -> bytes:
    """The same bytes for marks of the same call."""
    if not text.startswith(b"["):
        return text  # a digest, or not the mark of a call
    return _short(fingerprint(exact(msgspec.json.decode(text))))


def _short(text: bytes) -> bytes:
    return text if len(text) <= MARK_LENGTH else hashlib.blake2b(text, digest_size=16).hexdigest().encode()
