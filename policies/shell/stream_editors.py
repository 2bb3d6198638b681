"""awk and sed: whether their scripts run something, and the files that they write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .words import Word, literal

if TYPE_CHECKING:
    from collections.abc import Sequence


AWKS = ("awk", "gawk", "mawk", "nawk")


_AWK_RUNS = re.compile(r"system|\||getline|@|/inet")


_SET = r"\[\^?+\]?+(?:\[[:.=]\w+[:.=]\]|\\.|(?!END)[^]\[\\\n])*\]"
"""A bracket expression without the delimiter END within: seds differ in whether one hides it."""


_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:\\.|" + _SET.replace("END", "/") + r"|[^/\\\n[])*/[IM]*|\+[0-9]+)"


_SED_COMMAND = re.compile(
    rf"[ \t]*(?:{_ADDRESS}(?:[ \t]*,[ \t]*{_ADDRESS})?)?[ \t]*!?[ \t]*"
    r"(?:\{|(?:[pdqQ=nNhHgGxDPlF}]|[qQ][ \t]*[0-9]+|[aic][ \t]*(?:\\\n"
    r"|\\?[ \t]*(?=[^ \t\n\\]))[^\n\\]*(?=\n|\Z)|[bt:][ \t]*\w*|#[^\n]*"
    r"|[wW][ \t]*(?P<file>[^\n\\;}]+)(?=\n|\Z)"
    r"|s([/|,#:@!%_])(?:\\.|" + _SET.replace("END", r"\2") + r"|(?!\2)[^\\\n[])*\2(?:\\.|(?!\2)[^\\\n])*\2[gpiIM0-9]*"
    r"(?:w[ \t]*(?P<substituted>[^\n\\;}]+)(?=\n|\Z))?"
    r"|y/(?:\\.|[^/\\\n])*/(?:\\.|[^/\\\n])*/)?[ \t]*(?:[;\n]|\Z|(?=\})))",
    re.DOTALL,
)


_SED_ALONE = re.compile(r"-[nErsuz]+|-i(\.\w+)?|--(quiet|silent|regexp-extended|in-place(=\.\w+)?|posix|separate)")


_AWK_WRITES = re.compile(r"print.*>", re.DOTALL)


def awk_files(arguments: Sequence[Word]) -> list[Word]:
    """The files awk may write: the program names them as it runs."""
    return [Word(word.source, None) for word in arguments if _AWK_WRITES.search(word.text or "")]


def awk_runs(arguments: Sequence[Word]) -> bool:
    """Whether awk may run something: code that is not seen, or that has the means."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text in ("-F", "-v"):
            if not rest or not rest.pop(0).single:
                return True
        elif word.text is None or (word.text.startswith("-") and not re.match("-[Fv].", word.text)):
            return True
        elif not word.text.startswith("-"):
            return _AWK_RUNS.search(word.text.replace("||", "")) is not None
    return False


def sed_files(arguments: Sequence[Word]) -> list[Word] | None:
    """The files that sed writes; None where it may run something. Options may stand behind its operands."""
    in_place = False
    scripts: list[str | None] = []
    operands: list[Word] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None:
            if word.could_be_option() or not (scripts or operands):
                return None
            operands.append(word)
        elif word.text in ("-e", "--expression"):
            scripts.append(rest.pop(0).text if rest else None)
        elif word.text.startswith("-") and word.text != "-":
            if not _SED_ALONE.fullmatch(word.text):
                return None
            in_place = in_place or word.text.startswith(("-i", "--in-place"))
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = [word.text for word in operands[:1]], operands[1:]
    files = operands if in_place else []
    for script in scripts:
        written = None if script is None else _written_by_sed(script)
        if written is None:
            return None
        files += written
    return files


def _written_by_sed(script: str) -> list[Word] | None:
    files: list[Word] = []
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return None
        at = found.end()
        files += [literal(file.strip()) for file in (found["file"], found["substituted"]) if file]
    return files
