"""Commands that run other commands: what they are given to run is judged as well.

What a wrapper runs is found from its own options only where all of them are known; otherwise it is not
known before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from .hazards import STEERING
from .words import Word


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    """What a command runs: words of another command, a whole command line, or what nobody can know yet."""

    words: tuple[Word, ...] = ()
    line: str | None = None
    unknown: bool = False


UNKNOWN = Nested(unknown=True)

Reader: TypeAlias = Callable[[Sequence[Word]], list[Nested]]


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a wrapper's own words end: options that take the next word, options that stand alone, operands.

    `assigns` says which words after the options set variables.
    """

    taking: str = ""
    alone: str = ""
    operands: int = 0
    assigns: str | None = None


_ANY_NAME = r".*="
_SHELL_NAME = r"\w+\+?="
_PREFIXES = {
    "!": _Options(assigns=_SHELL_NAME),
    "builtin": _Options(),
    "busybox": _Options(),
    "chroot": _Options(operands=1),
    "command": _Options(alone="-p"),
    "coproc": _Options(assigns=_SHELL_NAME),
    "doas": _Options(taking="-u -C", alone="-n"),
    "env": _Options(taking="-u -C --unset --chdir", alone="-i - --ignore-environment -0 -v", assigns=_ANY_NAME),
    "exec": _Options(taking="-a", alone="-c -l"),
    "ionice": _Options(taking="-c -n", alone="-t"),
    "nice": _Options(taking="-n --adjustment"),
    "nohup": _Options(),
    "setsid": _Options(alone="-c -f -w --ctty --fork --wait"),
    "stdbuf": _Options(taking="-i -o -e"),
    "sudo": _Options(
        taking="-u -g -h -p -C -D -R -T --user --group",
        alone="-A -b -E -H -n -P -S -k -B --preserve-env --non-interactive --set-home",
        assigns=_ANY_NAME,
    ),
    "time": _Options(taking="-f -o", alone="-p -a -v", assigns=_SHELL_NAME),
    "timeout": _Options(taking="-s -k --signal --kill-after", alone="-v --foreground", operands=1),
    "toybox": _Options(),
    "xargs": _Options(
        taking="-a -d -E -I -L -n -P -s --max-args --max-procs --delimiter --replace --arg-file",
        alone="-0 -r -t -x -o --null --no-run-if-empty --verbose --exit",
    ),
}
_SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "ash", "rbash")
_OPAQUE = (
    *(".", "source", "alias", "enable", "hash", "bind", "compgen", "complete", "fc"),
    *("parallel", "su", "runuser", "watch", "flock", "script", "strace", "ltrace"),
    *("unshare", "nsenter", "systemd-run", "start-stop-daemon"),
)
"""What runs something that its words do not show in a way this file knows."""


def nested_in(name: str, arguments: Sequence[Word]) -> list[Nested]:
    """What a command of this name, given these words, runs besides itself."""
    if name in _PREFIXES:
        return _after_prefix(_PREFIXES[name], arguments, name)
    reader = _READERS.get(name)
    return reader(arguments) if reader is not None else []


def _after_prefix(options: _Options, arguments: Sequence[Word], name: str) -> list[Nested]:
    taking, alone = options.taking.split(), options.alone.split()
    operands = options.operands
    rest = list(arguments)
    while rest:
        text = rest[0].text
        if text is None:
            return [Nested(words=tuple(rest))] if not operands else [UNKNOWN]
        if name == "command" and text in ("-v", "-V"):
            return []
        if text == "--":
            rest.pop(0)
            return _rest(rest[operands:])
        if text.startswith("-") and text != "" and (name, text) != ("nice", "-"):
            consumed = _consumed(text, taking, alone)
            if consumed is None:
                return [UNKNOWN]
            del rest[:consumed]
        elif options.assigns is not None and re.match(options.assigns, text, re.DOTALL):
            if STEERING.match(text):
                return [UNKNOWN]
            rest.pop(0)
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            return _rest(rest)
    return []


def _rest(words: Sequence[Word]) -> list[Nested]:
    return [Nested(words=tuple(words))] if words else []


def _consumed(text: str, taking: Sequence[str], alone: Sequence[str]) -> int | None:
    """How many words an option is, with its argument; None for an option that is not known."""
    if text in taking:
        return 2
    if text in alone:
        return 1
    if text.startswith("--"):
        return 1 if text.partition("=")[0] in taking and "=" in text else None
    if text[:2] in taking or all(f"-{letter}" in alone for letter in text[1:]):
        return 1
    return None


def _shell(arguments: Sequence[Word]) -> list[Nested]:
    """`bash -c line`, options first; a shell without one reads what nobody has judged."""
    runs_line = False
    for word in arguments:
        if word.text in ("--version", "--help"):
            return []
        if word.text is None or not word.text.startswith(("-", "+")):
            return [_line([word]) if runs_line else UNKNOWN]
        if word.text not in ("--norc", "--noprofile", "--posix", "--login"):
            if not re.fullmatch(r"-[eux]*c?[eux]*", word.text) or word.text == "-":
                return [UNKNOWN]
            runs_line = runs_line or "c" in word.text
    return [UNKNOWN]


def _eval(arguments: Sequence[Word]) -> list[Nested]:
    return [_line(arguments)] if arguments else []


def _trap(arguments: Sequence[Word]) -> list[Nested]:
    first = arguments[:1]
    if not first or first[0].text in ("-", "-l", "-p", ""):
        return []
    return [UNKNOWN] if (first[0].text or "-").startswith("-") else [_line(first)]


def _line(words: Sequence[Word]) -> Nested:
    texts = [word.text for word in words]
    if not texts or None in texts:
        return UNKNOWN
    return Nested(line=" ".join(text for text in texts if text is not None))


def _find(arguments: Sequence[Word]) -> list[Nested]:
    found: list[Nested] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word.text is None and not word.source.startswith((".", "/", "~", '"', "'", "*")):
            found.append(UNKNOWN)
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((n for n, w in enumerate(words) if w.text in (";", "+")), len(words))
            found.append(Nested(words=tuple(words[:end])) if end else UNKNOWN)
            del words[: end + 1]
    return found


def _opaque(arguments: Sequence[Word]) -> list[Nested]:
    return [UNKNOWN]


_READERS: dict[str, Reader] = {
    **dict.fromkeys(_SHELLS, _shell),
    **dict.fromkeys(_OPAQUE, _opaque),
    "eval": _eval,
    "trap": _trap,
    "find": _find,
}
