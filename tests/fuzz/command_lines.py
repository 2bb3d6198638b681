"""The command-line parser against the real bash, the real dash and the real zsh.

A bypass is a line for which a shell runs a program, or passes it arguments, that the parser neither names nor calls
dynamic. Each line is parsed for bash and for an unknown shell; lines that are not rejected are run by bash in the
first case, and by dash and zsh (and one share in four by bash as `sh`) in the second. One share in twenty starts a
new shell for each line, the others fork one.
"""

import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from proctor.policies.shell.parser import read_commands
from proctor.policies.shell.programs import LinePart
from proctor.policies.shell.words import Shell

from .ledger import Share
from .lines import Lines
from .shells import ShellSandbox

SHARE = 1000
TIMEOUT_S = 30
_BASH = ("/bin/bash", "--norc", "--noprofile", "-c")
_DASH = ("/bin/dash", "-c")
ZSH = ("/usr/bin/zsh", "-f", "-c")
_POSIX = ("/bin/bash", "--posix", "--norc", "--noprofile", "-c")
Words: TypeAlias = tuple[str, ...]
Read: TypeAlias = list[tuple[str, list[LinePart]]]


class Outcome(msgspec.Struct):
    """The results: how many lines each shell ran, and the bypasses."""

    generated: int = 0
    bash: int = 0
    dash: int = 0
    zsh: int = 0
    posix: int = 0
    programs: int = 0
    hung: int = 0
    past: list[tuple[str, str, list[str]]] = []


def run_share(seed: int, number: int, lines: int = SHARE) -> Outcome:
    """Generate, parse and run one share of the lines of a seed."""
    source = Lines(seed * 1_000_003 + number)
    batch = [source.line() for _ in range(lines)]
    outcome = Outcome(generated=lines)
    forks = number % 20 != 0
    with tempfile.TemporaryDirectory(prefix="proctor-fuzz-") as folder:
        comparing = _Comparing(ShellSandbox(Path(folder)), outcome, forks=forks)
        outcome.bash = comparing.compare(_BASH, _read(batch, "bash"))
        either = _read(batch, "sh")
        outcome.dash = comparing.compare(_DASH, either)
        outcome.zsh = comparing.compare(ZSH, either) if Path(ZSH[0]).exists() else 0
        outcome.posix = comparing.compare(_POSIX, either) if number % 4 == 0 else 0
    return outcome


class _Comparing:
    def __init__(self, sandbox: ShellSandbox, outcome: Outcome, *, forks: bool) -> None:
        self._sandbox = sandbox
        self._outcome = outcome
        self._forks = forks

    def compare(self, shell: tuple[str, ...], read: Read) -> int:
        for line, parts, ran in self._results(shell, read):
            self._outcome.programs += len(ran)
            if past := [
                shlex.join(words) for words in sorted(ran) if not any(_is_seen(words, part) for part in parts)
            ]:
                self._outcome.past.append((shell[0], line, past))
        return len(read)

    def _results(self, shell: tuple[str, ...], read: Read) -> Iterator[tuple[str, list[LinePart], set[Words]]]:
        rest = read
        while rest:
            ended = self._sandbox.run(shell, [line for line, _ in rest], timeout_s=TIMEOUT_S, forks=self._forks)
            reached = len(rest) if ended else self._sandbox.reached()
            for number, (line, parts) in enumerate(rest[:reached]):
                yield line, parts, self._sandbox.commands(number)
            if not ended:
                yield from self._alone(shell, rest[reached])
            rest = rest[reached + 1 :]

    def _alone(
        self, shell: tuple[str, ...], read: tuple[str, list[LinePart]]
    ) -> Iterator[tuple[str, list[LinePart], set[Words]]]:
        """A line during which the time ran out: it hangs, or was started late."""
        if not self._sandbox.run(shell, [read[0]], timeout_s=TIMEOUT_S, forks=False):
            self._outcome.hung += 1
        yield *read, self._sandbox.commands(0)


def _is_seen(ran: Words, part: LinePart) -> bool:
    """Whether a part says that a command runs; an expansion by the shell may be any number of words."""
    if ran[0] != part.name:
        return False
    pieces = [
        r"(?:\037[^\037]*)*" if n in part.unknown else re.escape(f"\037{word}") for n, word in enumerate(part.argv)
    ]
    return re.fullmatch("".join(pieces[1:]), "".join(f"\037{word}" for word in ran[1:]), re.DOTALL) is not None


def _read(lines: list[str], shell: Shell) -> Read:
    """The accepted lines, with the names that they are said to run."""
    read = []
    for line in lines:
        commands = read_commands(line, shell)
        if commands.dynamic is None:
            read.append((line, [*commands.parts]))
    return read


def command_lines(seed: int, number: int) -> Share:
    """One share, in the form of the long runs."""
    outcome = run_share(seed, number)
    counts = {
        "lines": outcome.generated,
        "lines run by bash": outcome.bash,
        "by dash": outcome.dash,
        "by zsh": outcome.zsh,
        "by bash as sh": outcome.posix,
        "programs started": outcome.programs,
        "lines that did not end": outcome.hung,
    }
    return Share(counts, [f"{shell} ran {commands}: {line!r}" for shell, line, commands in outcome.past])
