"""The client's own tool names: it compares them exactly, policies do not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from proctor.policies.values.globs import is_plain, matcher

_KNOWN = """
    Agent AskUserQuestion Bash BashOutput CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree
    ExitPlanMode ExitWorktree Glob Grep KillShell ListAgents Monitor MultiEdit NotebookEdit Read
    ReportFindings ScheduleWakeup SendMessage Skill SlashCommand TaskCreate TaskGet TaskList TaskOutput
    TaskStop TaskUpdate TodoWrite ToolSearch WebFetch WebSearch Workflow Write
"""
KNOWN: Final = frozenset(_KNOWN.split())
"""Built-in tools of the client, as it calls them at the gate."""

_OLD_NAMES: Final = {"task": "Agent"}
_SPELLABLE = re.compile(r"[A-Za-z0-9_.:-]+")


def at_the_gate(name: str) -> str:
    """The name the gate sees for a name the client lists: it lists `Task` and calls `Agent`."""
    return _OLD_NAMES.get(name.casefold(), name)


def resolve(pattern: str, offered: Iterable[str] = ()) -> tuple[str, ...]:
    """The client's exact names a pattern means; empty when no known name matches.

    Args:
        pattern: as a policy writes it.
        offered: names the caller knows beside the built-in ones.
    """
    if pattern.casefold() in _OLD_NAMES:
        return (at_the_gate(pattern),)
    matches = matcher([pattern])
    return tuple(sorted(name for name in KNOWN.union(offered) if matches(name)))


def is_spellable(name: str) -> bool:
    """Whether a name can stand in the client's lists, where commas and brackets have a meaning."""
    return is_plain(name) and _SPELLABLE.fullmatch(name) is not None
