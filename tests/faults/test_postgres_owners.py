"""Supervisors in their own processes, with a server that is cut off, stopped or killed, as they are."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import anyio
import pytest
from cutting_proxy import CuttingProxy
from owning_processes import Workers, check_record, ended_by_another, process
from postgres_server import OwnServer, needs_own_server
from stored_rows import in_store, stored_events

from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import RunFailed

pytestmark = needs_own_server
TROUBLES = int(os.environ.get("PROCTOR_KILLS", "3"))


@pytest.fixture
def server() -> Iterator[OwnServer]:
    with OwnServer() as server:
        yield server


def test_a_disconnected_supervisor_can_neither_write_nor_allow_after_its_return(server: OwnServer) -> None:
    """Another supervisor has ended its run after the lease. A call that its agent proposes then does not run."""
    with CuttingProxy(server.folder) as proxy, process(proxy.url(server.url()), "hold", "1") as owner:
        owner.until("ran held c0")
        proxy.refuses = True
        proxy.cut()
        before = in_store(server.url(), ended_by_another)
        proxy.refuses = False
        owner.go_on()
        lines = owner.rest()
    after = in_store(server.url(), stored_events)

    assert [line for line in lines if line.startswith("ran")] == ["ran held c0"]
    assert lines[-1].startswith("refused fenced")
    assert after == before
    assert isinstance(after[-1], RunFailed)


@pytest.mark.parametrize("troubles", [TROUBLES])
def test_the_log_stays_valid_whatever_is_disconnected_stopped_or_killed(server: OwnServer, troubles: int) -> None:
    """A worker, its connections, the server: no acknowledged event lost, no gap, one end a run, no
    unrecorded call.
    """
    with ExitStack() as stack:
        proxies = [stack.enter_context(CuttingProxy(server.folder)) for _ in range(2)]
        workers = stack.enter_context(Workers(server.url(), [proxy.url(server.url()) for proxy in proxies]))
        for n in range(troubles):
            workers.create()
            match n % 3:
                case 0:
                    server.stop(random.choice((signal.SIGKILL, signal.SIGQUIT)))
                    server.start()
                case 1:
                    proxies[n % 2].cut_at(random.randrange(1, 30), after=random.random() < 0.5)
                case 2:
                    workers.kill(n % 2)

    anyio.run(check_record, server.url(), workers.lines)
    assert audited(server.url()).findings == ()
