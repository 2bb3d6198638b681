"""Sessions to a suggested policy: the tools they used, how each was used, the orders they kept, limits with room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from .entries import Entry
from .inputs import Use, input_entries
from .observed import ObservedCall, ObservedSession
from .orders import limit_entries, order_entries


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
        """The tools that it allows."""
        return [entry for entry in self.entries if entry.kind == "tool"]

    def of(self, tool: str, *kinds: str) -> list[Entry]:
        """The entries of these kinds about a tool."""
        return [entry for entry in self.entries if entry.tool == tool and entry.kind in kinds]

    def without(self, entries: Sequence[Entry], why: str) -> Suggestion:
        """The same without these entries, and without what says something of their tools alone."""
        tools = {entry.tool for entry in entries if entry.kind == "tool"}
        about_them = [e for e in self.entries if tools & {e.tool, e.part.get("first")} and e.kind != "limit"]
        left = tuple(e for e in self.entries if e not in entries and e not in about_them)
        return msgspec.structs.replace(
            self, entries=left, dropped=(*self.dropped, *((entry, why) for entry in entries))
        )

    def policy(self) -> dict[str, Any]:
        """The policy as data."""
        rules = [e.part for e in self.entries if "type" in e.part]
        limits = {key: value for e in self.entries if e.kind == "limit" for key, value in e.part.items()}
        allowed = [self.allowed(entry.tool) for entry in self.tools]
        return {
            "version": 1,
            "name": self.name,
            "on_violation": self.action,
            **({"limits": limits} if limits else {}),
            "tool_rules": [{"allow": allowed} if allowed else {"deny": ["*"]}],
            **({"rules": rules} if rules else {}),
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
    """Learn from sessions. Nothing of them but what is in the entries is kept."""
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
    having = {session.id for session, _ in used}
    found = [
        Entry(
            kind="tool",
            about=f"`{tool}`",
            tool=tool,
            sessions=len(having),
            calls=len(used),
            disturbed=frozenset(having if len(having) == 1 else ()),
        )
    ]
    by_path: defaultdict[str, list[Use]] = defaultdict(list)
    for session, call in used:
        for path, values in call.inputs.items():
            by_path[path].append(Use(session.id, call, values, session.workspace))
    for path, uses in by_path.items():
        restricted = input_entries(tool, path, uses, len(used))
        if not restricted and any(use.call.roles.get(path) == "command" for use in uses):
            return []  # nothing names its command lines, and without a name all of them would be allowed
        found += restricted
    return found
