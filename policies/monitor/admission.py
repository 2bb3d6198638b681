"""The allow lists that admit a call, as far as it can be read, so that nobody has to be asked about it.

A call that no rule objects to may be one that the policy says nothing about, or one of which only a part can be read.
Neither is admitted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from ..events.calls import UNREADABLE, check_input
from ..language.selectors import ToolWhere
from ..language.shell_commands import commands_of
from ..rules.lists import AllowlistMachine
from ..values.globs import matcher
from ..values.paths import compile_path

if TYPE_CHECKING:
    from ..events.calls import ToolCall
    from ..language.conditions import Condition
    from ..shell.words import Shell
    from .call_table import CallState, RuleName
    from .state import MonitorState

_RUNS_COMMANDS = matcher(["bash"])
"""Whether a tool's name is the portable one of what runs a command line."""
_LINES = compile_path("$.command")


class ListAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether allow lists admit a call.

    Attributes:
        rules: The allow lists that do, each by its policy and its id; none where `why_not` says why.
        why_not: Why none does.
        unread: It is that not all of the call can be read.
    """

    rules: tuple[RuleName, ...] = ()
    why_not: str = ""
    unread: bool = False


def admission(on: MonitorState, call: ToolCall) -> ListAdmission:
    """Look at a call that is about to be judged; nothing is counted. Limits, orders and other rules are not asked."""
    try:
        check_input(call.input)
        subject = on.subject(call.id, call.name, call.input, call.turn)
        unread, several = _line_of(subject)
        if unread:
            return ListAdmission(why_not=unread, unread=True)
        return _admitted(on, subject, several=several)
    except UNREADABLE:
        return ListAdmission(why_not="its input cannot be read", unread=True)


def _admitted(on: MonitorState, subject: CallState, *, several: bool) -> ListAdmission:
    lists = [(r, r.machine) for r in on.rules.values() if isinstance(r.machine, AllowlistMachine)]
    if not lists:
        return ListAdmission(why_not="the policy has no allow list")
    found: list[RuleName] = []
    for rule, machine in lists:
        items = [item for slot in machine.slots for item in slot.items_met(subject.names, subject)]
        if not items:
            return ListAdmission(why_not=f"rule `{rule.id}` does not admit it")
        if several and not any(_reads_all(item) for item in items):
            why = f"rule `{rule.id}` admits it by its text, and it is several commands; use `runs`"
            return ListAdmission(why_not=why)
        found.append((rule.policy, rule.id))
    return ListAdmission(rules=tuple(found))


def _line_of(subject: CallState) -> tuple[str, bool]:
    """Why the command line of a call cannot be read, if it is one; and whether it is several commands."""
    names = subject.names
    if names.in_part:
        return "not all of its input can be read", False
    if not names.any(_RUNS_COMMANDS):
        return "", False
    lines = _LINES(subject.input)
    if not lines or not all(isinstance(line, str) for line in lines):
        return "its command line cannot be read", False
    shell: Shell = "bash" if subject.directories.shell == "bash" else "sh"
    commands = [command for line in lines for command in commands_of(line, shell)]
    if not commands or any(words[0] is None for words, _ in commands):
        return "what its command line runs is known only when it runs", False
    return "", len(commands) > 1 or len(names.acts) > 1


def _reads_all(item: str | ToolWhere) -> bool:
    """Whether an item that a call of several commands meets says something of each of them."""
    return isinstance(item, str) or not item.where or any(map(_names_commands, item.where))


def _names_commands(condition: Condition) -> bool:
    if condition.any_of is not UNSET:
        return all(map(_names_commands, condition.any_of))
    return condition.runs is not UNSET
