"""Errors of the command line's parser, worded as all others are."""

from __future__ import annotations

import re

import click

_PHRASES = (
    (re.compile(r"^Got unexpected extra arguments? \((.*)\)$"), r"there is no place for `\1`"),
    (re.compile(r"^No such (option|command) '(.*?)'"), r"there is no \1 `\2`"),
    (re.compile(r"is not a valid (?:integer|float)(?: range)?$"), "is not a number"),
    (re.compile(r"^(\S+) is not in the range x>=(\S+)$"), r"`\1` is less than \2"),
    (re.compile(r"'([^']*)'"), r"`\1`"),
)


def usage_text(error: click.ClickException) -> str:
    """What is wrong, and where help is."""
    return f"{_sentence(error)}{_help(error)}"


def _sentence(error: click.ClickException) -> str:
    parameter = getattr(error, "param", None)
    if isinstance(error, click.MissingParameter) and parameter is not None:
        return f"`{_name(parameter)}` is missing"
    if isinstance(error, click.BadParameter) and parameter is not None:
        return f"`{_name(parameter)}`: {_worded(error.message)}"
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        return f"there is no option `{error.option_name}`; did you mean `{error.possibilities[0]}`?"
    return _worded(error.format_message())


def _help(error: click.ClickException) -> str:
    """Where to read on, for what the parser itself found; our own messages say what to do."""
    ctx = getattr(error, "ctx", None)
    missing = isinstance(error, click.MissingParameter)
    unknown = not isinstance(error, click.BadParameter) and error.message[:1].isupper()
    suggested = isinstance(error, click.NoSuchOption) and bool(error.possibilities)
    if ctx is None or suggested or not (missing or unknown):
        return ""
    return f"; `{ctx.command_path} --help` shows what there is"


def _name(parameter: click.Parameter) -> str:
    shown = parameter.metavar or ""
    if isinstance(parameter, click.Option):
        return f"{max(parameter.opts, key=len)} {shown}".rstrip()
    return shown or (parameter.name or "").upper()


def _worded(text: str) -> str:
    """The parser's own sentences; ours begin in lower case and stay as they are."""
    text = text.strip()
    if not (text[:1].isupper() or text.endswith(".")):
        return text
    text = text.removesuffix(".")
    for pattern, words in _PHRASES:
        text = pattern.sub(words, text)
    return text[:1].lower() + text[1:]
