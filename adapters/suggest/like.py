"""One call to the narrowest entry of an allow list that admits it and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from proctor.policies.events.run_context import PORTABLE
from proctor.policies.language.facts import ToolTable
from proctor.policies.values.paths import place_of
from proctor.supervisor.machine.pending_approvals import is_like

from .inputs import folder_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proctor.policies import ToolCall
    from proctor.policies.events.run_context import Tool

_FREE = frozenset(("description", "timeout", "timeout_ms"))
"""Inputs that change nothing of what a call does."""
_WRITES = frozenset(("write", "edit"))


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """Calls similar to a call: the `entry` of an allow list that admits them, and the same in words."""

    entry: dict[str, Any]
    about: str


def like_of(call: ToolCall, tools: Iterable[Tool]) -> Like | None:
    """The narrowest entry that admits a call of a client with these tools, and its like; None where there is none.

    Of a command line the programs with their subcommands are kept, of a path its folder, of what is written where
    nothing; any other input keeps its value.
    """
    act, roles = _roles(ToolTable(tools), call)
    writes = act in _WRITES and any(roles.get(f"$.{key}") == "path" for key in call.input)
    where: list[dict[str, Any]] = []
    words: list[str] = []
    for key, value in call.input.items():
        if not key.isidentifier():
            return None
        path, role = f"$.{key}", roles.get(f"$.{key}", "")
        if role == "command":
            names = names_in(value) if isinstance(value, str) else None
            if names is None:
                return None
            where.append({"path": path, "runs": list(names)})
            words.append(", ".join(f"`{name}`" for name in names))
        elif role in ("path", "to"):
            folder = folder_of(value, None)
            within = folder is not None and place_of(folder) is not None
            where.append({"path": path, "within": folder} if within else {"path": path, "equals": value})
            words.append(f"in `{folder}`" if within else f"`{value}`")
        elif not (key in _FREE or (writes and not isinstance(value, bool | int | float))):
            where.append({"path": path, "equals": value})
            words.append(f"{key} {_short(value)}")
    entry = {"tool": call.name, **({"where": where} if where else {})}
    if not is_like(call, entry, call.input):  # not all of it can be read
        return None
    return Like(entry=entry, about=" ".join((f"`{call.name}`", *words)))


def _roles(table: ToolTable, call: ToolCall) -> tuple[str, dict[str, str]]:
    """The act of a call that does just one, and its portable inputs by path."""
    described = table.tools.get(call.name.casefold())
    acts = (call.name,) if described is None else described.every_act
    if len(acts) != 1 or (act := next(iter(acts))) not in PORTABLE:
        return "", {}
    own = {} if described is None else described.inputs
    paths = {name: own.get(name, (f"$.{name}",)) for name in PORTABLE[act]}
    return act, {path: name for name, several in paths.items() for path in several}


def _short(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"
