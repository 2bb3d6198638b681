"""Programs that run the command among their words, and where it begins.

The command is found only if every word before it is understood; otherwise it is dynamic.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from .builtins import SET_OPTIONS, changes_program_meaning
from .words import ANYTHING, UNSEEN, Shell, Word, literal


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    """A nested command: the words of another command, a command line, or something unknown (`unknown`: why). With
    `among_words`, it begins at one of the command's own words.
    """

    words: tuple[Word, ...] = ()
    line: str | None = None
    shell: Shell = "sh"
    unknown: str | None = None
    among_words: bool = False


Reader: TypeAlias = Callable[[Sequence[Word]], list[Nested]]
UNKNOWN = [Nested(unknown="its arguments are not understood")]


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A wrapper's own words, up to the command.

    Args:
        taking: options that take the next word, or the rest of their own.
        alone: options that stand alone.
        operands: words before the command.
        assigns: whether words that set variables stand before the command.
        adds: whether it adds words to the command.
        replaces: the option whose value is replaced in the command's words.
    """

    taking: str = ""
    alone: str = ""
    operands: int = 0
    assigns: bool = False
    adds: bool = False
    replaces: str = ""


PREFIXES = {
    "builtin": Prefix(),
    "bunx": Prefix(),
    "busybox": Prefix(),
    "command": Prefix(alone="-p"),
    "coproc": Prefix(assigns=True),
    "doas": Prefix(taking="-u -C", alone="-n"),
    "env": Prefix(
        taking="-u -C --unset --chdir", alone="-i - --ignore-environment -0 -v --null --debug", assigns=True
    ),
    "exec": Prefix(taking="-a", alone="-c -l"),
    "ionice": Prefix(taking="-c -n", alone="-t"),
    "nice": Prefix(taking="-n --adjustment"),
    "nocorrect": Prefix(),
    "noglob": Prefix(),
    "nohup": Prefix(),
    "npx": Prefix(taking="-p --package", alone="-y --yes --no -q --quiet"),
    "setsid": Prefix(alone="-c -f -w --ctty --fork --wait"),
    "stdbuf": Prefix(taking="-i -o -e"),
    "sudo": Prefix(
        taking="-u -g -C -D -T --user --group",
        alone="-A -b -E -H -n -P -S -k -B --preserve-env --non-interactive --set-home",
        assigns=True,
    ),
    "taskset": Prefix(alone="-a -c --all-tasks --cpu-list", operands=1),
    "time": Prefix(alone="-p -v", assigns=True),
    "timeout": Prefix(
        taking="-s -k --signal --kill-after", alone="-v --verbose --foreground --preserve-status", operands=1
    ),
    "toybox": Prefix(),
    "uvx": Prefix(taking="--from --with --python", alone="-q --quiet"),
    "xargs": Prefix(
        taking="-a -d -E -I -L -n -P -s --max-args --max-procs --delimiter --arg-file",
        alone="-0 -r -t -x -o --null --no-run-if-empty --verbose --exit",
        adds=True,
        replaces="-I",
    ),
}

_SHELLS: dict[str, Shell] = {"bash": "bash", "rbash": "bash", "sh": "sh", "dash": "sh", "ash": "sh"}
_FINDS = ("-exec", "-execdir", "-ok", "-okdir")
_ASSIGNMENT = re.compile(r"([^=]*)=(.*)", re.DOTALL)


def behind(prefix: Prefix, arguments: Sequence[Word]) -> list[Nested]:
    """The command behind a wrapper's own words."""
    rest = list(arguments)
    placeholder = None
    while rest and (text := rest[0].text or "").startswith("-") and text != "--":
        consumed = _consumed(rest, prefix.taking.split(), prefix.alone.split())
        if consumed is None:
            return UNKNOWN
        if prefix.replaces and text.startswith(prefix.replaces):
            placeholder = (rest[1].text or "") if consumed == 2 else text[2:]
        del rest[:consumed]
    if rest and rest[0].text == "--":
        rest.pop(0)
    operands = prefix.operands
    while rest:
        word = rest[0].text
        if word is None or (word.startswith("-") and (prefix.assigns or operands < prefix.operands)):
            return UNKNOWN
        if prefix.assigns and (assigned := _ASSIGNMENT.fullmatch(word)) is not None:
            if changes_program_meaning(assigned[1], assigned[2]):
                return [Nested(unknown=f"`{assigned[1]}` is set")]
        elif operands:
            operands -= 1
        else:
            break
        rest.pop(0)
    return _command(rest, prefix, placeholder)


def _command(rest: Sequence[Word], prefix: Prefix, placeholder: str | None) -> list[Nested]:
    if not rest:
        return []
    if placeholder == "":
        return UNKNOWN
    if placeholder is not None:
        rest = [UNSEEN if word.text is None or placeholder in word.text else word for word in rest]
    return [Nested(words=(*rest, UNSEEN) if prefix.adds else tuple(rest))]


def _consumed(rest: Sequence[Word], taking: Sequence[str], alone: Sequence[str]) -> int | None:
    """How many words an option takes, its value included; None if it is not understood."""
    text = rest[0].text or ""
    if text in taking:
        return 2 if len(rest) > 1 and rest[1].single else None
    if text in alone:
        return 1
    if text.startswith("--"):
        return 1 if text.partition("=")[0] in taking and "=" in text else None
    if text[:2] in taking or (len(text) > 1 and all(f"-{letter}" in alone for letter in text[1:])):
        return 1
    return None


def command(arguments: Sequence[Word]) -> list[Nested]:
    """`command -v name` runs nothing."""
    if arguments and arguments[0].text in ("-v", "-V"):
        return []
    return behind(PREFIXES["command"], arguments)


def shell(name: str, arguments: Sequence[Word]) -> list[Nested]:
    """`bash -c line`; a shell without a line reads something unknown."""
    runs_line = False
    if len(arguments) == 2 and arguments[0].text == "-n" and arguments[1].start[:1] not in ("", "-", "+"):
        return []  # it only checks a script's syntax
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        text = word.text
        if text in ("--version", "--help"):
            return []
        if text is None or not text.startswith(("-", "+")):
            return [line([word], _SHELLS[name])] if runs_line else UNKNOWN
        if text in ("--norc", "--noprofile", "--login"):
            continue
        if not re.fullmatch(r"-[euxl]*c?[euxl]*o?", text) or text == "-":
            return UNKNOWN
        if text.endswith("o") and (not rest or rest.pop(0).text not in SET_OPTIONS):
            return UNKNOWN
        runs_line = runs_line or "c" in text
    return UNKNOWN


def line(words: Sequence[Word], shell: Shell) -> Nested:
    """The words as one command line."""
    texts = [word.text for word in words]
    if not texts or None in texts:
        return UNKNOWN[0]
    return Nested(line=" ".join(text for text in texts if text is not None), shell=shell)


def evaluated(arguments: Sequence[Word], shell: Shell) -> list[Nested]:
    """`eval words`."""
    rest = list(arguments)
    if shell == "bash" and rest and rest[0].text == "--":
        rest.pop(0)
    if not rest:
        return []
    return UNKNOWN if rest[0].could_be_option() else [line(rest, shell)]


def trapped(arguments: Sequence[Word], shell: Shell) -> list[Nested]:
    """`trap line signals`."""
    rest = list(arguments)
    if rest and rest[0].text == "--":
        rest.pop(0)
    if not rest or rest[0].text in ("-", ""):
        return []
    if rest[0].text in ("-l", "-p"):
        return [] if all(word.text is not None for word in rest) else UNKNOWN
    return UNKNOWN if rest[0].could_be_option() else [line(rest[:1], shell)]


def found(arguments: Sequence[Word]) -> list[Nested]:
    """`find ... -exec command ;`; with `-delete` it acts as `rm`."""
    deletes = any(word.text == "-delete" if word.text else word.could_be("-delete") for word in arguments)
    nested = [Nested(words=(literal("rm"), UNSEEN))] if deletes else []
    rest, path = list(arguments), _found_by(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None and word.could_be(*_FINDS):
            return UNKNOWN
        if word.text not in _FINDS:
            continue
        end = next((n for n, w in enumerate(rest) if w.text == ";" or (n and _is_plus(rest[n - 1], w))), None)
        if not end or _may_end_before(rest[:end]):
            return UNKNOWN
        found_path = path if word.text in ("-exec", "-ok") else UNSEEN
        command = [found_path if w.text == "{}" else UNSEEN if "{}" in (w.text or "{}") else w for w in rest[:end]]
        nested.append(Nested(words=tuple(command)))
        del rest[: end + 1]
    return nested


def _found_by(arguments: Sequence[Word]) -> Word:
    """What stands for `{}` behind `-exec`: paths, which begin with find's own, if it has one."""
    at = next((n for n, w in enumerate(arguments) if w.text is None or w.text.startswith(("-", "(", "!"))), None)
    if at != 1 or any("files0" in (word.text or "files0") for word in arguments):
        return UNSEEN
    start = arguments[0].text or ""
    return Word("{}", None, shape=re.escape(start) + ANYTHING, start=start, single=False)


def _is_plus(before: Word, word: Word) -> bool:
    return before.text == "{}" and word.text == "+"


def _may_end_before(command: Sequence[Word]) -> bool:
    """Whether an expanded word can end the command, so that another follows it; or a `+` behind one that is `{}`."""
    if any(word.text == "+" for word in command) and any(word.text is None for word in command):
        return True
    ends = next((n for n, word in enumerate(command) if word.text is None and word.could_be(";", "+")), None)
    if ends is None:
        return False
    return not command[ends].single or any(word.could_be(*_FINDS) for word in command[ends + 1 :])


def is_shell(name: str) -> bool:
    """Whether it is a shell whose lines are read."""
    return name in _SHELLS
