"""Runs and their events."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated, Any

import msgspec

from proctor.policies.stream.events import Event
from proctor.supervisor.ports.adapters import RunFilter, RunInfo
from proctor.supervisor.ports.facts import RunStatus

from ..operations import ApiRequest, Operation
from ..views import EventList, RunLine, RunList

Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
Label = Annotated[str, msgspec.Meta(pattern="^[^=]+=")]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs: `label` is NAME=VALUE, `q` is looked for in ids, prompt, agent and tenant, `since` and `until`
    bound the start, `before` is the `next` of the page before.
    """

    status: RunStatus | None = None
    session: str | None = None
    tenant: str | None = None
    provider: str | None = None
    label: Label | None = None
    since: datetime | None = None
    until: datetime | None = None
    q: str = ""
    before: str | None = None
    limit: Limit = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: those with seq > `after`."""

    after: Seq = 0
    limit: Limit = 200


def run_line(run: RunInfo, waiting: int = 0, last_seq: int | None = None) -> RunLine:
    """A run as a list shows it."""
    return RunLine(
        run_id=run.run_id,
        session_id=run.session_id,
        provider=run.provider,
        status=run.status,
        prompt=str(run.spec.get("prompt", "")),
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        duration_ms=run.duration_ms,
        tenant=run.tenant,
        labels=run.labels,
        usage=run.usage,
        calls=run.calls,
        violations=run.violations,
        waiting=waiting,
        last_seq=last_seq,
    )


def event_data(event: Event) -> dict[str, Any]:
    """An event as JSON data, with its type."""
    data: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    return data


async def _runs(request: ApiRequest) -> RunList:
    query: RunQuery = request.query
    name, _, value = (query.label or "").partition("=")
    where = RunFilter(
        status=frozenset([query.status] if query.status else ()),
        tenant=query.tenant,
        labels={name: value} if query.label else {},
        provider=query.provider,
        since=query.since,
        until=query.until,
    )
    found, following = await request.records.runs(
        where, session_id=query.session, words=query.q, before=query.before, limit=query.limit
    )
    waiting = Counter(held.run_id for held in await request.records.waiting())
    return RunList(runs=tuple(run_line(run, waiting[run.run_id]) for run in found), next=following)


async def _run(request: ApiRequest) -> RunLine:
    run = await request.records.run(request.path["run_id"])
    waiting = sum(held.run_id == run.run_id for held in await request.records.waiting())
    return run_line(run, waiting, run.ended_seq or await request.records.store.last_seq(run.session_id))


async def _run_events(request: ApiRequest) -> EventList:
    run = await request.records.run(request.path["run_id"])
    return await _events(request, run.session_id, run.run_id)


async def _session_events(request: ApiRequest) -> EventList:
    return await _events(request, request.path["session_id"], None)


async def _events(request: ApiRequest, session_id: str, run_id: str | None) -> EventList:
    query: EventQuery = request.query
    found = await request.records.events(session_id, run_id=run_id, after=query.after, limit=query.limit)
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
