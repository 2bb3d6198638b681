"""The grammar of command lines: lists, pipelines, compound and simple commands, redirections, here-documents.

Each command is reported with its words; what its substitutions run follows it.
"""

from __future__ import annotations

import re

from .conditional import read_conditional
from .cursor import Shell, check_depth
from .redirections import Redirections
from .scanner import Scanner
from .simple import RESERVED, SimpleCommands, reserved
from .sink import Sink
from .variables import steers
from .words import WordBuilder

_FUNCTION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(r"function[ \t]+([A-Za-z_][A-Za-z0-9_]*)([ \t]*\([ \t]*\))?(?=[ \t\n])")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Grammar:
    """Reads one text; the texts within it one deeper."""

    def __init__(self, text: str, shell: Shell, sink: Sink, depth: int) -> None:
        self._shell: Shell = shell
        self._sink = sink
        self._depth = depth
        self.scan = Scanner(
            text, shell, substitution=self._substitution, backquoted=self._backquoted, dynamic=sink.dynamic
        )
        self._redirections = Redirections(self.scan, sink, self._document)
        self._commands = SimpleCommands(self.scan, sink, self._redirections)

    def read(self) -> None:
        """Read all of it."""
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
        return Grammar(text, self._shell, self._sink, self._depth + 1)

    def _backquoted(self, text: str) -> None:
        self._check_no_document()
        self._inner(text).read()

    def _check_no_document(self) -> None:
        if self._redirections.pending:
            self.scan.fail("a here-document before a substitution")

    def _substitution(self) -> None:
        self._check_no_document()
        self._deeper()
        self._list()
        self._close(")")
        self._depth -= 1

    def _deeper(self) -> None:
        self._depth += 1
        check_depth(self._depth)

    def _close(self, operator: str) -> None:
        if self._redirections.pending or not self.scan.take(operator):
            self.scan.fail(f"`{operator}` is missing")

    def _list(self) -> None:
        """Commands up to what ends a list: the end, `)`, `;;` or a reserved word that closes."""
        while self._next_command():
            self._and_or()
            self.scan.skip_blanks()
            if self.scan.peek(2) in (";;", ";&"):
                return
            if not (self.scan.take(";") or self.scan.take("&") or self.scan.peek() == "\n"):
                return

    def _next_command(self) -> bool:
        self._newlines()
        if self.scan.peek(2) in (";;", ";&") or self.scan.peek() in ("", ")"):
            return False
        return reserved(self.scan) not in ("then", "else", "elif", "fi", "do", "done", "esac", "}")

    def _newlines(self) -> None:
        self.scan.skip_blanks()
        while self.scan.take("\n"):
            self._redirections.read_documents()
            self.scan.skip_blanks()

    def _and_or(self) -> None:
        self._pipeline()
        while self.scan.take("&&") or self.scan.take("||"):
            self._newlines()
            self._pipeline()

    def _pipeline(self) -> None:
        while self._take_reserved("!"):
            pass
        self._command()
        self.scan.skip_blanks()
        while self.scan.peek() == "|" and self.scan.peek(2) != "||":
            if self.scan.peek(2) == "|&":
                self.scan.only_bash("|&")
                self.scan.take("|&")
            else:
                self.scan.take("|")
            self._newlines()
            self._command()
            self.scan.skip_blanks()

    def _take_reserved(self, *words: str) -> bool:
        self.scan.skip_blanks()
        found = reserved(self.scan)
        if found not in words:
            return False
        self.scan.pos += len(found or "")
        self.scan.skip_blanks()
        return True

    def _expect(self, *words: str) -> None:
        if not self._take_reserved(*words):
            self.scan.fail(f"`{words[0]}` is missing")

    def _command(self) -> None:
        self.scan.skip_blanks()
        if self._function() or not self._compound():
            return
        while self._redirections.take():
            pass
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
        if self.scan.take("("):
            self._group(")")
            return True
        match reserved(self.scan):
            case "{":
                self._take_reserved("{")
                self._group("}")
            case "if":
                self._if()
            case "while" | "until":
                self._take_reserved("while", "until")
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
        while self._take_reserved("elif"):
            self._list()
            self._expect("then")
            self._list()
        if self._take_reserved("else"):
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
        self.scan.take(";")
        self._loop_body()

    def _loop_variable(self) -> None:
        name = self.scan.match(_NAME)
        if name is None or self.scan.peek() not in (" ", "\t", "\n", ";"):
            self.scan.fail("a name is missing")
        if steers(name[0], None):
            self._sink.dynamic(f"`{name[0]}` is set", name[0])
        self._newlines()
        if self._take_reserved("in"):
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
        while not self._take_reserved("esac"):
            self._patterns()
            self._list()
            self.scan.skip_blanks()
            if self.scan.peek(3) == ";;&" or self.scan.peek(2) == ";&":
                self.scan.only_bash(";&")
                self.scan.pos += 3 if self.scan.peek(3) == ";;&" else 2
            elif not self.scan.take(";;") and reserved(self.scan) != "esac":
                self.scan.fail("`esac` is missing")
            self._newlines()
        self._depth -= 1

    def _patterns(self) -> None:
        self.scan.take("(")
        self.scan.skip_blanks()
        self.scan.word()
        self.scan.skip_blanks()
        while self.scan.take("|"):
            self.scan.skip_blanks()
            self.scan.word()
            self.scan.skip_blanks()
        if not self.scan.take(")"):
            self.scan.fail("`)` is missing")

    def _conditional(self) -> None:
        start, at = self.scan.pos, self._sink.mark()
        words = read_conditional(self.scan, self._sink.dynamic)
        self._sink.test(words, self.scan.text[start : self.scan.pos], at=at)
        self.scan.skip_blanks()
