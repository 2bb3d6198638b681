"""A word of a command line: its text, where that is known before the line runs."""

from __future__ import annotations

import re

import msgspec
from tree_sitter import Node

_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\(\n|[$`"\\])')
_EXPANDS = re.compile(r"^~|(?<!\\)[*?\[{]")


class Word(msgspec.Struct, frozen=True):
    """A word as written, and its text; None where the shell works it out (variables, globs, ...)."""

    source: str
    text: str | None

    @property
    def shown(self) -> str:
        """The text, or else what is written."""
        return self.source if self.text is None else self.text


def source_of(node: Node) -> str:
    """What is written at a node."""
    return (node.text or b"").decode()


def word_of(node: Node) -> Word:
    """The word at a node."""
    return Word(source_of(node), _text(node))


def _text(node: Node) -> str | None:
    source = source_of(node)
    match node.type:
        case "command_name" if len(node.children) == 1:
            return _text(node.children[0])
        case "word" | "number" | "variable_name":
            return None if _EXPANDS.search(source) else _ESCAPED.sub(_unescaped, source)
        case "raw_string":
            return source[1:-1]
        case "string" if all(child.type == "string_content" for child in node.named_children):
            return _ESCAPED_IN_QUOTES.sub(_unescaped, source[1:-1])
        case "ansi_c_string" if "\\" not in source:
            return source[2:-1]
        case "concatenation":
            parts = [_text(child) for child in node.children]
            whole = "".join(part for part in parts if part is not None)
            return None if None in parts else whole
        case _:
            return None


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]
