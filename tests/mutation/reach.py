"""Which tests reach which line: recorded by a run of all of them, as a pytest plugin."""

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

import coverage
import msgspec
import pytest

RECORD: Final = "PROCTOR_MUTANTS_REACH"
"""Names the file in which a pytest run with this plugin saves its results."""
LOOKED_AT: Final = "PROCTOR_MUTANTS_LOOKED_AT"
"""A folder, and the paths in it of the observed files, separated by colons."""


class Reach(msgspec.Struct, frozen=True):
    """The results of a test run.

    Args:
        tests: those that passed, by their pytest ids.
        seconds: the duration of each.
        lines: by file, by line: the indices in `tests` of those that ran it.
        imported: by file: lines that ran before any test.
    """

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[int, list[int]]]
    imported: dict[str, set[int]]

    def of(self, file: str, lines: Iterable[int] | None = None) -> set[int]:
        """The indices of the tests that ran one of these lines; of the whole file, if None."""
        reached = self.lines.get(file, {})
        return {test for line in (reached if lines is None else lines) for test in reached.get(line, ())}


class _Recorder:
    def __init__(self, path: Path, folder: str, files: list[str]) -> None:
        self._path = path
        self._folder = folder
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, include=[f"{folder}/{file}" for file in files], config_file=False, messages=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        passed = [name for name in self._seconds if name not in self._failed]
        places = {name: place for place, name in enumerate(passed)}
        lines: dict[str, dict[int, list[int]]] = {}
        imported: dict[str, set[int]] = {}
        for path in data.measured_files():
            contexts = data.contexts_by_lineno(path)
            file = os.path.relpath(path, self._folder)
            lines[file] = {n: [places[name] for name in names if name in places] for n, names in contexts.items()}
            imported[file] = {line for line, names in contexts.items() if "" in names}
        seconds = [self._seconds[name] for name in passed]
        self._path.write_bytes(msgspec.msgpack.encode(Reach(passed, seconds, lines, imported)))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts recording before the product is imported."""
    folder, *files = os.environ[LOOKED_AT].split(":")
    early_config.pluginmanager.register(_Recorder(Path(os.environ[RECORD]), folder, files))
