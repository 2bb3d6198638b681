"""Limits of one run: everything is added up again from all that happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ORDER = ["max_total_tokens", "max_input_tokens", "max_output_tokens", "max_tool_calls", "max_turns"]


class Moment(NamedTuple):
    """A report of tokens, or a call that started or was asked for in vain; `reported` are limits it exceeded."""

    turn: int = 0
    started: bool = False
    scope: str = ""
    input: int = 0
    output: int = 0
    id: str = ""
    reported: tuple[str, ...] = ()


def tokens(past: list[Moment]) -> tuple[int, int]:
    """Input and output: deltas added, cumulative reports by how far they have come; one id counts once."""
    once = {moment.id or str(n): moment for n, moment in reversed(list(enumerate(past))) if moment.scope}
    if any(moment.scope == "cumulative" for moment in once.values()):
        return max(m.input for m in once.values()), max(m.output for m in once.values())
    return sum(m.input for m in once.values()), sum(m.output for m in once.values())


def used(name: str, past: list[Moment]) -> int:
    """How much of a limit is used."""
    spent = tokens(past)
    if name == "max_tool_calls":
        return sum(moment.started for moment in past)
    if name == "max_turns":
        return max((moment.turn for moment in past), default=0)
    return {"max_total_tokens": sum(spent), "max_input_tokens": spent[0], "max_output_tokens": spent[1]}[name]


def reports(limits: Mapping[str, Any], past: list[Moment]) -> list[str]:
    """The limits that are exceeded now and were not reported before."""
    known = {name for moment in past for name in moment.reported}
    given = [name for name in ORDER if name in limits and name not in known]
    return [name for name in given if used(name, past) > limits[name]["max"]]


def refusals(limits: Mapping[str, Any], past: list[Moment], turn: int) -> list[tuple[str, str]]:
    """What objects to a call: limits exceeded, or by this call; with `warn` the one report is all."""
    known = {name for moment in past for name in moment.reported}
    after = [*past, Moment(turn=turn, started=True)]
    found = []
    for name in ORDER:
        if name in limits and used(name, after) > limits[name]["max"]:
            action = limits[name]["action"]
            if action != "warn" or name not in known:
                found.append((name, action))
    return found
