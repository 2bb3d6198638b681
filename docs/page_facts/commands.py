"""The command line, from its parser."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain

import click

from proctor.adapters.cli.app import SECTIONS, app

from .markdown import codes, entries, paragraph

_COMMON = 3
"""An option of so many commands, of one meaning, stands at the top of the page; one of two, at the first of them."""
_SAID_ONCE = ("--json", "--store", "-o")
"""Common options that commands do not list, because the introduction says which take them."""
_INTRODUCTION = (
    "Every command takes `--json`; those that use the store take `--store`. `--help` says which take `-o`. "
    "The section of a command names the others that it takes."
)

_Row = tuple[str, ...]
_OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]*(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)")
"""An option in the words of a help text, outside code."""


def reference(_: str) -> str:
    """Every command with what it does, its exit codes, arguments and options, under the headings of `proctor --help`;
    first the options that many of them have. Its help says the rest.
    """
    root = click.Context(app, info_name="proctor")
    commands = [_walk(*_named(name, root)) for name in chain(*SECTIONS.values())]
    rows = Counter(tuple(_option(*each)) for each in chain(*(_options(*each) for each in chain(*commands))))
    common = {row for row, times in rows.items() if times >= _COMMON}
    shared = entries(row for row in rows if row in common)
    first: dict[_Row, str] = {}
    parts = [f"## Common options\n\n{_INTRODUCTION}\n\n{shared}"]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for name in names:
            parts += [_section(command, context, common, first) for command, context in _walk(*_named(name, root))]
    return "\n".join(parts)


def _named(name: str, root: click.Context) -> tuple[click.Command, click.Context]:
    found = app.get_command(root, name)
    assert found is not None
    return found, click.Context(found, info_name=name, parent=root)


def _walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _walk(found, click.Context(found, info_name=name, parent=context))


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[click.Option, click.Context]]:
    for each in command.get_params(context):
        if isinstance(each, click.Option) and "--help" not in each.opts:
            yield each, context


def _section(command: click.Command, context: click.Context, common: Collection[_Row], first: dict[_Row, str]) -> str:
    level = "#" * (context.command_path.count(" ") + 2)
    pieces = [] if isinstance(command, click.Group) else command.collect_usage_pieces(context)
    arguments = " ".join(piece for piece in pieces if piece != "[OPTIONS]")
    usage = [f"`{context.command_path} {arguments}`"] if arguments else []
    parts = [f"{level} `{context.command_path}`", *usage, *_help(command)]
    rows = [tuple(_option(*each)) for each in _options(command, context)]
    elsewhere = {row: first.setdefault(row, context.command_path) for row in rows if row not in common}
    if own := [row for row, path in elsewhere.items() if path == context.command_path]:
        parts.append(entries(own).rstrip())
    for path in sorted({*elsewhere.values()} - {context.command_path}):
        names = codes(_name(row) for row in elsewhere if elsewhere[row] == path)
        parts.append(f"As in [`{path}`](#{path.replace(' ', '-')}): {names}.")
    if shared := [name for row in rows if row in common and (name := _name(row)) not in _SAID_ONCE]:
        parts.append(f"Also {codes(shared)}.")
    return "\n\n".join(parts) + "\n"


def _name(row: _Row) -> str:
    return row[0].split()[0].strip("`,")


def _help(command: click.Command) -> Iterator[str]:
    """Its paragraphs, without examples, which `--help` shows as they are."""
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if not part.startswith("\b"):
            yield _coded(part)


def _option(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    assert record is not None
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    default = option.get_default(context)
    has_one = isinstance(default, (str, int, float)) and not isinstance(default, bool) and not option.is_flag
    said = option.help or ""
    meaning = said + (" Required." if option.required else "")
    shown = f" [default: {default}]" if has_one and "[default" not in meaning else ""
    return [codes(f"{name}{value}" for name in option.opts), "", _coded(meaning + shown)]


def _coded(text: str) -> str:
    """A paragraph with the options in it as code."""
    return _OPTION.sub(r"`\g<0>`", paragraph(text))
