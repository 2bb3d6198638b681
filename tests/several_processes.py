"""`-n PROCESSES`, or `-n logical`: a session of tests goes on in several processes, forked when all are collected.

A process that has run a file takes the next, so the tests of a file share its fixtures. Tests are imported and
collected once; what a library imports when it is first used is imported in each.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final

import pytest

LOGICAL: Final = 2 * (os.cpu_count() or 1)
"""Two for each processor, as much of the time tests wait for agents and other processes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("general")._addoption(
        "-n",
        dest="processes",
        metavar="PROCESSES",
        default=0,
        type=lambda given: LOGICAL if given == "logical" else int(given),
        help="run the tests in that many processes; `logical`: two for each processor.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes, when that is asked for and all could be collected."""
    if not (count := session.config.option.processes) or session.config.option.collectonly or session.testsfailed:
        return None
    files: dict[Path, list[pytest.Item]] = {}
    for test in session.items:
        files.setdefault(test.path, []).append(test)
    left, numbers = os.pipe()  # the files that no process has taken
    os.write(numbers, b"".join(n.to_bytes(2) for n in range(len(files))))
    os.close(numbers)
    processes: dict[Connection, int] = {}
    for _ in range(count):
        ours, theirs = Pipe(duplex=False)
        if not (pid := os.fork()):
            for each in (ours, *processes):
                each.close()
            return _run(session, _taken(left, list(files.values())), theirs)
        theirs.close()
        processes[ours] = pid
    os.close(left)
    try:
        return _report(session, processes)
    except KeyboardInterrupt:  # which they got, too
        raise
    except BaseException:
        for pid in processes.values():
            os.kill(pid, signal.SIGINT)
        raise
    finally:
        for pid in processes.values():
            os.waitpid(pid, 0)


def _taken(left: int, files: Sequence[list[pytest.Item]]) -> Iterator[pytest.Item]:
    while number := os.read(left, 2):
        yield from files[int.from_bytes(number)]


def _run(session: pytest.Session, tests: Iterator[pytest.Item], to: Connection) -> bool:
    """In a process of several: run tests, and tell the first process."""
    plugins = session.config.pluginmanager
    session.config.workerinput = {}  # type: ignore[attr-defined]  # by which plugins know that another process reports
    plugins.unregister(name="terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # to the files that it captures in, each writes for itself
    capture.start_global_capturing()
    plugins.register(_Telling(session.config, to))
    for test, following in pairwise(chain(tests, [None])):
        assert test is not None
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    return True


class _Telling:
    """Tells the first process of tests that begin and end, and what they reported."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._to.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._to.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self._to.send(None)


def _report(session: pytest.Session, processes: dict[Connection, int]) -> bool:
    """Report what the processes tell, to the end of all; each that has ended leaves `processes`."""
    hook = session.config.hook
    begun: dict[Connection, str | None] = {}
    while processes:
        for process in wait(list(processes)):
            assert isinstance(process, Connection)
            try:
                message = process.recv()
            except EOFError:
                process.close()
                code = os.waitstatus_to_exitcode(os.waitpid(processes.pop(process), 0)[1])
                if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or begun.get(process):
                    pytest.exit(f"a process ended ({code}) in {begun.get(process) or 'no test'}", returncode=3)
                continue
            if isinstance(message, dict):
                report = hook.pytest_report_from_serializable(config=session.config, data=message)
                hook.pytest_runtest_logreport(report=report)
            else:
                begun[process] = message
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    return True
