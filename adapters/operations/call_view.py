"""A call as a person reads it: what it is in portable names, its command lines taken apart, its edits as lines.

Nothing is left out: what is not shown as a command or an edit is in `rest`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import PORTABLE, Tool
from proctor.policies.language.facts import ToolTable
from proctor.policies.shell.parser import read_commands

from .views import CallShown, CommandLine, CommandPart, Edit, EditLine

MOST_LINES = 400
"""Of one edit."""
MOST_TEXT = 200_000
"""Characters of a text that is compared or taken apart; what is longer is shown as it is."""
_NO_END = "(no line break at the end)"
_BEFORE = ("old_string", "oldString", "old_str", "oldText", "old_text")
_AFTER = ("new_string", "newString", "new_str", "newText", "new_text")
_PATHS = ("file_path", "filePath", "filepath", "path", "notebook_path", "abs_path")
_WHOLE = ("content", "new_source", "contents")
_PATCHES = ("diff", "patch", "unified_diff")
_EDITS = {"write", "edit"}


def call_shown(call: ToolCall, tools: Iterable[Tool]) -> CallShown:
    """A call made readable, with the help of its client's tools, if they are known."""
    table = ToolTable(tools)
    names = table.names(table.kind(call.name, call.input))
    own = (name.casefold() for name in names.own)
    acts = tuple(dict.fromkeys((*(name for name in own if name in PORTABLE), *names.acts)))
    if "bash" in acts:
        return _command(call, table, acts)
    if _EDITS & set(acts) or "delete" in acts or "move" in acts:
        edits, used = _edits(call.input)
        rest = {key: value for key, value in call.input.items() if key not in used}
        return CallShown(acts=acts, edits=edits, rest=rest)
    return CallShown(acts=acts, rest=call.input)


def _command(call: ToolCall, table: ToolTable, acts: tuple[str, ...]) -> CallShown:
    given = call.input.get("command")
    if given is None:
        given = table.input(call.name, call.input).get("command")
    line = shlex.join(given) if _is_words(given) else given
    if not isinstance(line, str) or len(line) > MOST_TEXT:
        return CallShown(acts=acts, rest=call.input)
    found = read_commands(line)
    parts = msgspec.convert(found.parts, tuple[CommandPart, ...], from_attributes=True)
    shown = CommandLine(line=line, parts=parts, dynamic=found.dynamic)
    rest = {key: value for key, value in call.input.items() if key != "command"}
    return CallShown(acts=acts, commands=(shown,), rest=rest)


def _is_words(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(word, str) for word in given) and bool(given)


def _edits(input: dict[str, Any]) -> tuple[tuple[Edit, ...], set[str]]:
    """The edits in an input, and which of its keys they show whole."""
    found: list[Edit] = []
    used: set[str] = set()
    path = _text(input, _PATHS)
    edit = _edit(input, path)
    if edit is not None:
        shown, keys = edit
        found.append(shown)
        used |= keys
    for key in ("edits", "changes", "diffs"):
        several = input.get(key)
        if isinstance(several, list) and several and all(isinstance(each, dict) for each in several):
            made = [_edit(each, _text(each, _PATHS) or path) for each in several]
            if all(each is not None for each in made):
                found += [_with_rest(*each, item) for each, item in zip(made, several, strict=True) if each]
                used.add(key)
    if found and path is not None and all(each.path == path for each in found):
        used |= {key for key in _PATHS if input.get(key) == path}
    return tuple(found), used


def _edit(item: dict[str, Any], path: str | None) -> tuple[Edit, set[str]] | None:
    """One edit, and the keys it shows whole."""
    before, after = _key(item, _BEFORE), _key(item, _AFTER)
    own = {key for key in _PATHS if item.get(key) == path}
    if after is not None:
        old = item[before] if before else ""
        return _cut(path, _compared(old, item[after])), own | {after} | ({before} if before else set())
    if (patch := _key(item, _PATCHES)) is not None:
        return _cut(path, _of_patch(item[patch])), own | {patch}
    if (whole := _key(item, _WHOLE)) is not None:
        return _cut(path, (EditLine(mark="+", text=line) for line in _lines(item[whole]))), own | {whole}
    return None


def _with_rest(edit: Edit, used: set[str], item: dict[str, Any]) -> Edit:
    return msgspec.structs.replace(edit, rest={key: value for key, value in item.items() if key not in used})


def _key(item: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((n for n in names if isinstance(item.get(n), str) and len(item[n]) <= MOST_TEXT), None)


def _text(item: dict[str, Any], names: Iterable[str]) -> str | None:
    key = _key(item, names)
    return None if key is None else str(item[key])


def _compared(old: str, new: str) -> Iterator[EditLine]:
    before, after = _lines(old), _lines(new)
    if old and new and old.endswith("\n") != new.endswith("\n"):
        (before if new.endswith("\n") else after).append(_NO_END)
    for line in list(unified_diff(before, after, lineterm="", n=3))[3:]:
        yield _line(line)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _of_patch(text: str) -> Iterator[EditLine]:
    return (_line(line) for line in text.split("\n"))


def _line(line: str) -> EditLine:
    if line.startswith("@@"):
        return EditLine(mark="@", text=line)
    return EditLine(mark=line[0], text=line[1:]) if line[:1] in ("+", "-", " ") else EditLine(mark=" ", text=line)


def _cut(path: str | None, lines: Iterable[EditLine]) -> Edit:
    whole = list(lines)
    return Edit(path=path, lines=tuple(whole[:MOST_LINES]), cut=max(0, len(whole) - MOST_LINES))
