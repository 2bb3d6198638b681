"""Tests that are collected once, for one mutant after another: a pytest plugin.

The process that collected them reads orders. For each it forks; the copy applies the mutant, runs the order's tests
and exits at the first failure.
"""

import functools
import gc
import importlib
import os
import signal
from collections.abc import Generator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, Literal, NoReturn, TypeAlias

import hypothesis
import msgspec
import pytest

from .areas import area_of_modules
from .container import contained
from .mutants import Mutant, mutants
from .patching import Place, changed_code, functions_below, put

ORDERS: Final = "PROCTOR_MUTANTS_ORDERS"
"""Names the descriptors of two pipes: one for orders, one for answers."""
_COLD: Final = 3
"""The exit code of a copy that can't apply the mutant."""
_LIMIT_S: Final = 60.0
"""The timeout of a test if the order has none."""

Fate: TypeAlias = Literal["killed", "hung", "survived", "cold"]


class Order(msgspec.Struct, frozen=True):
    """One mutant to try.

    Args:
        module: the path of its module in the repository.
        path: that of the copy.
        mutant: its name; "" for none, to check that the tests pass.
        tests: pytest ids with their timeouts in seconds, in order; all collected ones if empty.
    """

    module: str
    path: str
    mutant: str
    tests: dict[str, float]


class Answer(msgspec.Struct, frozen=True):
    """The result, and the failed test; `cold` if the mutant can't be put into existing functions."""

    fate: Fate
    by: str = ""


class _Server:
    def __init__(self, orders: int, answers: int, scratch: str) -> None:
        self._orders = os.fdopen(orders, "rb")
        self._answers = os.fdopen(answers, "wb", buffering=0)
        self._scratch = scratch
        self._limits: Mapping[str, float] | None = None
        self._failed = -1
        """Where a copy reports the current test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A failing example is enough: none is minimised or saved."""
        kept = [each for each in hypothesis.Phase if each.name not in ("shrink", "explain")]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=kept, database=None)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In the server True, when orders have ended. In a copy None: pytest runs the tests."""
        if self._limits is not None:
            return None
        items = {item.nodeid: item for item in session.items}
        for module in area_of_modules():  # a missing function can't be changed
            importlib.import_module(f"proctor.{module.removesuffix('.py').replace('/', '.')}")
        gc.unfreeze()  # objects that `tests/conftest.py` has frozen would not be found
        functions = functions_below(os.environ["PYTHONPATH"])
        gc.collect()
        gc.freeze()
        for line in self._orders:
            order = msgspec.json.decode(line, type=Order)
            order = msgspec.structs.replace(order, tests=order.tests or dict.fromkeys(items, _LIMIT_S))
            session.items[:] = [items[name] for name in order.tests if name in items]
            answer = self._answer(session, order, functions)
            self._answers.write(msgspec.json.encode(answer) + b"\n")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        assert self._limits is not None
        os.pwrite(self._failed, item.nodeid.encode() + b"\n", 0)
        signal.setitimer(signal.ITIMER_REAL, self._limits[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(1)

    def _answer(self, session: pytest.Session, order: Order, functions: dict[Place, list[FunctionType]]) -> Answer:
        mutant = _of_module(order.module)[order.mutant] if order.mutant else None
        codes = changed_code(*mutant.trees(), order.path) if mutant else {}
        if codes is None:
            return Answer("cold")
        report = os.memfd_create("test")
        try:
            code = contained(
                lambda: self._try(session, order, codes, functions, report),
                limit_s=sum(order.tests.values()),
                scratch=self._scratch,
            )
            by = os.pread(report, 10_000, 0).partition(b"\n")[0].decode()
        finally:
            os.close(report)
        if code in (0, _COLD):
            return Answer("survived" if code == 0 else "cold")
        return Answer("hung" if code in (None, -signal.SIGALRM) else "killed", by)

    def _try(
        self,
        session: pytest.Session,
        order: Order,
        codes: dict[CodeType, CodeType],
        functions: dict[Place, list[FunctionType]],
        report: int,
    ) -> NoReturn:
        """Runs in the copy, which ends with it or in a test."""
        if order.mutant and not put(codes, functions):
            os._exit(_COLD)
        self._limits = order.tests
        self._failed = report
        session.config.hook.pytest_runtestloop(session=session)
        os._exit(0)


@functools.cache
def _of_module(module: str) -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants(module, Path(module).read_text())}


def pytest_configure(config: pytest.Config) -> None:
    """Serves if the pipes are given."""
    if ORDERS in os.environ:
        orders, answers = map(int, os.environ[ORDERS].split(":"))
        config.pluginmanager.register(_Server(orders, answers, os.environ["TMPDIR"]))
