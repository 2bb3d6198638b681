"""Programs in the words of awk and sed: which of them certainly run nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..words import Word

_AWK_RUNS = re.compile(r"system|\||getline|@|/inet")
_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:\\.|[^/\\\n])*/[IM]*|\+[0-9]+)"
_SED_COMMAND = re.compile(
    rf"[ \t]*(?:{_ADDRESS}(?:[ \t]*,[ \t]*{_ADDRESS})?)?[ \t]*!?[ \t]*"
    r"(?:\{|(?:[pdqQ=nNhHgGxDPlF}]|[qQ][ \t]*[0-9]+|[aic][ \t]*(?:\\\n"
    r"|\\?[ \t]*(?=[^ \t\n\\]))[^\n\\]*(?=\n|\Z)|[bt:][ \t]*\w*|#[^\n]*"
    r"|s([/|,#:@!%_])(?:\\.|(?!\1)[^\\\n])*\1(?:\\.|(?!\1)[^\\\n])*\1[gpiIM0-9]*"
    r"|y/(?:\\.|[^/\\\n])*/(?:\\.|[^/\\\n])*/)?[ \t]*(?:[;\n]|\Z|(?=\})))",
    re.DOTALL,
)
_SED_ALONE = re.compile(r"-[nErsuz]+|-i(\.\w+)?|--(quiet|silent|regexp-extended|in-place(=\.\w+)?|posix|separate)")


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


def sed_runs(arguments: Sequence[Word]) -> bool:
    """Whether sed may run something; options may stand behind its operands."""
    scripts: list[str | None] = []
    operands: list[str | None] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None:
            if word.could_be_option() or not (scripts or operands):
                return True
            operands.append(None)
        elif word.text in ("-e", "--expression"):
            scripts.append(rest.pop(0).text if rest else None)
        elif word.text.startswith("-") and word.text != "-":
            if not _SED_ALONE.fullmatch(word.text):
                return True
        else:
            operands.append(word.text)
    scripts = scripts or operands[:1]
    return not all(script is not None and _is_plain_sed(script) for script in scripts)


def _is_plain_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True
