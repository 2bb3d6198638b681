"""Runs and their events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Literal, get_type_hints

import anyio
import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from proctor.policies import Monitor
from proctor.policies.diagram import draw_mermaid
from proctor.policies.events import Event, encode_event
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.store import wait_again
from proctor.supervisor.ports.stored_types import RunFilter, RunStatus
from proctor.supervisor.watch.subscriptions import NOW, Subscription

from ..drawing import draw_svg
from ..evaluate.fold import Recorded
from ..kit.display_text import escape_control_lines
from ..operations import views
from ..operations.service import Fold, MissingError
from ..operations.timeline import TimelineItems
from .auth import refused
from .endpoints import ApiRequest, operation, values_of

_OF_RUN = "/api/runs/{run_id}"
_encode = msgspec.json.Encoder(enc_hook=str).encode


def _text(value: Any) -> str:
    return _encode(value).decode()


Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
Label = Annotated[str, msgspec.Meta(pattern="^[^=]+=")]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter for runs: `status` also takes `waiting` (a call of the run waits for a person); `label` is NAME=VALUE,
    `q` is searched for in ids, prompt, agent and tenant, `since` and `until` bound the start, `before` is the `next`
    of the previous page.
    """

    status: Literal["waiting"] | RunStatus | None = None
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
    """A filter for events: those with seq > `after`."""

    after: Seq = 0
    limit: Limit = 200


@operation("GET", "/api/runs", views.RunList, query=RunQuery)
async def runs(request: ApiRequest) -> views.RunList:
    """The runs of the store, newest first."""
    query: RunQuery = request.query
    name, _, value = (query.label or "").partition("=")
    where = RunFilter(
        status=frozenset([query.status] if query.status and query.status != "waiting" else ()),
        tenant=query.tenant,
        labels={name: value} if query.label else {},
        provider=query.provider,
        since=query.since,
        until=query.until,
    )
    return await request.service.runs(
        where,
        session_id=query.session,
        words=query.q,
        waiting=query.status == "waiting",
        before=query.before,
        limit=query.limit,
    )


@operation("GET", _OF_RUN, views.RunView)
async def run(request: ApiRequest) -> views.RunView:
    """One run, by its id, the beginning of one, or `last`."""
    return await request.service.run(request.path["run_id"])


@operation("GET", f"{_OF_RUN}/timeline", views.Timeline, query=EventQuery)
async def timeline(request: ApiRequest) -> views.Timeline:
    """The events of a run, as people read them."""
    query: EventQuery = request.query
    return await request.service.timeline(request.path["run_id"], after=query.after, limit=query.limit)


@operation("GET", f"{_OF_RUN}/events", views.EventList, query=EventQuery)
async def run_events(request: ApiRequest) -> views.EventList:
    """The events of a run."""
    run = await request.service.run_named(request.path["run_id"])
    return await _events(request, run.session_id, run.run_id)


@operation("GET", "/api/sessions/{session_id}/events", views.EventList, query=EventQuery)
async def session_events(request: ApiRequest) -> views.EventList:
    """The events of a session, of all its runs."""
    return await _events(request, request.path["session_id"], None)


async def _events(request: ApiRequest, session_id: str, run_id: str | None) -> views.EventList:
    query: EventQuery = request.query
    found = await request.service.events(session_id, run_id=run_id, after=query.after, limit=query.limit)
    following = found[-1].seq if len(found) == query.limit else None
    return views.EventList(events=tuple(msgspec.to_builtins(found, enc_hook=str)), next=following)


PING_S = 15
MOST_STREAMS = 200
"""How many streams may be open at once."""


class SeqQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin: after the seq `after`; a stream, after what the header `Last-Event-ID` says if there is one."""

    after: Seq = 0


class StreamQuery(SeqQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin, as `SeqQuery` says. `types` names the wanted event types, separated by commas."""

    types: str = ""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin: after the cursor `after`, with `start` at the beginning, without it at the present; or
    after what the header `Last-Event-ID` says. `tenant` selects one tenant, `types` event types, separated by
    commas.
    """

    after: str = ""
    tenant: str | None = None
    types: str = ""


_MEDIA = "text/event-stream"


class Stream(views.View, frozen=True, kw_only=True):
    """Server-sent events, each with `id` (its cursor), `event` (its type) and `data` (the event as JSON)."""


@operation("GET", "/api/runs/{run_id}/stream", Stream, query=StreamQuery, media=_MEDIA)
async def run_stream(request: ApiRequest) -> Any:
    """The events of a run so far, then new ones; `end` after its end."""
    run = await request.service.run_named(request.path["run_id"])
    return await _stream(request, run_id=run.run_id, after=_cursor(request), types=_types(request.query.types))


@operation("GET", f"{_OF_RUN}/timeline/stream", Stream, query=SeqQuery, media=_MEDIA)
async def timeline_stream(request: ApiRequest) -> Any:
    """The events of a run so far, as people read them, then those that follow, each an `item`; `end` after its
    end.
    """
    run = await request.service.run_named(request.path["run_id"])
    items = TimelineItems(ran=await request.service.calls_in(run.session_id) if run.ended_seq else None)

    def item(event: Event) -> ServerSentEvent | None:
        found = items.of(event)
        return None if found is None else ServerSentEvent(data=_text(found), event="item", sep="\n")

    return await _stream(request, item, run_id=run.run_id, after=_cursor(request))


@operation("GET", "/api/stream", Stream, query=LogQuery, media=_MEDIA)
async def stream(request: ApiRequest) -> Any:
    """The events of all runs in any process, as they are stored."""
    query: LogQuery = request.query
    after = request.http.headers.get("last-event-id") or query.after
    return await _stream(request, tenant=query.tenant, after=after or NOW, types=_types(query.types))


@operation("GET", "/api/changes", Stream, media=_MEDIA)
async def changes(request: ApiRequest) -> Any:
    """Sends `changed` whenever something was stored, so that a page can reload."""
    return _streaming(request, _ticks(request))


@operation("GET", "/api/sessions/{session_id}/stream", Stream, query=StreamQuery, media=_MEDIA)
async def session_stream(request: ApiRequest) -> Any:
    """The events of a session so far, then new ones."""
    session_id = request.path["session_id"]
    await request.service.events(session_id, run_id=None, after=0, limit=1)
    return await _stream(request, session_id=session_id, after=_cursor(request), types=_types(request.query.types))


def _cursor(request: ApiRequest) -> int:
    given = request.http.headers.get("last-event-id")
    if given is None:
        return int(request.query.after)
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise UsageError("`Last-Event-ID` is not a cursor of this stream")
    return int(given)


def _types(text: str) -> list[str] | None:
    return list(filter(None, text.split(","))) or None


def _message(event: Event) -> ServerSentEvent:
    return ServerSentEvent(data=encode_event(event).decode(), event=event.type, sep="\n")


async def _stream(
    request: ApiRequest, message: Callable[[Event], ServerSentEvent | None] = _message, **where: Any
) -> Any:
    """The events of a subscription, one message each. Raises UsageError for a cursor that the store does not have."""
    async with request.service.subscribe(**where) as events:
        where["after"] = events.cursor
    return _streaming(request, _sent(request.service.subscribe(**where), message))


def _streaming(request: ApiRequest, messages: AsyncGenerator[ServerSentEvent]) -> Any:
    state = request.http.app.state
    if state.streams >= MOST_STREAMS:
        return refused(503, "too_many", f"{MOST_STREAMS} streams are open already")

    async def opened() -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent(comment="open", sep="\n")
        try:
            async with aclosing(messages):
                async for message in messages:
                    yield message
        except StoreError as error:  # whoever reads asks again, and is told why
            logger().warning("web.stream_ended", why=str(error))

    return _Stream(opened(), state)


class _Stream(EventSourceResponse):
    """Is counted while it is open; ends cleanly when the server stops, so that readers connect again elsewhere, or
    later.
    """

    def __init__(self, messages: AsyncIterator[ServerSentEvent], state: State) -> None:
        super().__init__(messages, ping=PING_S, sep="\n")
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._state.streams += 1  # before anything is awaited: others that come meanwhile are to see it
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end, tasks.cancel_scope)
                await super().__call__(scope, receive, send)
                tasks.cancel_scope.cancel()
        finally:
            self._state.streams -= 1
        if self._state.closing.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end(self, scope: anyio.CancelScope) -> None:
        await self._state.closing.wait()
        scope.cancel()


async def _sent(
    subscription: Subscription, message: Callable[[Event], ServerSentEvent | None]
) -> AsyncGenerator[ServerSentEvent]:
    async with subscription as events:
        async for event in events:
            await anyio.lowlevel.checkpoint()  # a long past neither keeps others waiting nor outlasts its client
            if (made := message(event)) is not None:
                made.id = str(events.cursor)
                yield made
    yield ServerSentEvent(data="{}", event="end", sep="\n")


async def _ticks(request: ApiRequest) -> AsyncGenerator[ServerSentEvent]:
    token = 0
    while True:
        seen, token = token, await wait_again(request.service.store, token, PING_S)
        if token != seen:
            yield ServerSentEvent(data="{}", event="changed", sep="\n")


async def _fold(request: ApiRequest) -> Fold:
    run = await request.service.run_named(request.path["run_id"])
    fold = await request.service.folds.of(run)
    if not fold.was.policies:
        raise MissingError(f"no policy is stored with run `{run.run_id}`")
    return fold


@operation("GET", f"{_OF_RUN}/decisions", views.DecisionList, query=SeqQuery)
async def decisions(request: ApiRequest) -> views.DecisionList:
    """The decisions of a run and their reasons, evaluated again by the policies stored with it."""
    fold = await _fold(request)
    found = tuple(step for step in fold.decisions if step.seq > request.query.after)
    return views.DecisionList(decisions=found, left_out=fold.decided - len(fold.decisions), untold=fold.was.untold)


@operation("GET", f"{_OF_RUN}/limits", views.LimitList)
async def limits(request: ApiRequest) -> views.LimitList:
    """The usage of a run's limits."""
    fold = await _fold(request)
    unpriced = fold.refold().monitor.metadata.get("unpriced", ())
    return views.LimitList(limits=fold.limits(), unpriced=tuple(unpriced))


@operation("GET", f"{_OF_RUN}/policies", views.Policies)
async def policies(request: ApiRequest) -> views.Policies:
    """The policies of a run, with their graph."""
    fold = await _fold(request)
    state = fold.refold().copy()  # here, as other requests replay what follows in threads of their own
    return await anyio.to_thread.run_sync(_drawn, fold.was, state)


def _drawn(was: Recorded, monitor: Monitor) -> views.Policies:
    """The stack and its picture, marked with the session's state."""
    stack = monitor.state.program.policy
    return views.Policies(
        stack=stack.name,
        policies=tuple(
            views.PolicyInForce(
                name=str(each.get("name")), locked=bool(each.get("locked")), written=each, text=_yaml(each)
            )
            for each in was.policies
        ),
        mermaid=escape_control_lines(draw_mermaid(stack, monitor)),
        svg=escape_control_lines(draw_svg(stack, monitor)),
    )


def _yaml(written: dict[str, Any]) -> str:
    import yaml

    lines: str = yaml.safe_dump(written, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
    return escape_control_lines(lines)


@operation("GET", "/api/me", views.Me)
async def me(request: ApiRequest) -> views.Me:
    """The token's owner, and the actions it allows."""
    import proctor

    who, statuses = request.who, values_of(get_type_hints(RunQuery)["status"])
    return views.Me(name=who.name, roles=who.roles, groups=who.groups, version=proctor.__version__, statuses=statuses)


@operation("GET", "/api/budgets", views.BudgetList)
async def budgets(request: ApiRequest) -> views.BudgetList:
    """The use of budgets that runs share."""
    return await request.service.budgets()
