"""Sessions to a suggested policy: their tools and inputs, orders they kept, and limits with headroom."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proctor.policies.limits import LIMITS
from proctor.policies.values.amounts import figure

from .entries import SUPPORT, Entry, beyond_headroom, likely, with_headroom
from .inputs import Use, UsedInput, input_entries, is_writable, names_in
from .observed import ObservedCall, ObservedSession


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """The proposals learnt from sessions.

    Attributes:
        name: The policy's name.
        action: The action it asks for: `request_approval` or `deny`.
        sessions: How many sessions it was learnt from.
        entries: The entries.
        dropped: The entries left out, each with the reason.
    """

    name: str
    action: str
    sessions: int
    entries: tuple[Entry, ...]
    dropped: tuple[tuple[Entry, str], ...] = ()

    @property
    def disturbed(self) -> frozenset[str]:
        """The sessions that it would have disturbed, had each been left out in turn."""
        return frozenset().union(*(entry.disturbed for entry in self.entries))

    @property
    def tools(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == "tool"]

    def of(self, tool: str, *kinds: str) -> list[Entry]:
        """The entries of these kinds about a tool."""
        return [entry for entry in self.entries if entry.tool == tool and entry.kind in kinds]

    def without(self, entries: Sequence[Entry], why: str) -> Suggestion:
        """The same without these entries, and without entries that only concern their tools.

        A tool of whose commands none is left goes too: without a name, every command line would be allowed.
        """
        commands = {entry.tool for entry in entries if entry.kind == "command"}
        nameless = {tool for tool in commands if all(each in entries for each in self.of(tool, "command"))}
        tools = {entry.tool for entry in entries if entry.kind == "tool"} | nameless
        about_them = [e for e in self.entries if e.kind != "limit" and tools & {e.tool, e.part.get("first")}]
        left = tuple(e for e in self.entries if e not in entries and e not in about_them)
        return msgspec.structs.replace(
            self, entries=left, dropped=(*self.dropped, *((entry, why) for entry in entries))
        )

    def edited(self, entry: Entry, part: dict[str, Any]) -> Suggestion:
        """The same with another part of the policy in an entry's place; no call is known that it stops."""
        changed = msgspec.structs.replace(entry, part=part, about=f"{entry.about}, edited", stops={})
        return msgspec.structs.replace(
            self, entries=tuple(changed if each is entry else each for each in self.entries)
        )

    def within(self, parts: Sequence[Entry]) -> Suggestion:
        """The same with parts of a base; its limits replace those that were learnt."""
        limits = {name for part in parts for name in part.part}
        own = tuple(e for e in self.entries if e.kind != "limit" or limits.isdisjoint(e.part))
        return msgspec.structs.replace(self, entries=(*own, *parts))

    @property
    def limits(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.part.keys() & LIMITS.keys()]

    @property
    def rules(self) -> list[Entry]:
        return [entry for entry in self.entries if "type" in entry.part]

    @property
    def nets(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.part.keys() & {"line", "places"}]

    def policy(self) -> dict[str, Any]:
        """The policy as data."""
        limits = {key: value for entry in self.limits for key, value in entry.part.items()}
        lists = {"rules": self.rules, "nets": self.nets}
        allowed = [self.allowed(entry.tool) for entry in self.tools]
        return {
            "version": 1,
            "name": self.name,
            "on_violation": self.action,
            **({"limits": limits} if limits else {}),
            "tool_rules": [{"allow": allowed} if allowed else {"deny": ["*"]}],
            **{key: [entry.part for entry in listed] for key, listed in lists.items() if listed},
        }

    def allowed(self, tool: str) -> Any:
        """The item of the allow list for a tool."""
        where = [entry.part for entry in self.of(tool, "input") if "type" not in entry.part]
        commands = self.of(tool, "command")
        if commands:
            names = [entry.part["runs"] for entry in commands]
            where.append({"path": commands[0].part["path"], "runs": names})
        return {"tool": tool, "where": where} if where else tool


def learn(sessions: Sequence[ObservedSession], *, name: str = "suggested", action: str) -> Suggestion:
    """Learn from sessions; only the entries keep anything of them."""
    used: defaultdict[str, list[tuple[ObservedSession, ObservedCall]]] = defaultdict(list)
    for session in sessions:
        for call in session.calls:
            used[call.tool].append((session, call))
    entries: list[Entry] = []
    for tool in sorted(used):
        entries += _tool_entries(tool, used[tool])
    entries += order_entries(sessions)
    entries += limit_entries(sessions)
    return Suggestion(name=name, action=action, sessions=len(sessions), entries=tuple(entries))


def _tool_entries(tool: str, used: list[tuple[ObservedSession, ObservedCall]]) -> list[Entry]:
    restricted: list[Entry] = []
    for input in _used_inputs(tool, used):
        found = input_entries(input)
        if not found and input.roles["command"]:
            return []  # nothing names its command lines, and without a name all of them would be allowed
        restricted += found
    having = frozenset(session.id for session, _ in used)
    disturbed = having if len(having) == 1 else frozenset()
    if any(entry.kind == "command" for entry in restricted):
        disturbed |= {session.id for session, call in used if not _is_named(call)}
    allowed = Entry(
        kind="tool", about=f"`{tool}`", tool=tool, sessions=len(having), calls=len(used), disturbed=disturbed
    )
    given = {path for _, call in used for path in call.inputs}
    acts = {path: act for _, call in used for path, act in call.acts.items() if path not in given}
    return [allowed, *restricted, *(_never(tool, path, *act, used) for path, act in acts.items())]


def _used_inputs(tool: str, used: list[tuple[ObservedSession, ObservedCall]]) -> Iterator[UsedInput]:
    """The inputs of a tool that may be restricted: not those that are a list in some calls only, or unclear."""
    by_path: defaultdict[str, list[Use]] = defaultdict(list)
    null: Counter[str] = Counter()
    for session, call in used:
        for path, values in call.inputs.items():
            uses = by_path[path]
            if values == (None,):
                null[path] += 1
            elif values:
                uses.append(Use(session.id, call, values, session.workspace))
    unclear = frozenset().union(*(call.unclear for _, call in used))
    for path, uses in by_path.items():
        others: list[dict[str, Any]] = []
        if len(uses) + null[path] < len(used):
            others.append({"path": path, "exists": False})
        if null[path]:
            others.append({"path": path, "equals": None})
        input = UsedInput(tool, path, uses, others)
        plain = path.removesuffix("[*]")
        is_clear = plain not in unclear and not {plain, f"{plain}[*]"} <= by_path.keys()
        if uses and (is_clear or input.roles["command"]):
            yield input


def _is_named(call: ObservedCall) -> bool:
    """Whether entries can name all commands of a call's line."""
    lines = [line for path, role in call.roles.items() if role == "command" for line in call.inputs[path]]
    return bool(lines) and all(isinstance(line, str) and names_in(line) for line in lines)


def _never(tool: str, path: str, act: str, mark: str, used: list[tuple[ObservedSession, ObservedCall]]) -> Entry:
    """An act of a tool that no call had."""
    return Entry(
        kind="input",
        about=f"no `{act}`",
        tool=tool,
        sessions=len({session.id for session, _ in used}),
        calls=len(used),
        part={"path": mark, "exists": False},
        stops={"tool": tool, "path": path, "value": "/somewhere/else"},
    )


_BY_CHANCE = 0.01
"""All orders proposed together are chance with at most this probability."""
_LEARNT = ("max_tool_calls", "max_turns", "max_total_tokens", "max_cost_usd")
"""The limits for which sessions record an amount."""


def order_entries(sessions: Sequence[ObservedSession]) -> Iterator[Entry]:
    """`before` rules that held in every session with their tools, without those that follow from others.

    An order counts as chance if the calls of each session, shuffled, would be likely to keep it.
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
    """For each (then, first) order that every session kept: the sessions with `then`, and the log of the chance."""
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
    """Whether the next call was requested together with this one, so that live it may start before this one ends."""
    return n + 1 < len(session.calls) and session.calls[n].turn == session.calls[n + 1].turn > 0


def _keep(
    found: dict[tuple[str, str], tuple[int, float]],
    having: Counter[str],
    then: str,
    earlier: set[str],
    count: Counter[str],
) -> None:
    """Count a session with `then` after these tools."""
    firsts = earlier if not having[then] else {f for t, f in found if t == then} & earlier
    for first in firsts:
        held, log_chance = found.get((then, first), (0, 0.0))
        chance = count[first] / (count[first] + count[then])
        if held == having[then]:
            found[then, first] = held + 1, log_chance + math.log(chance)
    having[then] += 1


def limit_entries(sessions: Sequence[ObservedSession]) -> Iterator[Entry]:
    """A limit above the sessions' use, for each recorded amount."""
    for limit in _LEARNT:
        amounts = {session.id: session.used[limit] for session in sessions if session.used.get(limit, 0) > 0}
        if len(amounts) < SUPPORT or not all(map(is_writable, amounts.values())):
            continue
        most = with_headroom([*amounts.values()])
        about = f"`{limit}`: at most {figure(max(amounts.values()))} in a session"
        action = {} if limit == "max_tool_calls" else {"action": "warn"}
        part = {limit: {"max": most, **action}}
        yield Entry(
            kind="limit",
            about=about,
            tool="",
            sessions=len(amounts),
            part=part,
            disturbed=beyond_headroom(amounts) if not action else frozenset(),
        )
