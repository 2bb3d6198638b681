"""Places where bash runs text that is only known when it gets there: nothing there can be judged before.

Bash evaluates the values of variables as arithmetic, and a subscript within such a value may run commands
(`x='a[$(rm y)]'; ((x))`). So arithmetic on anything but numbers counts as a dynamic command, and so do
the builtins that evaluate the names they are given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from .words import Word, source_of

STEERING = re.compile(r"(PATH|IFS|ENV|BASH_.*|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS4|LD_.*|DYLD_.*)\+?=")
"""Assignments after which the name of a command no longer says what runs."""

_PLAIN_EXPANSION = re.compile(
    r"\$\{(#?\w+|[@*?#$-]|#?\w+\[([0-9]+|[@*])\]|\w+(:?[-=?+]|##?|%%?|//?|\^\^?|,,?).*)\}", re.DOTALL
)
_COMPARES_NUMBERS = re.compile(r"\s-(eq|ne|lt|le|gt|ge)\s")
_LOOKS_UP_NAMES = re.compile(r"(^|\s)-[vR]\s")
_NOT_NUMBERS = ("variable_name", "simple_expansion", "expansion", "command_substitution", "word", "subscript")
_NAME_BUILTINS = ("read", "mapfile", "readarray", "getopts", "wait", "unset")


def evaluates_text(node: Node) -> bool:
    """Whether this node, by itself, makes bash run text that nobody can see in the line."""
    match node.type:
        case "arithmetic_expansion" | "c_style_for_statement":
            return _has_more_than_numbers(node)
        case "compound_statement":
            return source_of(node).startswith("((") and _has_more_than_numbers(node)
        case "expansion":
            return not _PLAIN_EXPANSION.fullmatch(source_of(node))
        case "array":
            return any(source_of(element).startswith("[") for element in node.named_children)
        case "subscript":
            index = node.child_by_field_name("index")
            return index is None or not re.fullmatch(r"[0-9]+|[@*]", source_of(index))
        case "test_command":
            return _tests_text(source_of(node))
        case "variable_assignment":
            return STEERING.match(source_of(node)) is not None
        case "function_definition":
            name = node.child_by_field_name("name")
            return name is None or not re.fullmatch(r"[\w.-]+", source_of(name))
        case _:
            return False


def evaluates_names(name: str, arguments: Sequence[Word]) -> bool:
    """Whether this builtin, given these words, evaluates text among them."""
    texts = [word.text for word in arguments]
    if name in ("declare", "typeset", "local", "readonly", "export"):
        return any(_declares_unseen(word) for word in arguments)
    if name == "let":
        return True
    if name == "printf":
        return bool(texts) and (texts[0] is None or texts[0].startswith("-v"))
    if name in ("test", "["):
        return "-v" in texts or "-R" in texts
    return name in _NAME_BUILTINS and any(text is None or "[" in text or text[:2] == "-C" for text in texts)


def _declares_unseen(word: Word) -> bool:
    if re.match(r"\w+\+?=", word.source):
        return False
    return word.text is None or "[" in word.text or re.match(r"-\w*[in]", word.text) is not None


def _tests_text(source: str) -> bool:
    if _LOOKS_UP_NAMES.search(source):
        return True
    return source.startswith("[[") and _COMPARES_NUMBERS.search(source) is not None


def _has_more_than_numbers(node: Node) -> bool:
    return any(inner.type in _NOT_NUMBERS for inner in _descendants(node))


def _descendants(node: Node) -> Iterator[Node]:
    for child in node.named_children:
        yield child
        yield from _descendants(child)
