"""Workers as separate processes, their runs, and functions that wait for them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from proctor.adapters.fleet import Fleet, FleetHandle, RunSpec
from proctor.policies import parse_policies
from proctor.supervisor import ApprovalError, RunInfo, Store, StoredApproval
from proctor.supervisor.ports.stored_types import NOT_OVER
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import Forked
from tests.stored_rows import once
from tests.whole_records import whole_record, wrong

ECHO = {"steps": [{"call": "bash", "input": {"command": "echo hi"}}, {"output": "done"}]}
ASKING = {
    "name": "asks",
    "approval": {"timeout_s": 600},
    "rules": [{"type": "blocklist", "tools": ["bash"], "action": "request_approval"}],
}
PROGRAM = Path(__file__).parent / "adapters" / "fleet" / "working.py"


def spec(script: Any = ECHO, policy: dict[str, Any] | None = None, adapter: str = "scripted", **more: Any) -> RunSpec:
    """A scripted run."""
    policies = parse_policies({"policies": [policy or {"name": "open"}]})
    return RunSpec.of(adapter, "Go", policies=policies, **{"options": {"script": script}, **more})


async def over(store: Store, run_id: str) -> RunInfo:
    """A run, once it has ended."""

    async def ended(store: Store) -> RunInfo | None:
        run = await store.run(run_id)
        return None if run is None or run.status in NOT_OVER else run

    return await once(store, ended)


async def waiting_approval(store: Store, run_id: str) -> StoredApproval:
    """The approval request of a run, once there is one."""
    return (await once(store, lambda store: store.approvals(run_id=run_id)))[0]


@contextmanager
def working(
    place: str | Path, *, lease_s: float | None = None, cwd: Path | None = None, env: Mapping[str, str] = os.environ
) -> Iterator[Forked]:
    """A worker in its own process; with a lease, as if on another machine, where its process is invisible."""
    words = [str(place), *([] if lease_s is None else [str(lease_s)])]
    with Forked(PROGRAM, words, cwd=cwd or Path.cwd(), env=env) as process:
        try:
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.kill()


async def approved(store: Store, fleet: Fleet, handle: FleetHandle) -> None:
    """Approve the requests of a run, and of the run that continues it, until that has ended."""
    with anyio.fail_after(PATIENCE_S):
        while (run := await handle.info()).status in NOT_OVER:
            for waits in await store.approvals(run_id=run.run_id):
                with suppress(ApprovalError):  # its worker has just died
                    await fleet.approve(waits.request.approval_id, by="ana")
            await anyio.sleep(0.05)


async def check_record(store: Store) -> None:
    """Raises AssertionError if anything is wrong with the event log."""
    assert list(wrong(*await whole_record(store))) == []
