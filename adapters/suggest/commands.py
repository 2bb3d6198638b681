"""Command lines to the commands that a `runs` names: by the program, its subcommand, or its own words."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from proctor.policies.language.shell_commands import DYNAMIC, commands_of
from proctor.policies.shell.known_programs import KNOWN
from proctor.policies.shell.words import split

from .entries import SUPPORT, supported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUBCOMMANDS = split("""
    apt apt-get brew bundle cargo conda docker dotnet gh git go gradle helm kubectl mvn npm pip pip3 pnpm poetry
    systemctl terraform uv yarn make
""")
"""Programs whose first words say what they do."""
_INTERPRETERS = split("bash deno node perl php python python2 python3 ruby sh tsx zsh")
_BY_WORDS = split("""
    chgrp chmod chown curl curlie dd eval exec http https kill killall nc ncat pkill rm rmdir rsync scp shred source
    ssh su sudo truncate wget
""")
"""Programs whose arguments say what is destroyed or sent: they are named with all of them."""
_GIT_GLOBAL = ("-C", "-c", "--git-dir", "--work-tree")
_CODE = ("-c", "-e", "-m")
_MANY = 5
"""So many forms of a program, in so many sessions, stand for the program."""


@lru_cache(maxsize=65_536)
def names_in(line: str) -> tuple[str, ...] | None:
    """The commands that a `runs` would have to name to admit the line; None if none would."""
    found: list[str] = []
    for given, among_words in commands_of(line):
        if among_words:
            continue
        name = _named(given)
        if name is None:
            return None
        found.append(name)
    return tuple(dict.fromkeys(found)) or None


def program_of(name: str) -> str:
    """The program that a named command runs, `dynamic` before it."""
    words = name.split()
    return " ".join(words[:2]) if words[0] == DYNAMIC else words[0]


def generalised(lines: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The named commands of each session, those of a program with many forms as the program alone.

    A program whose arguments matter stays named with them.
    """
    named = {session: {name for line in found for name in names_in(line) or ()} for session, found in lines.items()}
    count = supported(named)
    forms: defaultdict[str, set[str]] = defaultdict(set)
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for session, names in named.items():
        for name in names:
            forms[program_of(name)].add(name)
            sessions[program_of(name)].add(session)
    whole = {
        program
        for program, names in forms.items()
        if program not in _BY_WORDS
        and min(len(names), len(sessions[program])) >= _MANY
        and 2 * sum(count[name] < SUPPORT for name in names) > len(names)
    }
    return {
        session: {program if (program := program_of(name)) in whole else name for name in names}
        for session, names in named.items()
    }


def _named(given: Sequence[str | None]) -> str | None:
    """How a command is named; None where its words are not known and it is not named without them."""
    name = given[0] or DYNAMIC
    if name == DYNAMIC and len(given) == 1:
        return None
    words = (name, *given[1:])
    kept = words[: _kept(words)]
    plain = [word for word in kept if word is not None and _is_plain(word)]
    if plain == list(kept):
        return " ".join(plain)
    return None if name in _BY_WORDS or name in _SUBCOMMANDS or name in _INTERPRETERS or name == DYNAMIC else name


def _kept(words: Sequence[str | None]) -> int:
    """How many words name the command."""
    name = words[0] or ""
    if name == DYNAMIC:
        return 3 if (words[2:3] or [""])[0] in _CODE else 2
    if name in _BY_WORDS:
        return len(words)
    if name in _SUBCOMMANDS:
        return _subcommand(words)
    if name in _INTERPRETERS:
        return 3 if words[1:2] == ["-m"] else 2
    return 1 if name in KNOWN or name in ("sed", "awk", "find", "xargs", "env", "timeout", "redirect") else 2


def _subcommand(words: Sequence[str | None]) -> int:
    at = 1
    while at < len(words) and (words[at] or "").startswith("-"):
        at += 2 if words[at] in _GIT_GLOBAL else 1
    return at + 1


def _is_plain(word: str) -> bool:
    """Whether a `runs` can have the word: no blank, and nothing that is the shell's own."""
    return not (set(word) & set("*?;&|<>()`$\n \t'\"\\"))
