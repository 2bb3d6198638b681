"""Redirections, and the here-documents that some of them announce."""

from __future__ import annotations

import re
from collections.abc import Callable

from .scanner import Scanner
from .sink import Sink
from .words import Word, literal

_REDIRECTION = re.compile(r"(&>>?|[0-9]{0,2}(?:<<<|<<-?|<>|<&|>>|>\||>&|[<>]))")
_DELIMITER = re.compile(r"'[\w.-]+'|\"[\w.-]+\"|[\w.-]+(?=[ \t\n;|&<>])", re.ASCII)
_READS = ("<", "<&")
_HARMLESS_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")
_OWN_DESCRIPTORS = re.compile("[0-2]?-?")
_SOCKET = re.compile(r"/+dev/+(tcp|udp)/.*", re.DOTALL)
"""What bash opens as a connection."""
_FILE = re.compile(r"~/.*|\"?\$(\{HOME\}|HOME)/.*|.*/[\w-]*\.[\w.-]*\"?", re.DOTALL)
"""A path that is not known and certainly none of those: a port has no dot."""


class Redirections:
    """Reads redirections; the here-documents they announce are `pending` until the end of their line.

    Args:
        scan: the text.
        sink: told of files that are written.
        expand: reads a here-document that the shell expands.
    """

    def __init__(self, scan: Scanner, sink: Sink, expand: Callable[[str], None]) -> None:
        self._scan = scan
        self._sink = sink
        self._expand = expand
        self._pending: list[tuple[str, bool, bool]] = []

    @property
    def pending(self) -> bool:
        """Whether a here-document is announced and not yet read."""
        return bool(self._pending)

    def word(self) -> Word:
        """The word here; not one of several lines before a here-document."""
        word = self._scan.word()
        if self._pending and "\n" in word.source:
            self._scan.fail("a here-document before a word of several lines")
        return word

    def take(self) -> bool:
        """Go past a redirection, if one stands here."""
        self._scan.skip_blanks()
        start = self._scan.pos
        found = _REDIRECTION.match(self._scan.text, start)
        if found is None or self._scan.text[found.end() - 1 : found.end() + 1] in ("<(", ">("):
            return False
        operator = found[0].lstrip("0123456789")
        if len(found[0]) - len(operator) > 1:
            self._scan.only_bash(found[0])
        self._scan.pos = found.end()
        if self._scan.peek() and self._scan.peek() in "<>&|(":
            self._scan.fail()
        self._scan.skip_blanks()
        if operator in ("<<", "<<-"):
            self._announce(strips=operator == "<<-")
            return True
        if operator in ("<<<", "&>", "&>>"):
            self._scan.only_bash(operator)
        elif operator == ">" and self._scan.peek() == "!":
            self._scan.only_bash(">!")
        word = self.word()
        if operator != "<<<":
            self._target(operator, word, self._scan.text[start : self._scan.pos])
        self._scan.skip_blanks()
        return True

    def _target(self, operator: str, word: Word, source: str) -> None:
        if operator in (">&", "<&") and re.fullmatch("[0-9]*-?", word.text or "x"):
            if _OWN_DESCRIPTORS.fullmatch(word.text or ""):
                return
            word = literal(f"&{word.text}")
        elif operator in (">&", "<&"):
            self._scan.only_bash(operator)
            if not re.fullmatch(r"[\w./-]+", word.text or "", re.ASCII):
                self._sink.dynamic("bash expands this target twice", source)
        if _may_be_socket(word):
            self._sink.dynamic("it can be a connection", source)
        elif word.text not in _HARMLESS_TARGETS:
            self._sink.redirect(word, source, "read" if operator in _READS else "write")

    def _announce(self, *, strips: bool) -> None:
        found = self._scan.match(_DELIMITER)
        if found is None or self._scan.peek() not in ("\n", " ", "\t", ";", "|", "&", "<", ">", ")"):
            self._scan.fail("name the end of a here-document by letters")
        quoted = found[0][0] in "'\""
        self._pending.append((found[0].strip("'\""), quoted, strips))
        self._scan.skip_blanks()

    def read_documents(self) -> None:
        """Read what was announced in the line that has ended here."""
        documents, self._pending = self._pending, []
        for delimiter, quoted, strips in documents:
            body = self._body(delimiter, quoted=quoted, strips=strips)
            if not quoted:
                self._expand(body)

    def _body(self, delimiter: str, *, quoted: bool, strips: bool) -> str:
        lines: list[str] = []
        while True:
            end = self._scan.text.find("\n", self._scan.pos)
            line = self._scan.text[self._scan.pos : end if end >= 0 else None]
            bare = line.lstrip("\t") if strips else line
            self._scan.pos = end + 1 if end >= 0 else len(self._scan.text)
            if bare == delimiter:
                return "".join(lines)
            if end < 0 or bare.startswith(delimiter) or (not quoted and bare.endswith("\\")):
                self._scan.fail(f"`{delimiter}` is missing, or a line of the here-document looks like it")
            lines.append(bare + "\n")


def _may_be_socket(word: Word) -> bool:
    if word.text is not None:
        return _SOCKET.match(word.text) is not None
    begins = word.start[:9]
    return begins in ("/dev/tcp/"[: len(begins)], "/dev/udp/"[: len(begins)]) and not _FILE.fullmatch(word.source)
