"""Orders that every session kept and that are not chance, and limits over what sessions used."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .entries import SUPPORT, Entry, beyond_room, likely, with_room

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .observed import ObservedSession

_BY_CHANCE = 0.01
"""All orders proposed together are chance with at most this probability."""
LIMITS = ("max_tool_calls", "max_turns", "max_total_tokens", "max_cost_usd")


def order_entries(sessions: Sequence[ObservedSession]) -> Iterator[Entry]:
    """`before` rules that held in every session in which they say something, without those that follow from others.

    An order is chance where the calls of each session, in any order, would be likely to keep it.
    """
    kept = _kept(sessions)
    pairs = max(1, len({then for then, _ in kept}) * max(1, len({first for _, first in kept})))
    sure = {
        (first, then): held
        for (then, first), (held, log_chance) in kept.items()
        if likely(0, held) and log_chance + math.log(pairs) <= math.log(_BY_CHANCE)
    }
    for (first, then), held in sorted(sure.items()):
        if any((first, between) in sure and (between, then) in sure for _, between in sure if between != then):
            continue
        rule = {"id": f"{first}-before-{then}", "type": "before", "first": first, "then": then}
        about = f"`{first}` before `{then}`"
        yield Entry(kind="order", about=about, tool=then, sessions=held, part=rule, stops={"tool": then, "input": {}})


def _kept(sessions: Sequence[ObservedSession]) -> dict[tuple[str, str], tuple[int, float]]:
    """By (then, first), where every session kept the order: those with `then`, and the chance as its logarithm."""
    having: Counter[str] = Counter()
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for session in sessions:
        count = Counter(call.tool for call in session.calls)
        ended: set[str] = set()
        ran: set[str] = set()
        for n, call in enumerate(session.calls):
            if call.tool not in ran:
                ran.add(call.tool)
                _keep(found, having, call.tool, ended - {call.tool}, count)
            if not call.failed and not _same_turn(session, n):
                ended.update(c.tool for c in session.calls[: n + 1] if not c.failed)
    return {key: value for key, value in found.items() if value[0] == having[key[0]]}


def _same_turn(session: ObservedSession, n: int) -> bool:
    """Whether the next call was asked for together with this one: live, it may start before this one ends."""
    return n + 1 < len(session.calls) and session.calls[n].turn == session.calls[n + 1].turn > 0


def _keep(
    found: dict[tuple[str, str], tuple[int, float]],
    having: Counter[str],
    then: str,
    earlier: set[str],
    count: Counter[str],
) -> None:
    """Take into account that a session had `then`, after these tools."""
    firsts = earlier if not having[then] else {f for t, f in found if t == then} & earlier
    for first in firsts:
        held, log_chance = found.get((then, first), (0, 0.0))
        chance = count[first] / (count[first] + count[then])
        if held == having[then]:
            found[then, first] = held + 1, log_chance + math.log(chance)
    having[then] += 1


def limit_entries(sessions: Sequence[ObservedSession]) -> Iterator[Entry]:
    """A limit over what sessions used, for each amount that is recorded."""
    for limit in LIMITS:
        amounts = {session.id: session.used[limit] for session in sessions if session.used.get(limit)}
        if len(amounts) < SUPPORT:
            continue
        most = with_room([*amounts.values()])
        about = f"`{limit}`: at most {max(amounts.values()):,.6g} in a session"
        action = {} if limit == "max_tool_calls" else {"action": "warn"}
        part = {limit: {"max": most, **action}}
        yield Entry(
            kind="limit",
            about=about,
            tool="",
            sessions=len(amounts),
            part=part,
            disturbed=beyond_room(amounts) if not action else frozenset(),
        )
