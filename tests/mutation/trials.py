"""Tries mutants: chooses the tests for each, first those that noticed similar ones, and asks the server."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from .areas import OWN_PROCESSES, QUICK, ROOT, area_of_modules
from .arena import FOLDERS, Arena
from .mutants import Mutant
from .reach import LOOKED_AT, RECORD, Reach
from .serving import ORDERS, Answer, Order

_RECORDS: Final = ROOT / ".mutants"
_COLD_FILES: Final = 6
"""How many test files are collected for a mutant of code that runs on import."""


class Trials:
    """Mutants tried one after another on one copy of the product.

    Args:
        arena: the copy.
        reach: which tests reach what; None to run all of the tests on each.
        tests: where they are, as arguments of pytest.
        seconds: how long, without a mutant, the tests tried for one may take together.
    """

    def __init__(
        self, arena: Arena, reach: Reach | None, *, tests: Sequence[str] = QUICK, seconds: float = 12
    ) -> None:
        self._arena = arena
        self._reach = reach
        self._tests = tuple(tests)
        self._seconds = seconds
        self._servers: dict[tuple[str, ...], _Served] = {}
        """By the tests that each has collected."""
        self._noticed: Counter[tuple[str, str]] = Counter()
        """By module or function, and test."""

    def learn(self, mutant: Mutant, by: str) -> None:
        """Record that a test noticed this mutant: it is tried early for similar ones."""
        for near in (mutant.file, f"{mutant.file} {mutant.where}"):
            self._noticed[near, by] += 1

    def answer(self, mutant: Mutant) -> Answer:
        """The result of a mutant."""
        area = area_of_modules()[mutant.file]
        serving = self._serving(area)  # from the unchanged product
        with self._arena.edited(mutant.file, mutant.text()):
            if area in OWN_PROCESSES:
                answer = serving.answer(Order("", "", "", {})) or Answer("killed", "import")
            else:
                answer = self._warm(mutant)
            if answer.fate == "cold":
                answer = self._cold(mutant)
        if answer.fate == "killed":
            self.learn(mutant, answer.by)
        return answer

    def failing(self, tests: Iterable[str]) -> list[str]:
        """The tests that fail, or take too long, without a mutant."""
        own = {file for files in OWN_PROCESSES.values() for file in files}
        left = {test: 60.0 for test in tests if test.partition("::")[0] not in own}
        found = []
        while left:
            answer = self._ask(Order("", "", "", left))
            if answer.fate == "survived":
                break
            found.append(answer.by)
            del left[answer.by]
        return found

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()

    def _serving(self, area: str = "") -> _Served:
        """The server of an area's own tests, or of all others."""
        tests = OWN_PROCESSES.get(area, self._tests)
        if tests not in self._servers:
            self._servers[tests] = _Served(self._arena, tests)
            if self._servers[tests].answer(Order("", "", "", {"": 1.0})) is None:
                raise RuntimeError("the tests could not be collected")
        return self._servers[tests]

    def _ask(self, order: Order) -> Answer:
        answer = self._serving().answer(order)
        if answer is None:
            raise RuntimeError("the server of tests has ended")
        return answer

    def _warm(self, mutant: Mutant) -> Answer:
        """In existing functions; `cold` if that is impossible."""
        order = Order(mutant.file, str(self._arena.path(mutant.file)), mutant.name, {})
        if self._reach is None:
            return self._ask(order)
        tests = self._chosen(mutant, self._reach, self._reach.of(mutant.file, mutant.lines))
        if not tests:
            return Answer("cold")
        answer = self._ask(msgspec.structs.replace(order, tests=tests))
        is_imported = not self._reach.imported.get(mutant.file, set()).isdisjoint(mutant.lines)
        return Answer("cold") if answer.fate == "survived" and is_imported else answer

    def _cold(self, mutant: Mutant) -> Answer:
        """With everything imported again; the tests are those of a few files that reach the module."""
        files: Sequence[str] = self._tests
        tests: dict[str, float] = {}
        if self._reach is not None:
            tests = self._chosen(mutant, self._reach, self._reach.of(mutant.file))
            files = list(dict.fromkeys(name.partition("::")[0] for name in tests))[:_COLD_FILES]
            tests = {name: limit for name, limit in tests.items() if name.partition("::")[0] in files}
            if not tests:
                return Answer("survived")
        server = _Served(self._arena, files)
        try:
            return server.answer(Order("", "", "", tests)) or Answer("killed", "import")
        finally:
            server.close()

    def _chosen(self, mutant: Mutant, reach: Reach, reached: Iterable[int]) -> dict[str, float]:
        """The most promising for their duration, with their timeouts in seconds: first those that noticed a similar
        mutant, then one case of every test function after another.
        """
        near, nearer = mutant.file, f"{mutant.file} {mutant.where}"

        def promise(place: int) -> float:
            name = reach.tests[place]
            seen = 0.05 + self._noticed[near, name] + 5 * self._noticed[nearer, name]
            return seen / (0.01 + reach.seconds[place])

        ranked = sorted(reached, key=promise, reverse=True)
        cases: Counter[str] = Counter()
        turns: dict[int, int] = {}
        for place in ranked:
            function = reach.tests[place].partition("[")[0]
            turns[place] = 0 if self._noticed[near, reach.tests[place]] else cases[function]
            cases[function] += 1
        left, chosen = self._seconds, {}
        for place in sorted(ranked, key=turns.__getitem__):
            if reach.seconds[place] < left:
                left -= reach.seconds[place]
                chosen[reach.tests[place]] = 6 + 15 * reach.seconds[place]
        return chosen


class _Served:
    """A server of tests, started on creation."""

    def __init__(self, arena: Arena, tests: Iterable[str]) -> None:
        orders, self._to = os.pipe()
        self._from, answers = os.pipe()
        env = {ORDERS: f"{orders}:{answers}"}
        self._process = arena.pytest("-p", "tests.mutation.serving", *tests, env=env, pipes=(orders, answers))
        os.close(orders)
        os.close(answers)
        self._answers = os.fdopen(self._from, "rb")

    def answer(self, order: Order) -> Answer | None:
        """None if it ended."""
        try:
            os.write(self._to, msgspec.json.encode(order) + b"\n")
        except BrokenPipeError:
            return None
        line = self._answers.readline()
        return msgspec.json.decode(line, type=Answer) if line else None

    def close(self) -> None:
        os.close(self._to)
        self._answers.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def reach_of(arena: Arena, tests: Sequence[str] = QUICK) -> Reach:
    """Which of the tests reach which line: as recorded for this product and these tests, or recorded now."""
    kept = _RECORDS / f"{_digest(tests)}.reach"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        looked_at = ":".join([str(arena.path("")), *area_of_modules()])
        env = {RECORD: str(kept), LOOKED_AT: looked_at}
        arena.pytest("-p", "tests.mutation.reach", "--maxfail=1000", *tests, env=env).wait()
    return msgspec.msgpack.decode(kept.read_bytes(), type=Reach)


def _digest(tests: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(tests).encode())
    for folder in (*FOLDERS, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "mutation" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
