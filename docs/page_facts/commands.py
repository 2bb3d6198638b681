"""The command line, from its parser."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from proctor.adapters.cli.app import SECTIONS, app

from .markdown import code, codes, paragraph, table


def reference(_: str) -> str:
    """Every command with its help, arguments and options, under the headings of `proctor --help`."""
    root = click.Context(app, info_name="proctor")
    parts = []
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for name in names:
            found = app.get_command(root, name)
            assert found is not None
            walked = _walk(found, click.Context(found, info_name=name, parent=root))
            parts += [_section(command, context) for command, context in walked]
    return "\n".join(parts)


def _walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _walk(found, click.Context(found, info_name=name, parent=context))


def _section(command: click.Command, context: click.Context) -> str:
    level = "#" * (context.command_path.count(" ") + 2)
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    parts = [f"{level} `{context.command_path}`", f"```text\n{usage}\n```", *_help(command)]
    given = (each for each in command.get_params(context) if "--help" not in each.opts)
    options = [each for each in given if isinstance(each, click.Option)]
    if options:
        parts.append(table(["option", "default", "meaning"], (_option(each, context) for each in options)).rstrip())
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command) -> Iterator[str]:
    """Its paragraphs; those that the parser prints as they stand are examples."""
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b"):
            lines = part.removeprefix("\b").strip("\n")
            kind = "sh" if lines.startswith("proctor ") else "text"
            yield f"```{kind}\n{lines}\n```"
        else:
            yield paragraph(part)


def _option(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    assert record is not None
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    default = option.get_default(context)
    shown = code(default) if isinstance(default, (str, int, float)) and not isinstance(default, bool) else ""
    more = " Required." if option.required else " May be repeated." if option.multiple else ""
    return [codes(f"{name}{value}" for name in option.opts), shown, (option.help or "") + more]
