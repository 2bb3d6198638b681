"""Events as they come, as server-sent events; the id of each is the cursor that `Last-Event-ID` resumes after."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from proctor.policies.stream.codec import encode_event
from proctor.supervisor.errors import UsageError
from proctor.supervisor.watch.subscriptions import Subscription

from ..guard import refused
from ..operations import ApiRequest, operation
from ..views import View
from .runs import Seq

PING_S = 15
MOST_STREAMS = 200
"""That are open at once."""


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin: after the seq `after`, or after what the header `Last-Event-ID` says. `types` names the
    wanted event types, separated by commas.
    """

    after: Seq = 0
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


class Stream(View, frozen=True, kw_only=True):
    """Server-sent events, each with `id` (its cursor), `event` (its type) and `data` (the event as JSON)."""


@operation("GET", "/api/runs/{run_id}/stream", Stream, query=StreamQuery, media=_MEDIA)
async def run_stream(request: ApiRequest) -> Any:
    """The events of a run so far, then new ones; `end` after its end."""
    run = await request.records.run(request.path["run_id"])
    return _stream(request, request.records.subscribe(run_id=run.run_id, after=_cursor(request)))


@operation("GET", "/api/stream", Stream, query=LogQuery, media=_MEDIA)
async def stream(request: ApiRequest) -> Any:
    """The events of all runs in any process, as they are stored."""
    query: LogQuery = request.query
    after = request.http.headers.get("last-event-id") or query.after
    async with request.records.subscribe(tenant=query.tenant, after=after or 0) as events:
        place = events.cursor  # one of another store is an error of the request
    return _stream(request, request.records.subscribe(tenant=query.tenant, after=place))


@operation("GET", "/api/changes", Stream, media=_MEDIA)
async def changes(request: ApiRequest) -> Any:
    """Sends `changed` whenever something was stored, so that a page can reload."""
    return _streaming(request, _ticks(request))


@operation("GET", "/api/sessions/{session_id}/stream", Stream, query=StreamQuery, media=_MEDIA)
async def session_stream(request: ApiRequest) -> Any:
    """The events of a session so far, then new ones."""
    session_id = request.path["session_id"]
    await request.records.events(session_id, run_id=None, after=0, limit=1)
    return _stream(request, request.records.subscribe(session_id=session_id, after=_cursor(request)))


def _cursor(request: ApiRequest) -> int:
    given = request.http.headers.get("last-event-id")
    if given is None:
        return int(request.query.after)
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise UsageError("`Last-Event-ID` is not a cursor of this stream")
    return int(given)


def _stream(request: ApiRequest, subscription: Subscription) -> Any:
    types = frozenset(filter(None, request.query.types.split(",")))
    return _streaming(request, _sent(subscription, types))


def _streaming(request: ApiRequest, messages: AsyncGenerator[ServerSentEvent]) -> Any:
    state = request.http.app.state
    if state.streams >= MOST_STREAMS:
        return refused(503, "too_many", f"{MOST_STREAMS} streams are open already")

    async def counted() -> AsyncIterator[ServerSentEvent]:
        state.streams += 1
        try:
            yield ServerSentEvent(comment="open", sep="\n")
            async with aclosing(messages):
                async for message in messages:
                    yield message
        finally:
            state.streams -= 1

    return _Stream(counted(), state.closing)


class _Stream(EventSourceResponse):
    """Ends in order when the server does: whoever reads it connects again elsewhere, or later."""

    def __init__(self, messages: AsyncIterator[ServerSentEvent], closing: anyio.Event | None) -> None:
        super().__init__(messages, ping=PING_S, sep="\n")
        self._closing = closing or anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end, tasks.cancel_scope)
            await super().__call__(scope, receive, send)
            tasks.cancel_scope.cancel()
        if self._closing.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


async def _sent(subscription: Subscription, types: frozenset[str]) -> AsyncGenerator[ServerSentEvent]:
    async with subscription as events:
        async for event in events:
            await anyio.lowlevel.checkpoint()  # a long past neither keeps others waiting nor outlasts its client
            if not types or event.type in types:
                data = encode_event(event).decode()
                yield ServerSentEvent(data=data, id=str(events.cursor), event=event.type, sep="\n")
    yield ServerSentEvent(data="{}", event="end", sep="\n")


async def _ticks(request: ApiRequest) -> AsyncGenerator[ServerSentEvent]:
    token = 0
    while True:
        seen, token = token, await request.records.store.wait(token, PING_S)
        if token != seen:
            yield ServerSentEvent(data="{}", event="changed", sep="\n")
