"""Files that programs write besides what their name says: `sort -o f`, `tee f`, `git diff --output=f`.

`cp`, `tar` or `touch` write by their nature: they are judged by their name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from .words import Word, literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a program that name files it writes.

    Args:
        letters: options of one letter that take such a file, also within a cluster.
        alone: options of one letter that write a file without naming it.
        valued: options of one letter that take another value.
        long: long options that take such a file, also cut short.
        long_alone: long options that write a file without naming it.
        named: words that such a file follows.
        words: a regular expression of words whose first group is one.
        operands: how many operands come before those that are written; None where none is.
    """

    letters: str = ""
    alone: str = ""
    valued: str = ""
    long: str = ""
    long_alone: str = ""
    named: str = ""
    words: str = "(?!)"
    operands: int | None = None


_DIFFS = Writes(long="--output")
_PATCHES = Writes(letters="o", valued="nUCvSlMX", long="--output --output-directory")

GIT_WRITING = {
    **dict.fromkeys(("format-patch", "archive"), _PATCHES),
    **dict.fromkeys(("diff", "log", "show", "whatchanged", "range-diff", "reflog", "stash", "shortlog"), _DIFFS),
    **dict.fromkeys(("diff-tree", "diff-index", "diff-files", "rev-list"), _DIFFS),
}
"""By the verb of git."""

WRITING = {
    "tee": Writes(operands=0),
    "uniq": Writes(valued="fsw", operands=1),
    "xxd": Writes(valued="closgRn", operands=1),
    "dd": Writes(words="of=(.*)"),
    "sort": Writes(letters="o", valued="ktST", long="--output"),
    "shuf": Writes(letters="o", valued="in", long="--output"),
    "tree": Writes(letters="o", valued="LPIHT", long="--output"),
    "iconv": Writes(letters="o", valued="ft", long="--output"),
    "xmllint": Writes(named="-o --output"),
    "openssl": Writes(named="-out -keyout -writerand"),
    "tcpdump": Writes(letters="w", valued="ciBCEFGMmrsTVWyzj"),
    "curl": Writes(
        letters="oDc",
        alone="OJ",
        valued="AbdeEFHKmPQrtTuUwxXyYzC",
        long="--output --dump-header --cookie-jar --trace --trace-ascii --stderr --etag-save --libcurl --hsts"
        " --alt-svc --output-dir",
        long_alone="--remote-name --remote-name-all --remote-header-name",
    ),
    "find": Writes(named="-fprint -fprint0 -fls -fprintf"),
}
for _same, _as in (("gfind", "find"), ("gsort", "sort"), ("gtee", "tee"), ("gdd", "dd"), ("gshuf", "shuf")):
    WRITING[_same] = WRITING[_as]


def written_files(writes: Writes, arguments: Sequence[Word]) -> list[Word]:
    """The files that these words name; a word that the shell works out may be one where it may be an option."""
    files: list[Word] = []
    operands: list[Word] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        text = word.text
        if text is None:
            (files if _may_name_one(writes, word) else operands).append(word)
        elif text == "--":
            operands += rest
            break
        elif found := re.fullmatch(writes.words, text, re.DOTALL):
            files.append(literal(found[1]))
        elif text in writes.named.split():
            files += _next(rest)
        elif text.startswith("--"):
            files += _long(writes, word, text, rest)
        elif text.startswith("-") and text != "-":
            files += _letters(writes, word, text[1:], rest)
        else:
            operands.append(word)
    return files + (operands[writes.operands :] if writes.operands is not None else [])


def _may_name_one(writes: Writes, word: Word) -> bool:
    """Whether a word that the shell works out may be an option that takes a file, or hold one."""
    if (writes.letters or writes.long) and word.could_be_option():
        return True
    return word.could_be(*writes.named.split()) or (writes.words != "(?!)" and not word.start)


def _next(rest: list[Word]) -> list[Word]:
    return [rest.pop(0)] if rest else []


def _long(writes: Writes, word: Word, text: str, rest: list[Word]) -> list[Word]:
    name, given, value = text.partition("=")
    if any(option.startswith(name) for option in writes.long.split()):
        return [literal(value)] if given else _next(rest)
    return [Word(word.source, None)] if name in writes.long_alone.split() else []


def _letters(writes: Writes, word: Word, letters: str, rest: list[Word]) -> list[Word]:
    files: list[Word] = []
    for n, letter in enumerate(letters, start=1):
        if letter in writes.letters:
            return files + ([literal(letters[n:])] if letters[n:] else _next(rest))
        if letter in writes.valued:
            if not letters[n:]:
                _next(rest)
            break
        if letter in writes.alone:
            files.append(Word(word.source, None))
    return files
