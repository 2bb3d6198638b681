"""The characters of a command line as words and operators, as bash and dash read them.

Only syntax that both read alike, or that dash rejects, is accepted; everything else is dynamic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .builtins import NUMERIC_OPERATORS, VARIABLE_OPERATORS, changes_meaning
from .words import ANYTHING, HARMLESS_TARGETS, HOME, INTEGER, NAME, NUMBER, PATH, Cursor, Word, WordBuilder, literal

if TYPE_CHECKING:
    from .programs import CommandCollector


META: Final = " \t\n|&;()<>"
_PARAMETER = re.compile(rf"{NAME}|[0-9]|[@*#?$!-]")
_IN_BRACES = re.compile(r"#(?=[A-Za-z0-9_@*}])")
_NAMED = re.compile(rf"{NAME}|[0-9]+|[@*#?$!-]")
_SUBSCRIPT = re.compile(r"\[([0-9]+|[@*])\]")
_EVALUATING = re.compile(r"\$\{(![A-Za-z0-9_@*]+|#?\w+\[(?![0-9]+\])[\w$]+\]|\w+@[A-Za-z])\}")
_DEFAULT = re.compile(r":?[-+=?]|##?|%%?")
_BASH_FORM = re.compile(r"//?|\^\^?|,,?")
_SLICE = re.compile(r":( ?-?[0-9]+)(:-?[0-9]+)?(?=\})")
_PLAIN_IN_BRACES = re.compile(r"[^\\$`\"'{}()<>|&;\n]+")
_SIMPLE_ESCAPES = re.compile(r"(?:[^\\]|\\[nt\\'\"])*", re.DOTALL)
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,;]+")
_BEHIND_TILDE = re.compile(r"[\w+.-]*")
"""A user's name, whose home is meant; `+` and `-` are variables."""
_SHAPES = {
    **dict.fromkeys(("$#", "$?", "$$", "$!"), NUMBER),
    **dict.fromkeys(("$PWD", "${PWD}"), PATH),
    **dict.fromkeys(("$HOME", "${HOME}"), HOME),
}
"""What parameters become that no understood line sets."""


@dataclass(slots=True, eq=False, kw_only=True)
class Scanner(Cursor):
    """Reads one text from left to right.

    Args:
        substitution: reads a command substitution, from behind its `(` to its `)`; True if it has an input. It gives
            the shape of what is printed.
        backquoted: reads the text between backquotes, as above.
        dynamic: called for each place where the shell runs something unknown.
    """

    substitution: Callable[[bool], str]
    backquoted: Callable[[str], str]
    dynamic: Callable[[str, str], None]

    def word(self) -> Word:
        start = self.pos
        builder = WordBuilder()
        while (char := self.peek()) and (char not in META or self._at_process_substitution()):
            self._piece(char, builder, start)
        if self.pos == start:
            self.fail()
        if char == "(":
            self.fail("put a blank before `(`")
        source = self.text[start : self.pos]
        if char in ("<", ">") and re.fullmatch(r"[0-9]+|\{.*\}", source):
            self.fail("put a blank before the redirection")
        if source in ("[", "[[", "{}", "{", "}"):
            builder = WordBuilder()
            builder.add(source)
        return builder.build(source)

    def _at_process_substitution(self) -> bool:
        return self.peek(2) in ("<(", ">(")

    def _piece(self, char: str, builder: WordBuilder, start: int) -> None:
        match char:
            case "\\":
                self._escape(builder)
            case "'":
                self.pos += 1
                builder.add(self._up_to("'"))
            case '"':
                self._quoted(builder)
            case "$":
                self._dollar(builder, quoted=False)
            case "`":
                self._backquotes(builder, quoted=False)
            case "<" | ">":
                self.only_bash(self.peek(2))
                self.pos += 2
                self.substitution(char == ">")
                builder.add_unknown()
            case _:
                self._plain(char, builder, start)

    def _plain(self, char: str, builder: WordBuilder, start: int) -> None:
        """Read one unquoted character, which the shell may expand."""
        if not char.isascii() and {0x85, 0xA0} & set(char.encode()):
            self.fail("some shells take part of this character for a blank; quote it")
        self.pos += 1
        if char in "*?[":
            builder.add_unknown(single=False, opens=char == "[")
        elif char == "{" and self.accept("}"):
            builder.add("{}")
        elif char == "{":
            builder.add_unknown(splits=True)
        elif (char == "=" and self.pos - 1 == start and self.peek() not in ("", *META, "=", "~")) or (
            char == "~" and (self.pos - 1 == start or self.text[self.pos - 2] in "=:")
        ):
            if char == "~":
                self.match(_BEHIND_TILDE)
            builder.add_unknown(PATH if char == "~" else ANYTHING)
        else:
            builder.add(char)

    def _escape(self, builder: WordBuilder) -> None:
        if self.peek(2) in ("\\", "\\\n"):
            self.fail("put a blank before the `\\` at the end of a line")
        builder.add(self.peek(2)[1])
        self.pos += 2

    def _up_to(self, end: str) -> str:
        found = self.text.find(end, self.pos)
        if found < 0:
            self.fail(f"`{end}` is missing")
        text = self.text[self.pos : found]
        self.pos = found + 1
        return text

    def _quoted(self, builder: WordBuilder) -> None:
        self.pos += 1
        builder.add("")
        while (char := self.peek()) != '"':
            if not char:
                self.fail('`"` is missing')
            self.quoted_piece(char, builder)
        self.pos += 1

    def quoted_piece(self, char: str, builder: WordBuilder, *, document: bool = False) -> None:
        """One piece of a double-quoted text, or of a here-document."""
        if char == "$":
            self._dollar(builder, quoted=True)
        elif char == "`":
            self._backquotes(builder, quoted=True)
        elif char == "\\" and (self.peek(2)[1:] in "$`\\\n" or (self.peek(2) == '\\"' and not document)):
            if len(self.peek(2)) < 2:
                self.fail("a `\\` at the end")
            builder.add(self.peek(2)[1].strip("\n"))
            self.pos += 2
        else:
            builder.add(char)
            self.pos += 1

    def _backquotes(self, builder: WordBuilder, *, quoted: bool) -> None:
        self.pos += 1
        text = self._up_to("`")
        if "\\" in text or (quoted and ('"' in text or "'" in text)):
            self.fail("write `$(...)` for backquotes with quotes in them")
        self._expanded(builder, self.backquoted(text), quoted=quoted)

    def _dollar(self, builder: WordBuilder, *, quoted: bool) -> None:
        """Read what begins with `$`: a quoted text, something that the shell expands, or the character itself."""
        start = self.pos
        following = self.text[start + 1 : start + 2]
        if following == "'" and not quoted:
            self._ansi_quoted(builder)
        elif (shape := self._expansion(following, quoted=quoted)) is not None:
            source = self.text[start : self.pos]
            if self.shell != "bash" and following not in ("(", "{") and self.peek() == ":":
                builder.add_unknown(splits=not quoted, opens=True)
            else:
                self._expanded(builder, shape, quoted=quoted, single=following == "(" or "@" not in source)
        elif following == "[" or not following.isascii() or (following == '"' and not quoted):
            self.fail("shells differ in this")
        else:
            if following in ("+", "=", "~", "^", "%"):
                self.only_bash("$" + following)
            builder.add("$")
            self.pos += 1

    def _expanded(self, builder: WordBuilder, shape: str, *, quoted: bool, single: bool = True) -> None:
        """Add what an expansion becomes: unless it is quoted, blanks split it, and without any text it is no word."""
        if quoted:
            builder.add_unknown(shape, single=single)
        elif shape in (ANYTHING, PATH):
            builder.add_unknown(splits=True)
        else:
            builder.add_unknown(shape, single=False)

    def _expansion(self, following: str, *, quoted: bool) -> str | None:
        """Go past what the shell expands here: `$(...)`, `${...}` or a parameter, and give the shape of what it
        becomes; None if it is none of them.
        """
        start = self.pos
        if following == "(":
            return self._parenthesis(start)
        if following == "{":
            self._braces(start, quoted=quoted)
        elif _PARAMETER.match(self.text, start + 1):
            self.pos += 1
            self.match(_PARAMETER)
            if self.peek() == "[":  # zsh evaluates a subscript, and what is behind an odd sign
                self.only_bash("$x[")
        else:
            return None
        return _SHAPES.get(self.text[start : self.pos], ANYTHING)

    def _parenthesis(self, start: int) -> str:
        if self.text.startswith("((", start + 1):
            self.pos += 3
            self.arithmetic(start)
            return INTEGER
        self.pos += 2
        return self.substitution(False)

    def arithmetic(self, start: int) -> None:
        """From behind `((` to behind `))`. Bash evaluates the values of variables, so that they may run commands."""
        depth, only_numbers = 0, True
        while self.peek(2) != "))" or depth:
            if self.accept("("):
                depth += 1
            elif depth and self.accept(")"):
                depth -= 1
            elif self.peek() == "$":
                self._dollar(piece := WordBuilder(), quoted=True)
                only_numbers = only_numbers and piece.is_number
            elif (plain := self.match(_ARITHMETIC)) is not None:
                only_numbers = only_numbers and re.search(r"[^\W\d]", plain[0]) is None
            else:
                self.fail("this arithmetic is not understood")
        if not only_numbers:
            self.dynamic("the values of variables are evaluated as arithmetic", self.text[start : self.pos + 2])
        self.pos += 2

    def _ansi_quoted(self, builder: WordBuilder) -> None:
        self.only_bash("$'")
        self.pos += 2
        found = self.match(re.compile(r"((?:[^'\\]|\\.)*)'", re.DOTALL))
        if found is None:
            self.fail("`'` is missing")
        if _SIMPLE_ESCAPES.fullmatch(found[1]):
            builder.add(re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), found[1]))
        else:
            builder.add_unknown()

    def _braces(self, start: int, *, quoted: bool) -> None:
        evaluating = _EVALUATING.match(self.text, start)
        if evaluating is not None:
            self.only_bash(evaluating[0])
            self.dynamic("the value of a variable is evaluated", evaluating[0])
            self.pos = evaluating.end()
            return
        self.pos = start + 2
        length = self.match(_IN_BRACES) is not None
        if length and self.peek() == "}":
            length = False
            self.pos -= 1
        name = self.match(_NAMED)
        if name is None:
            self.fail("this expansion is not understood")
        if self.peek() == "[":
            self.only_bash(self.text[start : self.pos + 1])
            if self.match(_SUBSCRIPT) is None:
                self.fail("this subscript is not understood")
        if not self.accept("}"):
            self._operator(name[0], length=length, quoted=quoted)

    def _operator(self, name: str, *, length: bool, quoted: bool) -> None:
        operator = self.match(_DEFAULT)
        if operator is None:
            self.only_bash("${...}")
            if self.match(_SLICE) is None and self.match(_BASH_FORM) is None:
                self.fail("this expansion is not understood")
        elif "=" in operator[0] and changes_meaning(name, None):
            self.dynamic(
                f"`{name}` is set to a value that only the run knows", self.text[self.pos - 8 : self.pos + 8]
            )
        if length:
            self.fail("this expansion is not understood")
        while not self.accept("}"):
            self._in_braces(quoted=quoted)

    def _in_braces(self, *, quoted: bool) -> None:
        builder = WordBuilder()
        match self.peek():
            case "$":
                self._dollar(builder, quoted=quoted)
            case "`":
                self._backquotes(builder, quoted=quoted)
            case "\\" if self.peek(2)[1:] not in ("", "\n"):
                self.pos += 2
            case "'" if not quoted:
                self.pos += 1
                self._up_to("'")
            case '"' if not quoted:
                self._quoted(builder)
            case _:
                if self.match(_PLAIN_IN_BRACES) is None:
                    self.fail("this expansion is not understood")


_REDIRECTION = re.compile(r"(&>>?|[0-9]{0,2}(?:<<<|<<-?|<>|<&|>>|>\||>&|[<>]))")
_DELIMITER = re.compile(r"'[\w.-]+'|\"[\w.-]+\"|[\w.-]+(?=[ \t\n;|&<>])", re.ASCII)
_RANGE = re.compile(r"<[0-9]*-[0-9]*>")
"""In zsh, a pattern of numbers within a word."""
_CLOSED_BEFORE_WORD = re.compile(r"-(?=[^ \t\n|&;()<>])")
_READS = ("<", "<&")
_OWN_DESCRIPTORS = re.compile("[0-2]?-?")
_SOCKET = re.compile(r"/+dev/+(tcp|udp)/.*", re.DOTALL)
"""Paths that bash opens as a connection."""

_FILE = re.compile(r"~/.*|\"?\$(\{HOME\}|HOME)/.*|.*/[\w-]*\.[\w.-]*\"?", re.DOTALL)
"""Unknown paths that are certainly none of those, as a port has no dot."""


class Redirections:
    """Reads redirections; the here-documents they announce are `pending` until the end of their line, and `expand`
    reads one that the shell expands.
    """

    def __init__(self, scan: Scanner, collector: CommandCollector, expand: Callable[[str], None]) -> None:
        self._scan = scan
        self._collector = collector
        self._expand = expand
        self._pending: list[tuple[str, bool, bool]] = []
        self.inputs = 0
        """How many of them have given a command its input so far."""

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

    def accept(self) -> bool:
        """Go past a redirection, if one stands here."""
        self._scan.skip_blanks()
        start = self._scan.pos
        found = _REDIRECTION.match(self._scan.text, start)
        if found is None or self._scan.text[found.end() - 1 : found.end() + 1] in ("<(", ">("):
            return False
        operator = found[0].lstrip("0123456789")
        if _RANGE.match(self._scan.text, found.end() - len(operator)):
            self._scan.only_bash("<0-9>")
        if len(found[0]) - len(operator) > 1:
            self._scan.only_bash(found[0])
        self._scan.pos = found.end()
        if self._scan.peek() and self._scan.peek() in "<>&|(":
            self._scan.fail()
        self._scan.skip_blanks()
        feeds = operator.startswith("<") and found[0][0] in "<0"
        self.inputs += feeds
        if operator in ("<<", "<<-"):
            self._announce(strips=operator == "<<-")
            return True
        if operator in ("<<<", "&>", "&>>"):
            self._scan.only_bash(operator)
        elif operator in (">&", "<&") and self._scan.match(_CLOSED_BEFORE_WORD):
            self._scan.fail("bash reads a word of its own behind the `-`")
        elif operator in (">", ">>") and self._scan.peek() == "!":
            self._scan.only_bash(f"{operator}!")
        word = self.word()
        self.inputs -= feeds and word.text in ("/dev/null", "-")
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
                self._collector.dynamic("bash expands this target twice", source)
        if _may_be_socket(word):
            self._collector.dynamic("it can be a connection", source)
        elif word.text not in HARMLESS_TARGETS[1:]:
            self._collector.redirect(word, source, "read" if operator in _READS else "write")

    def _announce(self, *, strips: bool) -> None:
        found = self._scan.match(_DELIMITER)
        if found is None or self._scan.peek() not in ("\n", " ", "\t", ";", "|", "&", "<", ">", ")"):
            self._scan.fail("name the end of a here-document by letters")
        quoted = found[0][0] in "'\""
        self._pending.append((found[0].strip("'\""), quoted, strips))
        self._scan.skip_blanks()

    def read_documents(self) -> None:
        """Read the here-documents that the line announced which ends here."""
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


_UNARY = re.compile(r"-[a-hknoprstuwxzGLNOS]")
_BINARY = ("=", "==", "!=", "=~", "-nt", "-ot", "-ef", "<", ">")


def read_conditional(scan: Scanner, dynamic: Callable[[str, str], None]) -> list[Word]:
    """The words of a conditional, from its `[[` to behind its `]]`; `dynamic` is called for what it evaluates."""
    return _Conditional(scan, dynamic).read()


class _Conditional:
    def __init__(self, scan: Scanner, dynamic: Callable[[str, str], None]) -> None:
        self._scan = scan
        self._dynamic = dynamic
        self._words = [literal("[[")]

    def read(self) -> list[Word]:
        self._scan.accept("[[")
        self._either()
        if self._word().source != "]]":
            self._scan.fail("`]]` is missing")
        return self._words

    def _either(self) -> None:
        self._term()
        while self._accept("&&") or self._accept("||"):
            self._term()

    def _term(self) -> None:
        """Read one operand of a condition: in brackets, negated, a unary test, or a comparison."""
        if self._accept("("):
            self._either()
            if not self._accept(")"):
                self._scan.fail("`)` is missing")
            return
        first = self._word()
        if first.source == "!":
            self._term()
        elif first.source == "]]":
            self._scan.fail("a condition is missing")
        elif first.source in VARIABLE_OPERATORS:
            self._evaluated(self._word())
        elif _UNARY.fullmatch(first.source):
            self._word()
        elif not self._ends():
            self._binary(first)

    def _binary(self, left: Word) -> None:
        operator = self._operator()
        right = self._word()
        if operator in NUMERIC_OPERATORS:
            if not all(re.fullmatch("-?[0-9]+", word.text or "") for word in (left, right)):
                self._evaluated(right)
        elif operator not in _BINARY:
            self._scan.fail("this condition is not understood")

    def _operator(self) -> str:
        self._blanks()
        for operator in "<>":
            if self._scan.peek(2) not in ("<(", ">(") and self._accept(operator):
                return operator
        return self._word().source

    def _evaluated(self, word: Word) -> None:
        self._dynamic("the value of a variable is evaluated", word.source)

    def _ends(self) -> bool:
        self._blanks()
        return self._scan.peek(2) in ("&&", "||", "]]") or self._scan.peek() == ")"

    def _blanks(self) -> None:
        self._scan.skip_blanks()

    def _accept(self, operator: str) -> bool:
        self._blanks()
        if not self._scan.accept(operator):
            return False
        self._words.append(literal(operator))
        return True

    def _word(self) -> Word:
        self._blanks()
        word = self._scan.word()
        self._words.append(word)
        return word
