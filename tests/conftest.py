"""Records what the conformance suite verifies of each adapter, from which the documentation's matrix is made.

Generated tests have no deadline, as a busy machine is no fault. With CI set, their seed is fixed; the examples may
still differ, as they include constants of the modules that a process has loaded.
"""

import gc
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import anyio
import pytest
import structlog
from hypothesis import settings

from proctor.adapters.matrix import Shown, read_record, settled, write_record
from proctor.supervisor.testing.adapter_fixture import Evidence
from proctor.supervisor.testing.fakes import PATIENCE_S

WRITE = os.environ.get("PROCTOR_MATRIX") == "write"
DIFFERS = "the record differs: PROCTOR_MATRIX=write pytest tests/adapters"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As with `nohup ... &`; processes that the tests start would inherit it, and they are sent Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ.pop("PYTHONUNBUFFERED", None)  # programs buffer their output, as usual

BEGIN_FIRST = tuple(
    f"tests/{name}.py"
    for name in (
        *("adapters/fleet/test_fleet", "simulation/test_simulation", "docs/test_pages"),
        *("docs/test_writing_an_adapter", "fuzz/test_faults", "docs/test_site"),
        *("adapters/cli/test_process", "benchmarks/test_quick"),
    )
)
"""Files that take a minute, in folders that are collected late. They start in this order, so that none runs alone at
the end, with waiting ones beside computing ones.
"""

settings.register_profile("proctor", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("proctor")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n logical`: two for each processor, since tests often wait for agents and other processes.

    With three, the suite takes longer: each worker imports all of the tests.
    """
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imported and collected objects live to the end, so the garbage collector need not scan them. As it runs after
    each test, it need not run at every 700 objects within one, which takes a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then the others in order."""
    place = {name: n for n, name in enumerate(BEGIN_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An asynchronous test that would wait for ever fails where it waits."""
    if pyfuncitem.get_closest_marker("anyio") and iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = bounded(pyfuncitem.obj)
    return (yield)


def bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The test, which may take much longer than anything that it waits for."""

    @wraps(test)
    async def run(**fixtures: Any) -> None:
        with anyio.fail_after(4 * PATIENCE_S):
            await test(**fixtures)

    return run


@pytest.fixture(autouse=True)
def fail_on_leaks() -> Iterator[None]:
    """Fail a test that leaves a pipe, file or socket open, or a process running.

    Otherwise the garbage collector reports it in some later test. Objects that are still in use then, such as caches
    and a file's fixtures, are not scanned again after later tests.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Restore structlog's configuration after a test; its own `capture_logs` changes it for good."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="class")
def row_tests(request: pytest.FixtureRequest) -> Iterator[dict[str, Evidence]]:
    """After the tests of a suite with a `row` have run, by name: they have verified the recorded capabilities.

    Some of the tests verify a part; all of them, the whole. PROCTOR_MATRIX=write saves it.
    """
    ran: dict[str, Evidence] = {}
    yield ran
    recorded = [evidence for evidence in ran.values() if evidence.declared is not None]
    if not recorded or recorded[-1].declared is None or recorded[-1].row is None:
        return
    name, declared = recorded[-1].row, settled(recorded[-1].declared)
    seen = {capability for evidence in recorded for capability in evidence.shown}
    is_whole = {test for test in dir(request.cls) if test.startswith("test_")} <= set(ran)
    if not is_whole and (kept := read_record().get(name)) is not None:
        seen |= set(kept.shown)
    shown = Shown(declared=declared, shown=tuple(sorted(seen)))
    if WRITE:
        write_record(name, shown)
    assert read_record().get(name) == shown, DIFFERS


@pytest.fixture(autouse=True)
def record_in_matrix(request: pytest.FixtureRequest, row_tests: dict[str, Evidence]) -> Iterator[None]:
    """Records what one test has verified."""
    yield
    if isinstance(request.instance, Evidence):
        row_tests[request.node.originalname] = request.instance
