"""Proposed entries of a policy, each with the sessions that support it and those it disturbs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.policies.values.amounts import counted
from proctor.policies.values.json_values import text_of

from ..kit.display_text import escape_control_json

SUPPORT = 3
"""The number of sessions below which a proposal is rare."""
CHANCE = 0.1
"""A restriction is proposed if at most this part of future sessions is likely to break it."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: a tool that is allowed, an input that is restricted, an order, a limit, or a part of the base.

    Attributes:
        kind: `tool`, `command`, `input`, `order`, `limit` or `base`.
        about: The proposal, in words.
        part: Its part of the policy: a condition of the tool, a rule, or a limit.
        tool: The tool that it is about.
        sessions: How many sessions support it.
        calls: How many of their calls.
        disturbed: The sessions that it would have disturbed, had it been learnt without them.
        stops: A call that it stops.
    """

    kind: str
    about: str
    tool: str
    sessions: int
    part: dict[str, Any] = {}
    calls: int = 0
    disturbed: frozenset[str] = frozenset()
    stops: dict[str, Any] = {}

    def data(self) -> dict[str, Any]:
        """The entry as data."""
        fields = {"kind": self.kind, "tool": self.tool, "about": self.about, "entry": self.part}
        counts = {"sessions": self.sessions, "calls": self.calls, "disturbed": len(self.disturbed)}
        return {**fields, **counts, "rare": self.rare, "stops": self.stops}

    @property
    def rare(self) -> bool:
        """Whether few sessions support it."""
        return self.kind != "base" and self.sessions < SUPPORT

    @property
    def evidence(self) -> str:
        """The evidence for it, in words."""
        if self.kind == "base":
            return "without it, the base denies calls that this policy allows"
        found = counted(self.sessions, "session")
        if self.calls:
            found += f", {counted(self.calls, 'call')}"
        if self.disturbed:
            found += f"; unseen, {len(self.disturbed):,} would be disturbed"
        return f"RARE: {found}" if self.rare else found


def likely(disturbed: int, sessions: int) -> bool:
    """Whether future sessions will rarely be disturbed, by the rule of succession."""
    return (disturbed + 1) / (sessions + 2) <= CHANCE


def supported(values: Mapping[str, set[Any]]) -> Counter[Any]:
    """How many sessions have each value; `values` are those of each session."""
    return Counter(value for found in values.values() for value in found)


def with_headroom(amounts: Sequence[float]) -> float:
    """A limit above these amounts: the largest, or twice the 95th percentile, rounded to two digits."""
    ordered = sorted(amounts)
    if not ordered:
        return 0
    usual = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return _rounded_up(max(ordered[-1], 2 * usual))


def _rounded_up(amount: float) -> float:
    if amount <= 0:
        return 0
    unit = 10.0 ** (math.floor(math.log10(amount)) - 1)
    rounded = math.ceil(amount / unit - 1e-9) * unit
    return round(rounded) if rounded >= 10 or rounded == round(rounded) else round(rounded, 6)


def beyond_headroom(amounts: Mapping[str, float]) -> frozenset[str]:
    """The sessions that use more than the limit learnt from the others."""
    ordered = sorted(amounts.items(), key=lambda item: item[1], reverse=True)[:1]
    return frozenset(
        session
        for session, amount in ordered
        if len(amounts) > 1 and amount > with_headroom([other for id, other in amounts.items() if id != session])
    )


_PLAIN = re.compile(r"[A-Za-z_$./][\w$./@*+ -]*(?<! )", re.ASCII)
_WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"])


def flow(value: Any) -> str:
    """A value as YAML on one line, with unprintable characters as escapes; text is quoted only if it could be read as
    something else.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return escape_control_json(msgspec.json.encode(value).decode())


def listed(values: Iterable[Any]) -> list[Any]:
    """Values in a stable order."""
    return sorted(values, key=text_of)
