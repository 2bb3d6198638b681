"""The reading of command lines against the real bash and the real dash.

    python -m tests.fuzz.command_lines --lines 1000000

A way past is a line of which a shell runs a program that the reading neither names nor calls dynamic. Each line
is read for bash and for a shell of unknown kind; what is not refused is run by bash in the first case, and by dash
(and one share in four by bash as `sh`) in the second. One share in twenty is run by a new shell for each line,
the others by forks of one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import TypeAlias

import msgspec

from proctor.policies.commands.cursor import Shell
from proctor.policies.commands.parse import read_commands

from .lines import Lines
from .shells import Room

SHARE = 1000
TIMEOUT_S = 30
_BASH = ("/bin/bash", "--norc", "--noprofile", "-c")
_DASH = ("/bin/dash", "-c")
_POSIX = ("/bin/bash", "--posix", "--norc", "--noprofile", "-c")
Read: TypeAlias = list[tuple[str, set[str]]]


class Outcome(msgspec.Struct):
    """What came of lines: how many each shell ran, and those that ran what the reading did not see."""

    generated: int = 0
    bash: int = 0
    dash: int = 0
    posix: int = 0
    programs: int = 0
    hung: int = 0
    past: list[tuple[str, str, list[str]]] = []

    def __str__(self) -> str:
        return (
            f"{self.generated} lines; not refused, and run: {self.bash} by bash, {self.dash} by dash, {self.posix} by"
            f" bash as sh; {self.programs} programs started; {self.hung} hung; {len(self.past)} ways past"
        )

    def add(self, other: Outcome) -> None:
        """Take another's into this."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def run_share(seed: int, number: int, lines: int = SHARE) -> Outcome:
    """Generate, read and run one share of the lines of a seed."""
    source = Lines(seed * 1_000_003 + number)
    batch = [source.line() for _ in range(lines)]
    outcome = Outcome(generated=lines)
    forks = number % 20 != 0
    with tempfile.TemporaryDirectory(prefix="proctor-fuzz-") as folder:
        comparing = _Comparing(Room(Path(folder)), outcome, forks=forks)
        outcome.bash = comparing.compare(_BASH, _read(batch, "bash"))
        either = _read(batch, "sh")
        outcome.dash = comparing.compare(_DASH, either)
        outcome.posix = comparing.compare(_POSIX, either) if number % 4 == 0 else 0
    return outcome


class _Comparing:
    def __init__(self, room: Room, outcome: Outcome, *, forks: bool) -> None:
        self._room = room
        self._outcome = outcome
        self._forks = forks

    def compare(self, shell: tuple[str, ...], read: Read) -> int:
        for line, names, ran in self._results(shell, read):
            self._outcome.programs += len(ran)
            if not ran <= names:
                self._outcome.past.append((shell[0], line, sorted(ran - names)))
        return len(read)

    def _results(self, shell: tuple[str, ...], read: Read) -> Iterator[tuple[str, set[str], set[str]]]:
        rest = read
        while rest:
            ended = self._room.run(shell, [line for line, _ in rest], timeout_s=TIMEOUT_S, forks=self._forks)
            reached = len(rest) if ended else self._room.reached()
            for number, (line, names) in enumerate(rest[:reached]):
                yield line, names, self._room.ran(number)
            if not ended:
                yield from self._alone(shell, rest[reached])
            rest = rest[reached + 1 :]

    def _alone(self, shell: tuple[str, ...], read: tuple[str, set[str]]) -> Iterator[tuple[str, set[str], set[str]]]:
        """A line during which the time was up: it hangs, or its turn came late."""
        if not self._room.run(shell, [read[0]], timeout_s=TIMEOUT_S, forks=False):
            self._outcome.hung += 1
        yield *read, self._room.ran(0)


def _read(lines: list[str], shell: Shell) -> Read:
    """The lines that are not refused, with the names they are said to run."""
    read = []
    for line in lines:
        commands = read_commands(line, shell)
        if commands.dynamic is None:
            read.append((line, {part.name for part in commands.parts}))
    return read


def main() -> int:
    """Run it; the exit code is 1 if a way past was found."""
    parser = argparse.ArgumentParser(description="the reading of command lines against real shells")
    parser.add_argument("--lines", type=int, default=10_000, help="rounded up to whole shares")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    start = time.monotonic()
    total = Outcome()
    shares = -(-given.lines // SHARE)
    with Pool(given.workers) as pool:
        for done, outcome in enumerate(
            pool.imap_unordered(_share, [(given.seed, n) for n in range(shares)]), start=1
        ):
            total.add(outcome)
            for shell, line, names in outcome.past:
                print(f"PAST {shell} ran {names}: {line!r}", flush=True)
            if done % 10 == 0 or done == shares:
                print(f"{time.monotonic() - start:.0f} s: {total}", flush=True)
    return 1 if total.past else 0


def _share(given: tuple[int, int]) -> Outcome:
    return run_share(*given)


if __name__ == "__main__":
    sys.exit(main())
