"""Runs and their events."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from proctor.policies.stream.events import Event
from proctor.supervisor.ports import RunInfo

from ..operations import Asked, Operation
from ..records import RunFilter, context_of
from ..views import EventList, RunLine, RunList

Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs: `label` is NAME or NAME=VALUE, `q` is looked for in ids, prompt, agent and tenant, `before` the
    `next` of the page before.
    """

    status: str | None = None
    session: str | None = None
    tenant: str | None = None
    provider: str | None = None
    label: str | None = None
    q: str | None = None
    before: str | None = None
    limit: Limit = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: those with seq > `after`."""

    after: Seq = 0
    limit: Limit = 200


def run_line(run: RunInfo) -> RunLine:
    """A run as a list shows it."""
    context = context_of(run)
    return RunLine(
        run_id=run.run_id,
        session_id=run.session_id,
        provider=run.provider,
        status=run.status,
        prompt=str(run.spec.get("prompt", "")),
        created_at=run.created_at,
        tenant=context.get("tenant"),
        labels=context.get("labels") or {},
    )


def event_data(event: Event) -> dict[str, Any]:
    """An event as JSON data, with its type."""
    data: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    return data


async def _runs(asked: Asked) -> RunList:
    query: RunQuery = asked.query
    wanted = RunFilter(
        status=query.status,
        session_id=query.session,
        tenant=query.tenant,
        provider=query.provider,
        label=query.label,
        text=query.q or None,
    )
    found, following = await asked.records.runs(wanted, before=query.before, limit=query.limit)
    return RunList(runs=tuple(map(run_line, found)), next=following)


async def _run(asked: Asked) -> RunLine:
    return run_line(await asked.records.run(asked.path["run_id"]))


async def _run_events(asked: Asked) -> EventList:
    run = await asked.records.run(asked.path["run_id"])
    return await _events(asked, run.session_id, run.run_id)


async def _session_events(asked: Asked) -> EventList:
    return await _events(asked, asked.path["session_id"], None)


async def _events(asked: Asked, session_id: str, run_id: str | None) -> EventList:
    query: EventQuery = asked.query
    found = await asked.records.events(session_id, run_id=run_id, after=query.after, limit=query.limit)
    following = found[-1].seq if len(found) == query.limit else None
    return EventList(events=tuple(map(event_data, found)), next=following)


_OF_RUN = "/api/runs/{run_id}"
OPERATIONS = (
    Operation("GET", "/api/runs", "runs", "The runs of the store, newest first.", _runs, RunList, query=RunQuery),
    Operation("GET", _OF_RUN, "run", "One run.", _run, RunLine),
    Operation(
        "GET", f"{_OF_RUN}/events", "run_events", "The events of a run.", _run_events, EventList, query=EventQuery
    ),
    Operation(
        "GET",
        "/api/sessions/{session_id}/events",
        "session_events",
        "The events of a session, of all its runs.",
        _session_events,
        EventList,
        query=EventQuery,
    ),
)
