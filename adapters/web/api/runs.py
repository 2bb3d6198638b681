"""Runs and their events."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated, Any

import msgspec

from proctor.supervisor.ports.adapters import RunFilter, RunInfo
from proctor.supervisor.ports.facts import RunStatus

from ..operations import ApiRequest, operation
from ..views import EventList, RunLine, RunList

_OF_RUN = "/api/runs/{run_id}"
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
Label = Annotated[str, msgspec.Meta(pattern="^[^=]+=")]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs: `label` is NAME=VALUE, `q` is searched for in ids, prompt, agent and tenant, `since` and
    `until` bound the start, `before` is the `next` of the previous page.
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


def _line(run: RunInfo, **more: Any) -> RunLine:
    shown = msgspec.convert(run, RunLine, from_attributes=True)
    return msgspec.structs.replace(shown, prompt=str(run.spec.get("prompt", "")), **more)


@operation("GET", "/api/runs", RunList, query=RunQuery)
async def runs(request: ApiRequest) -> RunList:
    """The runs of the store, newest first."""
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
    return RunList(runs=tuple(_line(run, waiting=waiting[run.run_id]) for run in found), next=following)


@operation("GET", _OF_RUN, RunLine)
async def run(request: ApiRequest) -> RunLine:
    """One run."""
    found = await request.records.run(request.path["run_id"])
    waiting = sum(held.run_id == found.run_id for held in await request.records.waiting())
    last_seq = found.ended_seq or await request.records.store.last_seq(found.session_id)
    return _line(found, waiting=waiting, last_seq=last_seq)


@operation("GET", f"{_OF_RUN}/events", EventList, query=EventQuery)
async def run_events(request: ApiRequest) -> EventList:
    """The events of a run."""
    run = await request.records.run(request.path["run_id"])
    return await _events(request, run.session_id, run.run_id)


@operation("GET", "/api/sessions/{session_id}/events", EventList, query=EventQuery)
async def session_events(request: ApiRequest) -> EventList:
    """The events of a session, of all its runs."""
    return await _events(request, request.path["session_id"], None)


async def _events(request: ApiRequest, session_id: str, run_id: str | None) -> EventList:
    query: EventQuery = request.query
    found = await request.records.events(session_id, run_id=run_id, after=query.after, limit=query.limit)
    following = found[-1].seq if len(found) == query.limit else None
    return EventList(events=tuple(msgspec.to_builtins(found, enc_hook=str)), next=following)
