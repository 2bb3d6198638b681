"""A command line taken apart: every simple command it can run, however deep, before any of it runs."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from ..errors import UnjudgeableLineError
from .hazards import evaluates_names, evaluates_text
from .words import Word, source_of, word_of
from .wrappers import nested_in

DYNAMIC = "dynamic"
"""The name of a command that is known only when it runs."""
REDIRECT = "redirect"
"""The name of a redirection that writes a file."""
MAX_DEPTH = 20

_BASH = Language(tree_sitter_bash.language())
_STANDARD_PLACES = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_RESERVED = (
    *("if", "then", "else", "elif", "fi", "case", "in", "esac", "for", "select", "while", "until", "do", "done"),
    *("function", "{", "}", "[[", "]]"),
)
_HARMLESS_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")
_BACKSLASH_AT_AN_EDGE = re.compile(r"\n[ \t]*\\|(?<![ \t])\\$", re.MULTILINE)
"""Where the parser sees a blank, and the shell the end of a command, or of nothing at all."""
_WRITES = (">", ">>", "&>", "&>>", ">|", "<>", ">&")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a line does: a simple command, or a file it writes.

    `exact` is false when words of it are worked out by the shell; `argv` then shows them as written, and `unknown`
    has their places in it.
    """

    name: str
    command: str
    argv: tuple[str, ...] = ()
    exact: bool = True
    unknown: tuple[int, ...] = ()


def parse_line(line: str) -> list[Part]:
    """Every part of a command line, in the order of the text, those of nested lines included.

    Raises:
        UnjudgeableLineError: the line cannot be taken apart with certainty, so it must not run.
    """
    parts: list[Part] = []
    _Lines(parts, depth=0).read(line)
    if not parts:
        raise UnjudgeableLineError("the command line holds no command")
    return parts


class _Lines:
    """Reads one line, and the lines within it one deeper."""

    def __init__(self, parts: list[Part], *, depth: int) -> None:
        self._parts = parts
        self._depth = depth
        self._behind: dict[int, list[Node]] = {}

    def read(self, line: str) -> None:
        if self._depth > MAX_DEPTH:
            raise UnjudgeableLineError(f"the command line is nested more than {MAX_DEPTH} deep")
        _check_characters(line)
        root = Parser(_BASH).parse(line.encode()).root_node
        if root.has_error:
            raise UnjudgeableLineError(f"the command line cannot be parsed: {_place_of_error(root)}")
        self._walk(root)

    def _walk(self, start: Node) -> None:
        pending = [start]
        while pending:
            node = pending.pop()
            self._visit(node)
            pending.extend(reversed(node.named_children))

    def _visit(self, node: Node) -> None:
        if evaluates_text(node):
            self._add(DYNAMIC, source_of(node))
        match node.type:
            case "command":
                self._command(node)
            case "declaration_command" | "unset_command":
                keyword = source_of(node.children[0])
                self._simple([Word(keyword, keyword), *map(word_of, node.children[1:])], source_of(node))
            case "test_command":
                self._add("test", source_of(node), [word_of(child) for child in node.children])
            case "file_redirect":
                self._redirect(node)
            case "redirected_statement":
                self._redirected(node)

    def _redirected(self, node: Node) -> None:
        """Words behind a redirection are its command's, as those before it are."""
        words = [word for redirect in node.children_by_field_name("redirect") for word in _words_behind(redirect)]
        if not words:
            return
        command = _last_command(node)
        if command is None:
            behind = source_of(words[0])
            raise UnjudgeableLineError(f"the command line cannot be parsed: `{behind}` stands behind a redirection")
        self._behind[command.id] = [*words, *self._behind.get(command.id, ())]

    def _command(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        if name is None:
            return
        _check_blanks(node)
        behind = self._behind.get(node.id, [])
        words = [word_of(word) for word in (name, *node.children_by_field_name("argument"), *behind)]
        self._simple(words, _source(node, behind), fed=_fed_text(node))

    def _simple(self, words: Sequence[Word], source: str, *, fed: str | None = None) -> None:
        if not words:
            return
        path = words[0].text
        if words[0].source in _RESERVED:  # taken for a name by the parser, and for a compound by the shell
            raise UnjudgeableLineError(
                f"the command line cannot be parsed: `{path}` stands where a command is expected"
            )
        if not path:
            self._add(DYNAMIC, source, words)
            return
        name = os.path.basename(path)
        self._add(name or path, source, words)
        if "/" in path and os.path.dirname(path) not in _STANDARD_PLACES:
            self._add(path, source, words)
        if evaluates_names(name, words[1:]):
            self._add(DYNAMIC, source, words)
        for nested in nested_in(name, words[1:]):
            if nested.unknown and fed is not None and len(words) == 1:
                _Lines(self._parts, depth=self._depth + 1).read(fed)
            elif nested.unknown:
                self._add(DYNAMIC, source, words)
            elif nested.line is not None:
                _Lines(self._parts, depth=self._depth + 1).read(nested.line)
            else:
                self._simple(nested.words, " ".join(word.source for word in nested.words))

    def _redirect(self, node: Node) -> None:
        operator = next((c.type for c in node.children if not c.is_named), "")
        target = node.child_by_field_name("destination")
        if operator not in _WRITES or target is None:
            return
        word = word_of(target)
        if word.text in _HARMLESS_TARGETS or (operator == ">&" and (word.text or "").rstrip("-").isdigit()):
            return
        self._add(REDIRECT, source_of(node), [word])

    def _add(self, name: str, source: str, words: Sequence[Word] = ()) -> None:
        self._parts.append(
            Part(
                name=name,
                command=source,
                argv=tuple(word.shown for word in words),
                exact=all(word.text is not None for word in words) and name != DYNAMIC,
                unknown=tuple(n for n, word in enumerate(words) if word.text is None),
            )
        )


def _check_blanks(command: Node) -> None:
    """The shell takes for one word what the parser splits without a blank."""
    for before, after in pairwise(command.named_children):
        if before.end_byte == after.start_byte and not after.type.endswith("_redirect"):
            raise UnjudgeableLineError(f"the command line cannot be parsed: put a blank before `{source_of(after)}`")


def _words_behind(redirect: Node) -> list[Node]:
    """What is written between a redirection and the next, or the end of the command."""
    if redirect.type == "file_redirect":
        return redirect.children_by_field_name("destination")[1:]
    inner = redirect.children_by_field_name("redirect")
    return [*redirect.children_by_field_name("argument"), *(word for one in inner for word in _words_behind(one))]


def _last_command(node: Node | None) -> Node | None:
    """The simple command that a statement ends with, if it does: its redirections are that command's."""
    while node is not None and node.type in ("redirected_statement", "pipeline", "list", "negated_command"):
        whole = node.type != "redirected_statement"
        node = node.named_children[-1] if whole else node.child_by_field_name("body")
    return node if node is not None and node.type == "command" else None


def _source(command: Node, behind: Sequence[Node]) -> str:
    return " ".join(source_of(node) for node in (command, *behind))


def _fed_text(command: Node) -> str | None:
    """The text of the here-document a command reads, if all of it is known and it is the only input."""
    statement = command.parent
    if statement is None or statement.type != "redirected_statement":
        return None
    redirects = statement.children_by_field_name("redirect")
    if len(redirects) != 1 or redirects[0].type != "heredoc_redirect":
        return None
    start, *others = redirects[0].named_children
    body = next((child for child in others if child.type == "heredoc_body"), None)
    if body is None or [c.type for c in others] != ["heredoc_body", "heredoc_end"]:
        return None
    quoted = source_of(start)[:1] in ("'", '"')
    return source_of(body) if quoted else None


def _check_characters(line: str) -> None:
    """Characters that the parser and the shell take differently."""
    if _BACKSLASH_AT_AN_EDGE.search(line):
        raise UnjudgeableLineError(
            "the command line has a `\\` at the start of a line, or right behind a word at the end of one; "
            "write it on one line, or put a blank before that `\\`"
        )
    for character in line:
        if character in " \t\n":
            continue
        if character.isspace() or not (character.isprintable() or ord(character) > 0x2FF):
            raise UnjudgeableLineError(f"the command line holds the character {character!r}; write it another way")
    if not line.isascii():
        try:
            line.encode()
        except UnicodeEncodeError:
            raise UnjudgeableLineError("the command line is not valid Unicode") from None


def _place_of_error(root: Node) -> str:
    node: Node | None = root
    while node is not None:
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    assert node is not None
    row, column = node.start_point
    return f"line {row + 1}, column {column + 1}"
