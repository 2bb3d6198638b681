"""The run that goes on where a lost one stopped; it is created when the lost one is ended."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import StoreError
from ..ports.adapters import Store
from ..ports.facts import RunInfo
from ..ports.orders import Cancel

AGAIN = "again"
"""The field of a run's spec that says whether another goes on where it is lost: how often (`times`), and what the
agent is told then where it had begun (`prompt`).
"""


def next_of(run: RunInfo) -> RunInfo | None:
    """The run that goes on where this one was lost; None where its spec asks for none, or for no more."""
    again = run.spec.get(AGAIN, {})
    if again.get("times", 0) < 1:
        return None
    count = again.get("count", 1) + 1
    begun = {"prompt": again["prompt"]} if run.started_seq and again.get("prompt") else {}
    counted = {**again, "times": again["times"] - 1, "count": count}
    first = run.run_id if count == 2 else run.run_id.rpartition(".")[0]
    return RunInfo(
        run_id=f"{first}.{count}",
        session_id=run.session_id,
        provider=run.provider,
        spec={**run.spec, **begun, AGAIN: counted},
        created_at=datetime.now(UTC),
    )


async def latest(store: Store, run: RunInfo) -> RunInfo:
    """The last of the runs that went on with this one; itself where none did. Raises StoreError."""
    while (following := await _stored_next(store, run)) is not None:
        run = following
    return run


async def create_next(store: Store, run: RunInfo) -> None:
    """Create what goes on with a lost run, once, unless somebody ordered that the run ends. Raises StoreError."""
    following = next_of(run)
    if following is None or await ordered_to_end(store, run):
        return
    try:
        created = await store.create_run(following)
    except StoreError as error:
        if error.kind != "run_exists":
            raise
        stored = await _stored_next(store, run)
        if stored is None:
            return  # another run has the name
        created = stored
    order = await ordered_to_end(store, run)
    if order is not None and order.number <= created.after:  # it came too early to concern the new run
        await store.instruct(Cancel(scope="run", value=created.run_id, by=order.by, reason=order.reason, at=order.at))


async def _stored_next(store: Store, run: RunInfo) -> RunInfo | None:
    following = next_of(run)
    stored = None if following is None else await store.run(following.run_id)
    if following is None or stored is None or stored.session_id != run.session_id:
        return None
    return stored if stored.spec.get(AGAIN) == following.spec[AGAIN] else None


async def ordered_to_end(store: Store, run: RunInfo) -> Cancel | None:
    """Somebody's order that a run ends, given since it was created."""
    for order in await store.instructions(after=run.after):
        if isinstance(order, Cancel) and order.covers(
            run_id=run.run_id, session_id=run.session_id, tenant=run.tenant, labels=run.labels
        ):
            return order
    return None
