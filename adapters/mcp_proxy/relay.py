"""One connection: a client's messages to a server and back, its tool calls held at the gate.

What the protocol defines and is not about tools goes through untouched, in both directions; nothing else does.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup
from mcp.shared.message import ClientMessageMetadata, MessageMetadata, ServerMessageMetadata, SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall, tell_model_default
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import Gate

from ..kit.call_book import outcome_of
from ..kit.client_tools import mcp_output
from . import messages
from .messages import RequestId
from .tools import Naming, ToolList, Visibility


class PendingRequest:
    """A request that is only passed on: `id` is the client's own, `is_first` whether it begins a list of pages,
    `withdrawn` whether the client has cancelled it, and `unanswered` ends its stream over HTTP without an answer.
    """

    def __init__(self, message: JSONRPCRequest, metadata: MessageMetadata) -> None:
        self.unanswered = metadata.on_request_unanswered if isinstance(metadata, ServerMessageMetadata) else None
        self.id = message.id
        self.method = message.method
        self.is_first = not (message.params or {}).get("cursor")
        self.withdrawn = False


class PendingCall(PendingRequest):
    """A tool call: held at the gate, then with the server."""

    def __init__(self, message: JSONRPCRequest, metadata: MessageMetadata, call: ToolCall) -> None:
        super().__init__(message, metadata)
        self.call = call
        self.progress = progress_token(message.params or {})
        self.running = False
        self.scope = anyio.CancelScope()


_MOST_WITHDRAWN = 1000
"""How many requests that a client has cancelled wait for the server's answer."""


class Pending:
    """A client's requests that have no answer yet.

    The server is asked under numbers of the proxy's own: servers read ids as their language does (2**53 + 1 is 2**53
    in JavaScript), and answer what was cancelled when its id may be another request's already.
    """

    def __init__(self) -> None:
        self._by_id: dict[RequestId, PendingRequest] = {}
        self._by_number: dict[int, PendingRequest] = {}
        self._numbers = count(1)

    def __iter__(self) -> Iterator[PendingRequest]:
        """Those the client waits for, and calls that it has withdrawn and the server works on still."""
        return iter(
            [*{id(request): request for request in (*self._by_id.values(), *self._by_number.values())}.values()]
        )

    def has(self, request_id: Any) -> bool:
        """Whether the client waits for an answer under this id, or under one that HTTP does not tell from it."""
        return str(request_id) in map(str, self._by_id)

    def add(self, request: PendingRequest) -> None:
        self._by_id[request.id] = request

    def passed_on(self, request: PendingRequest) -> int:
        """Note that a request goes to the server; returns its number there."""
        number = next(self._numbers)
        self._by_number[number] = request
        return number

    def withdraw(self, request_id: Any) -> tuple[PendingRequest, int | None] | None:
        """The request cancelled by its id, with its number at the server, if any; None if there is none."""
        request = self._by_id.get(request_id) if messages.is_id(request_id) else None
        if request is None:
            return None
        number = next((number for number, each in self._by_number.items() if each is request), None)
        if number is not None and request.method != messages.INITIALIZE:
            request.withdrawn = True
            del self._by_id[request.id]
        return request, number

    def forget_oldest(self) -> Iterator[PendingRequest]:
        """Forget the oldest withdrawn requests, as most servers never answer those; returns them."""
        withdrawn = [number for number, each in self._by_number.items() if each.withdrawn]
        for number in withdrawn[:-_MOST_WITHDRAWN]:
            yield self._by_number.pop(number)

    def answered(self, number: Any) -> PendingRequest | None:
        """The request that the server answers; None if there was none."""
        request = self._by_number.pop(number, None) if isinstance(number, int) else None
        if request is not None and not request.withdrawn:
            self._by_id.pop(request.id, None)
        return request

    def only(self) -> PendingRequest | None:
        """The request that the server works on and the client waits for, if there is one such only."""
        found = [request for request in self._by_number.values() if not request.withdrawn]
        return found[0] if len(found) == 1 else None

    def drop(self, request: PendingRequest) -> None:
        """Forget a request, as nobody waits for it any more."""
        if self._by_id.get(request.id) is request:
            del self._by_id[request.id]
        self._by_number = {number: each for number, each in self._by_number.items() if each is not request}


def progress_token(params: Mapping[str, Any]) -> RequestId | None:
    """The token by which notices of a request's progress name it."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


def about(message: JSONRPCRequest | JSONRPCNotification, pending: Pending) -> MessageMetadata:
    """The request that a progress notice, or a request of the server's, belongs to: over HTTP it travels with that
    request's answer, as a client need not listen otherwise.
    """
    token = (message.params or {}).get("progressToken")
    found: PendingRequest | None = None
    if isinstance(message, JSONRPCRequest):
        found = pending.only()
    elif token is not None:
        calls = (request for request in pending if isinstance(request, PendingCall))
        found = next((request for request in calls if request.progress == token), None)
    return None if found is None else ServerMessageMetadata(related_request_id=found.id)


LEFT = "the client left before the MCP server answered; the outcome is unknown"
LOST = "the MCP server ended before it answered"
UNREAD = "the MCP server's answer cannot be read"
UNANSWERED = "the call was cancelled and the MCP server has not answered; the outcome is unknown"
WITHDRAWN = "the call was cancelled as it was allowed; it did not run"
ENDING = "the connection is being closed"
_MOST_ASKED = 1000
HANDSHAKE_S = 50.0
"""Seconds a server may take to begin: most clients wait for a minute, and should hear why in time."""
_FIRST_REQUEST_S = 5.0
"""Seconds that the first request of a client may take to come, once the server has ended."""


class SharedByConnections(msgspec.Struct, frozen=True, kw_only=True):
    """State shared by the connections of one run.

    `report` returns when an event was evaluated; `new_id` names calls; `warn` takes texts for the operator; `keys`
    are those of inputs that the policy names.
    """

    gate: Gate
    report: Callable[[Event], Awaitable[None]]
    naming: Naming
    visibility: Visibility
    new_id: Callable[[], str]
    warn: Callable[[str], None]
    keys: frozenset[str] = frozenset()


class Relay:
    """Passes messages on until one side ends.

    # INVARIANT: no `tools/call` reaches the server before the gate has permitted it.
    """

    def __init__(
        self,
        shared: SharedByConnections,
        client: tuple[messages.Incoming, messages.Outgoing],
        server: tuple[messages.Incoming, messages.Outgoing],
    ) -> None:
        self._shared = shared
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._pending = Pending()
        self._asked_by_server: set[messages.RequestId] = set()
        self._tools = ToolList(shared.naming, shared.visibility)
        self._version: str | None = None
        self._lost = False
        self._quiet = anyio.Event()
        self._first_request = anyio.Event()

    async def run(self) -> None:
        """Relay until the client hangs up. Raises ProviderError when the server ends first."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve_client, tasks)
            tasks.start_soon(self._serve_server, tasks)
            tasks.start_soon(self._announce)
        if self._lost:
            raise ProviderError("the MCP server ended while its client was still connected")
        for request in self._pending:
            self._pending.drop(request)
            if isinstance(request, PendingCall):
                await self._failed(request, LEFT)

    async def drain(self) -> None:
        """Let the calls at the gate have their answers, then answer what the server still works on."""
        while any(isinstance(request, PendingCall) and not request.running for request in self._pending):
            self._quiet = anyio.Event()
            await self._quiet.wait()
        for request in self._pending:
            self._pending.drop(request)
            if request.withdrawn:
                continue
            if isinstance(request, PendingCall):
                await self._send(messages.refusal(request.id, tell_model_default(request.call.name)))
            else:
                await self._send(messages.failure(request.id, INTERNAL_ERROR, ENDING))

    async def answer_for_the_server(self, why: str) -> None:
        """Answer every open request with an error, as the server will not."""
        for request in self._pending:
            self._pending.drop(request)
            if isinstance(request, PendingCall):
                if request.running:
                    await self._failed(request, why)
                else:
                    request.scope.cancel()
                if not request.withdrawn:
                    await self._send(messages.refusal(request.id, why))
            elif not request.withdrawn:
                await self._send(messages.failure(request.id, INTERNAL_ERROR, why))

    async def _serve_client(self, tasks: TaskGroup) -> None:
        with suppress(anyio.ClosedResourceError):  # so a session over HTTP ends
            async for item in self._from_client:
                await self._handle_from_client(item, tasks)
        tasks.cancel_scope.cancel()

    async def _handle_from_client(self, item: SessionMessage | Exception, tasks: TaskGroup) -> None:
        if isinstance(item, Exception):
            request_id = messages.unread_request(item)
            request_id = None if self._pending.has(request_id) else request_id
            await self._send(messages.failure(request_id, PARSE_ERROR, "not a JSON-RPC message"))
            return
        message = item.message
        if isinstance(message, JSONRPCRequest):
            await self._handle_request(message, item.metadata, tasks)
        elif isinstance(message, JSONRPCNotification):
            await self._noticed(message)
        elif message.id in self._asked_by_server:
            self._asked_by_server.discard(message.id)
            await self._pass_on(message)
        else:
            self._shared.warn("the client sent an answer to no request; it is dropped")

    async def _noticed(self, message: JSONRPCNotification) -> None:
        if message.method == "notifications/cancelled":
            await self._withdrawn(message)
        elif message.method in messages.NOTICES:
            await self._pass_on(message)
        else:  # also a request whose id is none: null, a float, a boolean, an object, a list
            self._shared.warn(
                f"the client sent `{messages.short(message.method)}` without a usable id; it is dropped"
            )
            why = f"`{message.method}` is not a notification; a request needs an id that is a string or an integer"
            await self._send(messages.failure(None, INVALID_REQUEST, why))

    async def _handle_request(self, message: JSONRPCRequest, metadata: MessageMetadata, tasks: TaskGroup) -> None:
        if self._pending.has(message.id):  # an error under that id would answer the other request
            error = messages.failure(None, INVALID_REQUEST, f"the request id `{message.id}` is in use").message
            await self._send(SessionMessage(error, ServerMessageMetadata(related_request_id=message.id)))
        elif message.method == messages.TOOL_CALL:
            await self._called(message, metadata, tasks)
        elif message.method == "server/discover":
            # Without the handshake there would be no stream for the notice that the tools changed.
            why = "this proxy speaks the protocol versions that begin with `initialize`"
            await self._send(messages.failure(message.id, METHOD_NOT_FOUND, why))
        elif message.method not in messages.REQUESTS:
            why = (
                f"this proxy passes on no `{message.method}`: the protocol does not define it, or it evades the gate"
            )
            await self._send(messages.failure(message.id, METHOD_NOT_FOUND, why))
        else:
            request = PendingRequest(message, metadata)
            self._pending.add(request)
            self._first_request.set()
            if request.method == messages.INITIALIZE:
                tasks.start_soon(self._expect, request)
            await self._request(message, request)

    async def _expect(self, handshake: PendingRequest) -> None:
        await anyio.sleep(HANDSHAKE_S)
        if handshake in self._pending:
            raise ProviderError(f"the MCP server did not answer `initialize` within {HANDSHAKE_S:g} seconds")

    async def _called(self, message: JSONRPCRequest, metadata: MessageMetadata, tasks: TaskGroup) -> None:
        params = message.params or {}
        problem = messages.call_problem(params, self._shared.keys)
        if problem is not None:
            await self._send(messages.failure(message.id, INVALID_PARAMS, problem))
            return
        judged = self._shared.naming.judged(params["name"])
        call = ToolCall(id=self._shared.new_id(), name=judged, input=params.get("arguments") or {})
        pending = PendingCall(message, metadata, call)
        self._pending.add(pending)
        tasks.start_soon(self._gate, message, pending)

    async def _gate(self, message: JSONRPCRequest, pending: PendingCall) -> None:
        decided: JSONRPCRequest | SessionMessage | None = None
        try:
            with pending.scope:
                decided = await self._decided(message, pending)
            if isinstance(decided, SessionMessage):
                await self._send(decided)
            elif decided is not None and pending.scope.cancel_called:
                await self._failed(pending, WITHDRAWN)
            elif decided is not None:
                pending.running = True
                await self._request(decided, pending)
        finally:
            if not pending.running:
                self._pending.drop(pending)
            self._quiet.set()

    async def _decided(self, message: JSONRPCRequest, pending: PendingCall) -> JSONRPCRequest | SessionMessage:
        """What to pass on to the server; or, of a call that is denied, the answer to the client."""
        call = pending.call
        if not self._shared.visibility.knows(call.name):
            self._shared.warn(f"denied `{call.name}`: it was not offered when its server's annotations were read")
            return messages.refusal(message.id, tell_model_default(call.name))
        answer = await self._shared.gate(call)
        self._shared.visibility.touch()
        if not answer.allowed:
            return messages.refusal(message.id, answer.tell_model or tell_model_default(call.name))
        if answer.input is not None:
            params = {**(message.params or {}), "arguments": answer.input}
            message = message.model_copy(update={"params": params})
        return message

    async def _withdrawn(self, message: JSONRPCNotification) -> None:
        """The client cancels a request; a call that the server has may do its work still, so it stays open."""
        params = message.params or {}
        found = self._pending.withdraw(params.get("requestId"))
        if found is None:
            return  # answered already, or never asked
        request, number = found
        if isinstance(request, PendingCall) and not request.running:
            request.scope.cancel()
        elif number is not None:
            await self._pass_on(message.model_copy(update={"params": {**params, "requestId": number}}))
        for each in self._pending.forget_oldest():
            if isinstance(each, PendingCall):
                await self._failed(each, UNANSWERED)
        if request.unanswered is not None and request.method != messages.INITIALIZE:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await request.unanswered()

    async def _send(self, item: SessionMessage) -> None:
        try:
            await self._to_client.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the client's end is dealt with where its messages are read

    async def _request(self, message: JSONRPCRequest, request: PendingRequest) -> None:
        await self._pass_on(message.model_copy(update={"id": self._pending.passed_on(request)}))

    async def _pass_on(self, message: Any) -> None:
        headers = {"mcp-protocol-version": self._version} if self._version else None
        try:
            await self._to_server.send(SessionMessage(message, ClientMessageMetadata(headers=headers)))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the server's end is dealt with where its messages are read

    async def _serve_server(self, tasks: TaskGroup) -> None:
        async for item in self._from_server:
            if isinstance(item, Exception):
                self._shared.warn(f"the MCP server wrote something that is not a message: {messages.unread(item)}")
                number = messages.unread_answer(item)
                if number is None:
                    continue
                item = messages.failure(number, INTERNAL_ERROR, UNREAD)
            answer = await self._handle_answer(item)
            if answer is not None:
                await self._send(answer)
        self._lost = True
        with anyio.move_on_after(_FIRST_REQUEST_S):
            await self._first_request.wait()
        await self.answer_for_the_server(LOST)
        tasks.cancel_scope.cancel()

    async def _handle_answer(self, item: SessionMessage) -> SessionMessage | None:
        """The part of a server's message to pass to the client, if any."""
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return await self._handle_from_server(message)
        request = self._pending.answered(message.id)
        if request is None:
            self._shared.warn("the MCP server sent an answer to no request; it is dropped")
            return None
        if isinstance(request, PendingCall):
            await self._outcome(request, message)
        if isinstance(message, JSONRPCResponse):
            message = message.model_copy(update={"result": self._result(request, message.result)})
        return None if request.withdrawn else SessionMessage(message.model_copy(update={"id": request.id}))

    async def _handle_from_server(self, message: JSONRPCRequest | JSONRPCNotification) -> SessionMessage | None:
        """What of the server's requests and notices to pass on: those that the protocol defines."""
        is_request = isinstance(message, JSONRPCRequest)
        if message.method in (messages.SERVER_REQUESTS if is_request else messages.SERVER_NOTICES):
            if isinstance(message, JSONRPCRequest):
                if len(self._asked_by_server) >= _MOST_ASKED:
                    why = f"{_MOST_ASKED} requests of this server wait for an answer already"
                    await self._pass_on(messages.failure(message.id, INVALID_REQUEST, why).message)
                    return None
                self._asked_by_server.add(message.id)
            elif message.method == "notifications/cancelled":
                cancelled = (message.params or {}).get("requestId")
                self._asked_by_server -= {cancelled} if messages.is_id(cancelled) else set()
            return SessionMessage(message, about(message, self._pending))
        self._shared.warn(
            f"the MCP server sent `{messages.short(message.method)}`, which no server sends; it is dropped"
        )
        if isinstance(message, JSONRPCRequest):
            why = f"this proxy passes no `{message.method}` on to a client"
            await self._pass_on(messages.failure(message.id, METHOD_NOT_FOUND, why).message)
        return None

    def _result(self, request: PendingRequest, result: dict[str, Any]) -> dict[str, Any]:
        """A server's result, as its client gets it."""
        if request.method == messages.INITIALIZE:
            self._version = messages.version_of(result)
            return messages.greeting(result)
        return self._tools.page(result, first=request.is_first) if request.method == messages.TOOL_LIST else result

    async def _announce(self) -> None:
        seen = 0
        while True:
            seen = await self._tools.changed(seen)
            await self._send(messages.tools_changed())

    async def _outcome(self, request: PendingCall, message: JSONRPCResponse | JSONRPCError) -> None:
        if isinstance(message, JSONRPCError):
            await self._failed(request, {"code": message.error.code, "message": message.error.message})
        else:
            failed = message.result.get("isError") not in (None, False)  # as clients read `"true"` and 1
            await self._report(outcome_of(request.call, mcp_output(message.result), failed=failed))

    async def _failed(self, request: PendingCall, error: Any) -> None:
        await self._report(outcome_of(request.call, error, failed=True))

    async def _report(self, event: Event) -> None:
        await self._shared.report(event)
        self._shared.visibility.touch()
