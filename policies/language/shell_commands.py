"""`runs`: which commands a command line would run, and whether a policy names them.

In an allow, an entry must name each command by its first words, exactly. In a deny, one named command is enough:
options before a later word are skipped, and what can't be known before the line runs matches. A named option matches
in every spelling of the program, anywhere in the command.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from posixpath import normpath
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import UnjudgeableLineError
from ..shell.program_options import (
    Options,
    WrittenOptions,
    also_called,
    cut_short,
    in_full,
    names_of,
    options_of,
    programs_called,
    written,
)
from ..shell.words import DYNAMIC, Shell, split
from ..values.json_values import container_of, texts_in
from .facts import Facts
from .operators import Evidence, Reading

if TYPE_CHECKING:
    from ..shell.programs import LinePart

Words: TypeAlias = Sequence[str | None]
"""The words of a command; None where only the shell knows one."""

_UNREADABLE: tuple[str | None, ...] = (None, None)
_A_VALUE = "\0"
"""The value of an option that only the shell knows; no word is this."""
_REDEFINES = {"git": ("-c", "--config-env", "--exec-path")}
"""Options that give a command's own words another meaning."""
MOST_AMONG = 200
"""How many words of a program that may each begin a named command are followed."""
_OF_TARGETS = split("make gmake ninja rake gradle gradlew mvn mvnw ant")
"""Programs that do whatever their words name, one after another."""
_ONLY_PRINTS = frozenset(split("--help --version --dry-run --collect-only --collectonly --co"))
"""Options that have a program print something in place of its work."""
_ONLY_PRINTS_ALONE = frozenset(split("-h -V"))
"""Those that mean something else in many programs, but as a rule not without other words."""


def would_run(named: str | Sequence[str], reading: Reading) -> Callable[[Any, Facts], bool]:
    """The test of one value; a list may be one command or several lines."""
    commands = NamedCommands(named)

    def holds(value: Any, facts: Facts) -> bool:
        shell = _shell(facts)
        if reading.allows:
            return type(value) is str and commands.allow(value, shell, reading.evidence)
        inner = container_of(value) if reading.loose and type(value) is str else None
        listed = value if inner is None else inner
        is_list = isinstance(listed, list | tuple) and all(type(item) is str for item in listed)
        lines = [value] if type(value) is str else []
        if is_list:
            lines = [*lines, *(texts_in(listed) if reading.loose else ()), shlex.join(listed)]
        return not lines or any(commands.reach(line, shell) for line in lines)

    return holds


def _shell(facts: Facts) -> Shell:
    return "bash" if facts.directories.shell == "bash" else "sh"


class NamedCommand:
    """A command that a `runs` names: a name, other words in order, and options."""

    __slots__ = ("_options", "_spelled", "_words", "_written", "understood")

    def __init__(self, text: str) -> None:
        self._words: list[str | None] = [*text.split()]
        name, *words = text.split()
        self._options: Options = options_of(name, *words)
        self._written: WrittenOptions = written(words, self._options)
        self._spelled = [self._written]
        if not self._options.first:
            self._spelled.append(written([*map(_doubled, words)], self._options))
        self.understood: bool = all(option in self._options.first.values() for option, _ in self._written.options)
        """Whether the table has every option that is named."""

    @property
    def name(self) -> str:
        return self._words[0] or ""

    @property
    def options(self) -> bool:
        """Whether options are named."""
        return bool(self._written.options)

    def allows(self, given: Words) -> bool:
        """Whether a command is exactly this one, or differs only in the spelling of its options."""
        if given[0] is None:
            return (
                self.name == DYNAMIC
                and given is not _UNREADABLE
                and [*given[1:]][: len(self._words) - 1] == (self._words[1:])
            )
        if [*given[: len(self._words)]] == self._words:
            return True
        if not self.options or not self.understood or given[0] != self.name:
            return False
        understood: list[str] = []
        for word in given[1:]:
            if word is None:
                return False
            understood.append(word)
            if written(understood, self._options) == self._written:
                return True
        return False

    def does(self, given: Words) -> bool:
        """Whether a command is this one and does its work: `pytest --version` tests nothing, unless named so."""
        more = [word for word in given[1:] if word is not None and word not in self._words]
        alone = len(more) == 1 and more[0] in _ONLY_PRINTS_ALONE
        return self.allows(given) and not alone and _ONLY_PRINTS.isdisjoint(more)

    def may_be(self, given: Words, called: Collection[str]) -> bool:
        """Whether a command, `called` by these names, is or may be this one."""
        name = given[0]
        if name is None:
            return True
        if self.name.casefold() not in called and not _may_be_file(self.name, name):
            return False
        wanted = [*in_full(self.name, self._written.others)]
        if not _may_follow(self.name, in_full(self.name, given[1:]), wanted):
            return False
        if not self.options or None in given:
            return True
        words = [word for word in given[1:] if word is not None]
        return self._has_options(words) or (not self._options.first and self._has_options([*map(_doubled, words)]))

    def _has_options(self, words: Sequence[str]) -> bool:
        found = written(words, self._options).options
        return any(
            all(any(_may_mean(option, wanted) for option in found) for wanted in each.options)
            for each in self._spelled
        )


_EXPANDED = re.compile(r"(?:~|.*[$`)}])[^/]*(?=/)", re.DOTALL)
"""The folders of a path that only the shell knows: `~`, `$D`."""


def _may_be_file(named: str, given: str) -> bool:
    """Whether two paths may name the same file, from different folders: one ends with the other."""
    if "/" not in named or "/" not in given:
        return False
    named, given = (_EXPANDED.sub("", path.casefold()) for path in (named, given))
    paths = ([name for name in normpath(path).split("/") if name not in ("", ".", "..")] for path in (named, given))
    shorter, longer = sorted(paths, key=len)
    return bool(shorter) and longer[-len(shorter) :] == shorter


def _doubled(word: str) -> str:
    """A word as an option with two dashes, if it can be one: many programs read `-force` as `--force`."""
    return f"-{word}" if re.match("-[A-Za-z]{2}", word) else word


def _may_mean(given: tuple[str, str | None], wanted: tuple[str, str | None]) -> bool:
    """Whether an option is the named one; a long option may be abbreviated."""
    same = given[0] == wanted[0] or (re.match("--.", given[0]) is not None and wanted[0].startswith(given[0]))
    return same and (wanted[1] is None or given[1] in (wanted[1], _A_VALUE))


class NamedCommands:
    """The commands that a `runs` names, each by its first words."""

    __slots__ = ("_called", "_named")

    def __init__(self, named: str | Sequence[str]) -> None:
        self._named = [NamedCommand(text) for text in ([named] if isinstance(named, str) else named)]
        self._called = frozenset(name for each in self._named for name in programs_called(each.name.casefold()))

    def allow(self, line: str, shell: Shell = "bash", evidence: Evidence = None) -> bool:
        """Whether every command that a line would run is known and named; as evidence, each must also do its work."""
        is_met = NamedCommand.allows if evidence is None else NamedCommand.does
        found = [given for given, among_words in commands_of(line, shell) if not among_words]
        allowed = bool(found) and all(any(is_met(named, given) for named in self._named) for given in found)
        return allowed and (evidence != "success" or proves_each(line, shell))

    def unnamed(self, line: str, facts: Facts) -> list[str]:
        """The commands for which a line is not allowed: their programs, with one more word of a named program."""
        found: list[str] = []
        for given, among_words in commands_of(line, _shell(facts)):
            if among_words or any(named.allows(given) for named in self._named):
                continue
            words = [word for word in given[:2] if word is not None]
            more = any(named.name == given[0] for named in self._named)
            found.append(" ".join(words if more else words[:1]) if given[0] is not None else "")
        return found

    def reach(self, line: str, shell: Shell = "bash") -> bool:
        """Whether a line would, or may, run a named command."""
        for given, among_words in commands_of(line, shell, _A_VALUE):
            for command in self._commands(given, among_words):
                for other in (command, *also_called(command)):
                    called = names_of(other[0] or "")
                    if any(named.may_be(other, called) for named in self._named):
                        return True
        return False

    def _commands(self, given: Words, among_words: bool) -> Iterator[Words]:
        from ..shell.programs import passes_to_code

        name = given[0]
        if name is None or not among_words:
            yield given
        if name is not None and (among_words or passes_to_code(name, given[1:])):
            yield from _among(given, self._may_begin)

    def _may_begin(self, name: str) -> bool:
        called = names_of(name)
        if called[-1].startswith("git-") and "git" in self._called:
            return True
        return not self._called.isdisjoint(called) or any(_may_be_file(each, name) for each in self._called)


@lru_cache(maxsize=1024)
def proves_each(line: str, shell: Shell = "bash") -> bool:
    """Whether a line that succeeds has run each of its commands with success: only `&&` is between them, and
    a command is inside another one only at its end, as in `timeout 9 pytest`. Raises UnjudgeableLineError.
    """
    from ..shell.parser import parse_line

    between, around = line.strip("; \t\n"), list[str]()
    for part in parse_line(line, shell):
        if part.direction:
            continue
        if part.command in between:
            between = between.replace(part.command, "", 1)
            around.append(part.command)
        elif not any(outer.endswith(part.command) for outer in around):
            return False
    return re.fullmatch(r"([() \t]|&&\s*)*", between) is not None


@lru_cache(maxsize=1024)
def commands_of(line: str, shell: Shell = "bash", value: str | None = None) -> tuple[tuple[Words, bool], ...]:
    """The words of each command that a line would run; `redirect` means a file that it writes, `value` an option's
    value that only the shell knows.

    True with the words of an unknown program: what it runs, if anything, is among its words; None: in its input.
    """
    from ..shell.parser import parse_line

    if not line.strip():
        return ()
    try:
        parts = parse_line(line, shell)
    except UnjudgeableLineError:
        return ((_UNREADABLE, False),)
    as_written = {(part.command, part.argv) for part in parts if part.argv[:1] == (part.name,)}
    return tuple(
        (_words(part, value), part.among_words or (part.stranger and part.name == DYNAMIC))
        for part in parts
        if part.direction != "read"
        and (part.name in (DYNAMIC, *part.argv[:1]) or (part.command, part.argv) not in as_written)
    )


def _words(part: LinePart, value: str | None) -> Words:
    behind = (value if n in part.values else None if n in part.unknown else word for n, word in enumerate(part.argv))
    if part.name == DYNAMIC and not part.among_words:
        return (None, *behind)
    return (part.name if part.name != DYNAMIC else part.argv[0], *list(behind)[1:])


def _among(given: Words, may_begin: Callable[[str], bool]) -> Iterator[Words]:
    """The commands that may be among a program's words. Any word, or its part behind a sign, can begin one, and an
    option's value can continue it. If there are too many, the result is unknown.
    """
    left = MOST_AMONG
    parts = [(None,) if word is None else word.split("=") for word in given]
    for n, word in enumerate(given):
        if n == 0 or word is None:
            continue
        inner = re.split(r"[^\w./-]+", word)
        names = {word, *re.split("[=:,@+]", word), word.lstrip("-"), word[2:]}
        begun = [(0, [name]) for name in names if name and may_begin(name)]
        begun += [(at, inner) for at, name in enumerate(inner) if len(inner) > 1 and name and may_begin(name)]
        for at, words in begun:
            left -= 1
            if left < 0:
                yield _UNREADABLE
                return
            yield (*words[at:], *itertools.chain.from_iterable(parts[n + 1 :]))


def _may_follow(program: str, given: Words, wanted: Words) -> bool:
    """Whether words follow in order; between them may be options, each with a word behind it, or any words."""
    redefining, any_between = _REDEFINES.get(program, ()), program in _OF_TARGETS
    left = list(wanted)
    may_be_argument = False
    for word in given:
        if not left:
            return True
        if word is None or word.startswith(redefining):
            return True
        if _may_be_word(word, left[0] or "") or cut_short(program, len(wanted) - len(left), word, left[0] or ""):
            left.pop(0)
            may_be_argument = False
        elif word.startswith("-"):
            may_be_argument = True
        elif may_be_argument:
            may_be_argument = False
        elif not (any_between or word.startswith("+")):  # `cargo +nightly publish`
            return False
    return not left


def _may_be_word(given: str, named: str) -> bool:
    """Whether a word is the named one, or may be the path of the named file."""
    if given == named or "/" not in given or "." not in named:
        return given == named
    same_name = given.rpartition("/")[2] == named and named.strip(".") != ""
    return same_name or normpath(given) == normpath(named) or _may_be_file(named, given)
