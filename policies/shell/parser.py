"""A command line taken apart: every simple command it can run, however deep, before any of it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..errors import UnjudgeableLineError
from .builtins import changes_meaning, changes_program_meaning, declared, is_unknown_data
from .lexer import Redirections, Scanner, read_conditional
from .program_options import names_of
from .programs import REDIRECT, CommandCollector, LinePart
from .words import DYNAMIC, NAME, Shell, Word, WordBuilder, check_characters, check_depth, literal, split

RESERVED = split("if then else elif fi case in esac for select while until do done function { } [[ ]] ! time coproc")
_RESERVED_WORD = re.compile(r"(?:[a-z]+|!|\{|\}|\[\[|\]\])(?=[ \t\n;&|()<>]|\Z)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[0-9]+\])?(\+?)=")
_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=\(")
_SUBSCRIPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_ELEMENT = re.compile(r"\[[\w$]+\]=")
_DECLARING = ("declare", "typeset", "local", "readonly", "export")


def reserved(scan: Scanner) -> str | None:
    """The reserved word that stands here, unquoted and alone."""
    found = _RESERVED_WORD.match(scan.text, scan.pos)
    return found[0] if found and found[0] in RESERVED else None


class SimpleCommands:
    """Reads simple commands into a collector, with the redirections among their words."""

    def __init__(self, scan: Scanner, collector: CommandCollector, redirections: Redirections) -> None:
        self._scan = scan
        self._collector = collector
        self._redirections = redirections
        self._unknown_data = ""

    def read(self, prefix: str | None = None) -> None:
        """The command here; `prefix` is a reserved word that stands before it."""
        start, at, inputs = self._scan.pos, self._collector.mark(), self._redirections.inputs
        assigned: list[tuple[str, str | None]] = []
        words = self._words(prefix, assigned)
        if self._scan.pos == start:
            self._scan.fail()
        source = self._scan.text[start : self._scan.pos].rstrip()
        if words:
            for name, value in assigned:
                if changes_program_meaning(name, value) and not changes_meaning(name, value):
                    self._collector.dynamic(f"`{name}` is set", source)
            self._collector.command(words, source, at=at)
            if words[0].text in _DECLARING:
                self._unknown_data = self._unknown_in(declared(words[1:]))
            name = self._unknown_in(assigned)
            if name and self._collector.runs("make", since=at):
                self._collector.dynamic(f"a Makefile may run what `{name}` holds", source)
        else:
            self._unknown_data = self._unknown_in(assigned)
        if prefix == "coproc" or self._redirections.inputs > inputs:
            self._collector.fed(at)

    def _unknown_in(self, assigned: Iterable[tuple[str, str | None]]) -> str:
        """The first variable of data among these whose value is not known, or else the one noted before."""
        return next((name for name, value in assigned if is_unknown_data(name, value)), self._unknown_data)

    def _words(self, prefix: str | None, assigned: list[tuple[str, str | None]]) -> list[Word]:
        """The words up to the command's end; what is set before them is appended to `assigned`."""
        words: list[Word] = []
        if prefix is not None:
            self._scan.accept(prefix)
            self._scan.skip_blanks()
            words.append(literal(prefix))
        while self._scan.peek() not in ("", "\n", ";", "&", "|", ")") or self._scan.peek(2) == "&>":
            if self._redirections.accept() or (not words and self._assignment(assigned)):
                continue
            if self._scan.peek() == "(":
                self._scan.fail()
            if len(words) < (4 if prefix else 1) and (word := reserved(self._scan)) is not None:
                self._scan.fail(f"`{word}` is where a command is expected")
            if words and words[0].text in _DECLARING and self._declared():
                words.append(self._array_word())
                continue
            words.append(self._redirections.word())
            self._scan.skip_blanks()
        return words

    def _declared(self) -> bool:
        """Whether an array is declared here."""
        if _SUBSCRIPTED.match(self._scan.text, self._scan.pos):
            self._scan.fail("this subscript is not understood")
        return _ARRAY.match(self._scan.text, self._scan.pos) is not None

    def _array_word(self) -> Word:
        start = self._scan.pos
        self._assignment([])
        source = self._scan.text[start : self._scan.pos].rstrip()
        return Word(source, source, is_array=True)

    def _assignment(self, assigned: list[tuple[str, str | None]]) -> bool:
        """Go past an assignment, if one stands here; what it sets is appended."""
        start = self._scan.pos
        array = self._scan.match(_ARRAY)
        found = array or _ASSIGNMENT.match(self._scan.text, start)
        if found is None:
            if _SUBSCRIPTED.match(self._scan.text, start):
                self._scan.fail("this subscript is not understood")
            return False
        if array is not None or found[2] or "[" in found[0]:
            self._scan.only_bash(found[0])
        values: Sequence[str | None] = (None,)
        if array is not None:
            self._array_elements()
        else:
            values = self._values(found) or (None,)
        assigned += [(found[1], value) for value in values]
        if any(changes_meaning(found[1], value) for value in values):
            self._collector.dynamic(f"`{found[1]}` is set", self._scan.text[start : self._scan.pos])
        self._scan.skip_blanks()
        return True

    def _values(self, found: re.Match[str]) -> list[str]:
        """The value of an assignment, or those that stand for it; none if it is not known."""
        word = self._redirections.word()
        if found[2] or "[" in found[0]:
            return []
        return [text.partition("=")[2] for text in word.texts]

    def _array_elements(self) -> None:
        if self._redirections.pending:
            self._scan.fail("a here-document before an array")
        self._array_blanks()
        while not self._scan.accept(")"):
            if self._scan.peek() == "[":
                self._subscripted_element()
            self._redirections.word()
            self._array_blanks()
        if self._scan.peek() not in ("", *" \t\n;&|)<>"):
            self._scan.fail("put a blank after an array")

    def _subscripted_element(self) -> None:
        found = _ELEMENT.match(self._scan.text, self._scan.pos)
        if found is None:
            self._scan.fail("this subscript is not understood")
        self._collector.dynamic("the value of a variable is evaluated", found[0])

    def _array_blanks(self) -> None:
        self._scan.skip_blanks()
        while self._scan.accept("\n"):
            self._scan.skip_blanks()


_FUNCTION = re.compile(rf"({NAME})[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(rf"function[ \t]+({NAME})([ \t]*\([ \t]*\))?(?=[ \t\n])")
_NAME = re.compile(NAME)


class Grammar:
    """Reads one text; the texts within it one deeper."""

    def __init__(self, text: str, shell: Shell, collector: CommandCollector, depth: int) -> None:
        self._shell: Shell = shell
        self._collector = collector
        self._depth = depth
        self._substitutions = 0
        self.scan = Scanner(
            text, shell, substitution=self._substitution, backquoted=self._backquoted, dynamic=collector.dynamic
        )
        self._redirections = Redirections(self.scan, collector, self._document)
        self._commands = SimpleCommands(self.scan, collector, self._redirections)

    def read(self) -> None:
        self._list()
        if self.scan.peek() or self._redirections.pending:
            self.scan.fail()

    def read_document(self) -> None:
        """Read all of it as a here-document that the shell expands."""
        while char := self.scan.peek():
            self.scan.quoted_piece(char, WordBuilder(), document=True)

    def _document(self, text: str) -> None:
        self._inner(text).read_document()

    def _inner(self, text: str) -> Grammar:
        check_depth(self._depth + 1)
        return Grammar(text, self._shell, self._collector, self._depth + 1)

    def _backquoted(self, text: str) -> str:
        self._check_no_document()
        at = self._collector.mark()
        self._inner(text).read()
        return self._collector.printed(at, text)

    def _check_no_document(self) -> None:
        if self._redirections.pending:
            self.scan.fail("a here-document before a substitution")

    def _substitution(self, fed: bool) -> str:
        self._check_no_document()
        start, at = self.scan.pos, self._collector.mark()
        self._deeper()
        self._substitutions += 1
        self._list()
        self._close(")")
        self._substitutions -= 1
        self._depth -= 1
        if fed:
            self._collector.fed(at)
        return self._collector.printed(at, self.scan.text[start : self.scan.pos - 1])

    def _deeper(self) -> None:
        self._depth += 1
        check_depth(self._depth)

    def _close(self, operator: str) -> None:
        if self._redirections.pending or not self.scan.accept(operator):
            self.scan.fail(f"`{operator}` is missing")

    def _list(self) -> None:
        """Commands up to what ends a list: the end, `)`, `;;` or a reserved word that closes."""
        while self._next_command():
            self._and_or()
            self.scan.skip_blanks()
            if self.scan.peek(2) in (";;", ";&"):
                return
            if self._substitutions and self._redirections.pending and self.scan.peek() in ("&", ";"):
                self.scan.fail("bash takes a command behind a here-document in a substitution for words of another")
            if not (self.scan.accept(";") or self.scan.accept("&") or self.scan.peek() == "\n"):
                return

    def _next_command(self) -> bool:
        self._newlines()
        if self.scan.peek(2) in (";;", ";&") or self.scan.peek() in ("", ")"):
            return False
        return reserved(self.scan) not in ("then", "else", "elif", "fi", "do", "done", "esac", "}")

    def _newlines(self) -> None:
        self.scan.skip_blanks()
        while self.scan.accept("\n"):
            self._redirections.read_documents()
            self.scan.skip_blanks()

    def _and_or(self) -> None:
        self._pipeline()
        while self.scan.accept("&&") or self.scan.accept("||"):
            self._newlines()
            self._pipeline()

    def _pipeline(self) -> None:
        while self._accept_reserved("!"):
            pass
        self._command()
        self.scan.skip_blanks()
        while self.scan.peek() == "|" and self.scan.peek(2) != "||":
            if self.scan.peek(2) == "|&":
                self.scan.only_bash("|&")
                self.scan.accept("|&")
            else:
                self.scan.accept("|")
            self._newlines()
            at = self._collector.mark()
            self._command()
            self._collector.fed(at)
            self.scan.skip_blanks()

    def _accept_reserved(self, *words: str) -> bool:
        self.scan.skip_blanks()
        found = reserved(self.scan)
        if found not in words:
            return False
        self.scan.pos += len(found or "")
        self.scan.skip_blanks()
        return True

    def _expect(self, *words: str) -> None:
        if not self._accept_reserved(*words):
            self.scan.fail(f"`{words[0]}` is missing")

    def _command(self) -> None:
        self.scan.skip_blanks()
        at = self._collector.mark()
        if self._function() or not self._compound():
            return
        inputs = self._redirections.inputs
        while self._redirections.accept():
            pass
        if self._redirections.inputs > inputs:
            self._collector.fed(at)
        if self.scan.peek() not in ("", "\n", ";", "&", "|", ")"):
            word = self.scan.word()
            self.scan.fail(f"`{word.source}` follows a redirection")

    def _compound(self) -> bool:
        """Read a compound command; a simple command is read here too, and answers False."""
        if self.scan.peek(2) == "((":
            self.scan.only_bash("((")
            start = self.scan.pos
            self.scan.pos += 2
            self.scan.arithmetic(start)
            return True
        if self.scan.accept("("):
            self._group(")")
            return True
        match reserved(self.scan):
            case "{":
                self._accept_reserved("{")
                self._group("}")
            case "if":
                self._if()
            case "while" | "until":
                self._accept_reserved("while", "until")
                self._list()
                self._loop_body()
            case "for":
                self._for("for")
            case "select":
                self.scan.only_bash("select")
                self._for("select")
            case "case":
                self._case()
            case "[[":
                self.scan.only_bash("[[")
                self._conditional()
            case "time" | "coproc" as word:
                self._commands.read(prefix=word)
                return False
            case None:
                self._commands.read()
                return False
            case word:
                self.scan.fail(f"`{word}` is where a command is expected")
        return True

    def _group(self, end: str) -> None:
        self._deeper()
        self._list()
        if end == "}":
            self._expect("}")
        else:
            self._close(end)
        self._depth -= 1
        self.scan.skip_blanks()

    def _function(self) -> bool:
        found = _FUNCTION.match(self.scan.text, self.scan.pos)
        if found is None and (found := _FUNCTION_WORD.match(self.scan.text, self.scan.pos)) is not None:
            self.scan.only_bash("function")
        if found is None or found[1] in RESERVED:
            return False
        self._collector.functions.add(found[1])
        self.scan.pos = found.end()
        self._newlines()
        if self.scan.peek() != "(" and reserved(self.scan) != "{":
            self.scan.fail("the body of a function stands in `{ }`")
        self._command()
        return True

    def _if(self) -> None:
        self._expect("if")
        self._deeper()
        self._list()
        self._expect("then")
        self._list()
        while self._accept_reserved("elif"):
            self._list()
            self._expect("then")
            self._list()
        if self._accept_reserved("else"):
            self._list()
        self._expect("fi")
        self._depth -= 1

    def _loop_body(self) -> None:
        self._deeper()
        self._newlines()
        self._expect("do")
        self._list()
        self._expect("done")
        self._depth -= 1

    def _for(self, keyword: str) -> None:
        start = self.scan.pos
        self._expect(keyword)
        if self.scan.peek(2) == "((":
            self.scan.only_bash("for ((")
            self.scan.pos += 2
            self.scan.arithmetic(start)
            self.scan.skip_blanks()
        else:
            self._loop_variable()
        self.scan.accept(";")
        self._loop_body()

    def _loop_variable(self) -> None:
        name = self.scan.match(_NAME)
        if name is None or self.scan.peek() not in (" ", "\t", "\n", ";"):
            self.scan.fail("a name is missing")
        if changes_meaning(name[0], None):
            self._collector.dynamic(f"`{name[0]}` is set", name[0])
        self._newlines()
        if self._accept_reserved("in"):
            while self.scan.peek() not in (";", "\n", ""):
                self.scan.word()
                self.scan.skip_blanks()

    def _case(self) -> None:
        self._expect("case")
        self.scan.word()
        self._newlines()
        self._expect("in")
        self._deeper()
        self._newlines()
        while not self._accept_reserved("esac"):
            self._patterns()
            self._list()
            self.scan.skip_blanks()
            if self.scan.peek(3) == ";;&" or self.scan.peek(2) == ";&":
                self.scan.only_bash(";&")
                self.scan.pos += 3 if self.scan.peek(3) == ";;&" else 2
            elif not self.scan.accept(";;") and reserved(self.scan) != "esac":
                self.scan.fail("`esac` is missing")
            self._newlines()
        self._depth -= 1

    def _patterns(self) -> None:
        self.scan.accept("(")
        self.scan.skip_blanks()
        self.scan.word()
        self.scan.skip_blanks()
        while self.scan.accept("|"):
            self.scan.skip_blanks()
            self.scan.word()
            self.scan.skip_blanks()
        if not self.scan.accept(")"):
            self.scan.fail("`)` is missing")

    def _conditional(self) -> None:
        start, at = self.scan.pos, self._collector.mark()
        words = read_conditional(self.scan, self._collector.dynamic)
        self._collector.test(words, self.scan.text[start : self.scan.pos], at=at)
        self.scan.skip_blanks()


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """The commands a line would run: `parts`; with `dynamic`, which says why, possibly others."""

    parts: tuple[LinePart, ...] = ()
    dynamic: str | None = None


def read_commands(line: str, shell: Shell = "bash") -> Commands:
    """Find the commands a command line would run, without running it.

    Args:
        line: the text.
        shell: the shell that reads it: `bash`, or `sh`, which may be dash or bash; if these differ, it is dynamic.
    """
    try:
        parts = parse_line(line, shell)
    except UnjudgeableLineError as error:
        return Commands(dynamic=str(error))
    return Commands(parts=tuple(parts), dynamic=next((part.reason for part in parts if part.name == DYNAMIC), None))


def parse_line(line: str, shell: Shell = "bash") -> list[LinePart]:
    """Every part of a command line, in the order of the text, those of nested lines included. Raises
    UnjudgeableLineError: the line cannot be taken apart with certainty, so it must not run.
    """
    if len(line) > MAX_LENGTH:
        raise UnjudgeableLineError(f"the command line has more than {MAX_LENGTH:,} characters")
    parts: list[LinePart] = []
    functions: set[str] = set()
    try:
        _read(line, shell, parts, functions, depth=0)
        if functions:  # one may run before the text that defines it: in a loop, or in another function
            parts.clear()
            _read(line, shell, parts, functions, depth=0)
    except RecursionError:
        raise UnjudgeableLineError("the command line is nested too deep") from None
    if not parts:
        raise UnjudgeableLineError("the command line holds no command")
    if any(part.argv[-1:] == ("exec",) and "<" in part.command for part in parts):
        CommandCollector(parts, shell, lambda nested, its: None, functions).fed(0)
    return [*parts, *runs_of_written_files(parts)]


def _read(line: str, shell: Shell, parts: list[LinePart], functions: set[str], depth: int) -> None:
    """Read one line; lines within it are read one level deeper."""
    check_depth(depth)
    check_characters(line)

    def read(nested: str, its: Shell) -> None:
        _read(nested, its, parts, functions, depth + 1)

    Grammar(line, shell, CommandCollector(parts, shell, read, functions), depth).read()


MAX_LENGTH = 131_071
"""The longest text that Linux gives to a program as one argument, such as that of `bash -c`."""
_UNPACKING = split("gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4")
_NAMING = split("cp ln mv install link rsync patch objcopy strip") | _UNPACKING
"""Programs that give a program another name, or one that they name by another."""
_NUMBERING = ("split", "csplit")
"""Programs that give parts of a file names of their own."""


def runs_of_written_files(parts: Sequence[LinePart]) -> Iterator[LinePart]:
    """Find the commands that a line runs from a file that it may write or rename itself: their content is unknown."""
    made = {name for part in parts for name in _made_by(part)}
    for part in parts if made else ():
        if "/" in part.name and part.name != REDIRECT and not made.isdisjoint((None, os.path.basename(part.name))):
            reason = f"what `{part.name}` runs is known only when it runs: the line makes the file"
            yield msgspec.structs.replace(part, name=DYNAMIC, exact=False, reason=reason)


def _made_by(part: LinePart) -> Iterator[str | None]:
    """The names of files that a part may make; None for any."""
    names = set(names_of(part.name))
    if not names.isdisjoint(_NUMBERING):
        yield None
    if part.direction != "write" and names.isdisjoint(_NAMING):
        return
    for n, word in enumerate(part.argv):
        if part.name == REDIRECT or n:
            name = os.path.basename(word.rstrip("/")) if n not in part.unknown else None
            yield name
            if name is not None and not names.isdisjoint(_UNPACKING):
                yield os.path.splitext(name)[0]
