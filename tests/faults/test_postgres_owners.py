"""A supervisor in its own process that its PostgreSQL server loses sight of."""

from cutting_proxy import CuttingProxy
from owning_processes import ended_by_another, process
from postgres_server import OwnServer, needs_own_server
from stored_rows import in_store, stored_events

from proctor.policies.events import RunFailed

pytestmark = needs_own_server


def test_a_disconnected_supervisor_can_neither_write_nor_allow_after_its_return() -> None:
    """Another supervisor has ended its run after the lease. A call that its agent proposes then does not run."""
    with (
        OwnServer() as server,
        CuttingProxy(server.folder) as proxy,
        process(proxy.url(server.url()), "hold", "1") as owner,
    ):
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
