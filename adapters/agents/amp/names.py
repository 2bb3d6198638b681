"""The client's names of tools, and ours: its shell is `Bash` in some of its agents, `shell_command` in others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SHELL: Final = "Bash"
"""What the shell is called here; its input always has `command`."""
_SHELLS: Final = frozenset(("bash", "shell_command"))


def our_name(name: str) -> str:
    """A tool's name as policies have it."""
    return SHELL if name.casefold() in _SHELLS else name


def our_input(name: str, tool_input: Any) -> dict[str, Any]:
    """A tool's input as policies have it."""
    given = dict(tool_input) if isinstance(tool_input, Mapping) else {"input": tool_input}
    if our_name(name) == SHELL and "command" not in given and "cmd" in given:
        given["command"] = given.pop("cmd")
    return given


def their_names(pattern: str) -> tuple[str, ...]:
    """The client's names for a name or pattern of a policy."""
    if pattern.casefold() in _SHELLS:
        return (SHELL, "shell_command")
    return (pattern,)
