"""The client's own tool names: it compares them exactly, policies do not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from proctor.policies.values.globs import is_plain, matcher

from ...kit.tool_names import meant
from ...kit.tool_names.claude import TOOLS

KNOWN: Final = frozenset(tool.name for tool in TOOLS if tool.name != "Task")
"""Built-in tools of the client, as it calls them at the gate."""

_OLD_NAMES: Final = {"task": "Agent"}
_SPELLABLE = re.compile(r"[A-Za-z0-9_.:-]+")


def at_the_gate(name: str) -> str:
    """The name the gate sees for a name the client lists: it lists `Task` and calls `Agent`."""
    return _OLD_NAMES.get(name.casefold(), name)


def resolve(pattern: str, offered: Iterable[str] = ()) -> tuple[str, ...]:
    """The client's exact names a pattern means, portable ones followed; empty when no known name matches.

    Args:
        pattern: as a policy writes it.
        offered: names the caller knows beside the built-in ones.
    """
    matches = matcher([pattern])
    named = {name for name in KNOWN.union(offered) if matches(name)}
    return tuple(sorted(named.union(at_the_gate(name) for name in meant(TOOLS, pattern))))


def is_spellable(name: str) -> bool:
    """Whether a name can stand in the client's lists, where commas and brackets have a meaning."""
    return is_plain(name) and _SPELLABLE.fullmatch(name) is not None
