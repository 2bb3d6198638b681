"""Keeps what the conformance suite shows of each adapter: the matrix of the documentation is made of it.

Generated tests have no deadline, as a busy machine is no fault; with CI set their seed is the same each time. What
they make may still differ: constants of the modules that a process has loaded are among it.
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import settings

from proctor.adapters.matrix import Shown, read_record, settled, write_record
from proctor.supervisor.testing.adapter_fixture import Evidence

WRITE = os.environ.get("PROCTOR_MATRIX") == "write"
DIFFERS = "the record differs: PROCTOR_MATRIX=write pytest tests/adapters"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under `nohup ... &`, and what the tests start would inherit it: they send Ctrl-C to such processes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ.pop("PYTHONUNBUFFERED", None)  # programs buffer what they print, as at home

BEGIN_FIRST = tuple(
    f"tests/{name}.py"
    for name in (
        *("adapters/fleet/test_fleet", "simulation/test_simulation", "docs/test_pages"),
        *("docs/test_writing_an_adapter", "fuzz/test_faults", "docs/test_site"),
        *("adapters/cli/test_process", "benchmarks/test_quick"),
    )
)
"""Files that take a minute, in folders that come late: begun in their order, one goes on alone at the end. Those that
mostly wait stand beside those that compute.
"""

settings.register_profile("proctor", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("proctor")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n logical`: two for each processor, as much of the time tests wait for agents and other processes.

    With three, the whole takes longer: each worker reads in all of the tests.
    """
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: the garbage collector need not look through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then the others in their order."""
    place = {name: n for n, name in enumerate(BEGIN_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.fixture(autouse=True)
def what_is_left() -> Iterator[None]:
    """A pipe, file or socket that a test leaves open, or a process that it leaves running, fails that test.

    Otherwise the garbage collector reports it during whichever test comes later. What is still in use then, such as
    caches and what fixtures of the file hold, is not looked through again after each of the tests that follow.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a test configured of structlog is of that test alone; its own `capture_logs` configures it for good."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="class")
def tests_of_a_row(request: pytest.FixtureRequest) -> Iterator[dict[str, Evidence]]:
    """The tests of a suite with a `row`, by name, when they have run: they have shown what the record says of it.

    Some of the tests show a part of it; all of them, the whole. PROCTOR_MATRIX=write keeps it as the record.
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
def told_to_the_matrix(request: pytest.FixtureRequest, tests_of_a_row: dict[str, Evidence]) -> Iterator[None]:
    """Keeps what one test has shown."""
    yield
    if isinstance(request.instance, Evidence):
        tests_of_a_row[request.node.originalname] = request.instance
