"""One end of a JSON-RPC connection over lines of JSON, for any agent client.

Both sides may send requests at once; those of the other side are answered concurrently, its notifications handled one
after another, in order.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, TypeAlias

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from proctor.policies.values.foreign_code import error_text, named_error
from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import ProviderError

from .values import whole_characters

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
BROKEN: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Errors that end a stream of bytes."""
_SHOWN_BYTES: Final = 200


class EndlessLineError(Exception):
    """A line grew past its bound.

    Attributes:
        start: Its beginning.
    """

    def __init__(self, start: bytes) -> None:
        super().__init__("a line without end")
        self.start = start


class ByteLines:
    """The lines of a stream; the last may be empty.

    Args:
        stream: the bytes.
        max_bytes: how long a line may be.

    Raises:
        EndlessLineError: on iteration, for a line that is longer.
    """

    def __init__(self, stream: anyio.abc.ByteReceiveStream, *, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._buffered = BufferedByteReceiveStream(stream)
        self._max_bytes = max_bytes
        self._over = False

    def __aiter__(self) -> ByteLines:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._buffered.receive_until(b"\n", self._max_bytes)
        except anyio.DelimiterNotFound:
            raise EndlessLineError(self._buffered.buffer[:_SHOWN_BYTES]) from None
        except (anyio.IncompleteRead, *BROKEN):
            self._over = True
            return self._buffered.buffer


METHOD_NOT_FOUND: Final = -32601
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
Params: TypeAlias = dict[str, Any]


class Request(msgspec.Struct):
    """The part of a request by which it can be answered, whatever else is in it."""

    id: int | str
    method: str


_decoder = msgspec.json.Decoder(dict[str, Any])
_requests = msgspec.json.Decoder(Request)
_encoder = msgspec.json.Encoder()


class RpcError(Exception):
    """The other side answered with an error; raised by `RpcHandler.on_request`, it is the answer.

    Attributes:
        code: The number of JSON-RPC's error.
        message: The problem, in words.
        data: Other details from the other side.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RpcClosedError(Exception):
    """The connection ended before the answer came."""


class RpcHandler:
    """Handles what the other side sends; this one knows nothing, and so rejects every request."""

    async def on_request(self, method: str, params: Params) -> Any:
        """Answer a request; an exception other than RpcError is answered as an internal error."""
        raise RpcError(METHOD_NOT_FOUND, f"`{method}` is not answered here")

    async def on_notification(self, method: str, params: Params) -> None:
        """Handle a notification; the next line is read when this returns. One of another shape ends the reading."""

    async def on_garbage(self, line: bytes) -> None:
        """Take a line that is not a message, or an answer to nothing."""


class _Pending:
    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.answer: dict[str, Any] | None = None


class Peer:
    """Our end of the connection; `run` reads until the other side closes it.

    Args:
        reader: the lines of the other side.
        writer: takes ours.
        handler: handles what the other side sends.
        tagged: whether messages carry `"jsonrpc": "2.0"`.
    """

    def __init__(
        self,
        reader: anyio.abc.ByteReceiveStream,
        writer: anyio.abc.ByteSendStream,
        handler: RpcHandler,
        *,
        tagged: bool = True,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._tag: dict[str, Any] = {"jsonrpc": "2.0"} if tagged else {}
        self._writing = anyio.Lock()
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._closed = False

    async def run(self) -> None:
        """Read and answer until the other side closes the connection; then every waiting request fails."""
        try:
            async with anyio.create_task_group() as answers:
                await self._read(answers)
                answers.cancel_scope.cancel()
        finally:
            self._closed = True
            for pending in self._pending.values():
                pending.arrived.set()

    async def request(self, method: str, params: Params | None = None) -> Any:
        """Send a request and wait for its result. Raises RpcError for an error, RpcClosedError at the end."""
        if self._closed:
            raise RpcClosedError(f"`{method}` was requested after the end")
        self._last_id += 1
        request_id = self._last_id
        pending = self._pending[request_id] = _Pending()
        try:
            await self._send({"id": request_id, "method": method, "params": params or {}})
            await pending.arrived.wait()
        finally:
            self._pending.pop(request_id, None)
        if pending.answer is None:
            raise RpcClosedError(f"`{method}` was not answered before the end")
        if (error := pending.answer.get("error")) is not None:
            raise _error_of(error)
        return pending.answer.get("result")

    async def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification. Raises RpcClosedError at the end."""
        message: Params = {"method": method}
        await self._send(message if params is None else {**message, "params": params})

    async def _send(self, message: Params) -> None:
        line = _encoder.encode({**self._tag, **message}) + b"\n"
        try:
            async with self._writing:
                await self._writer.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise RpcClosedError("the other side does not listen any more") from None

    async def _read(self, answers: anyio.abc.TaskGroup) -> None:
        try:
            async for line in ByteLines(self._reader, max_bytes=MAX_LINE_BYTES):
                await self._handle_line(line, answers)
        except EndlessLineError as error:
            await self._handler.on_garbage(error.start)

    async def _handle_line(self, line: bytes, answers: anyio.abc.TaskGroup) -> None:
        if not line.strip():
            return
        message: Params | None
        try:
            message = _decoder.decode(line)
        except NOT_JSON:
            message = await self._handle_unread(line)
        if message is None:
            return
        method, message_id = message.get("method"), message.get("id")
        params = message.get("params")
        if isinstance(method, str) and message_id is not None:
            # each begins before the next line is read, so questions are taken in their order
            await answers.start(self._answer, message_id, method, params if isinstance(params, dict) else {})
        elif isinstance(method, str):
            await self._notified(method, params if isinstance(params, dict) else {})
        elif (pending := self._waiting_for(message_id)) is not None:
            pending.answer = message
            pending.arrived.set()
        else:
            await self._handler.on_garbage(line)

    async def _notified(self, method: str, params: Params) -> None:
        try:
            await self._handler.on_notification(method, params)
        except (AttributeError, LookupError, TypeError) as error:  # it may hide a call, or what was used
            raise ProviderError(f"the client's `{method}` cannot be read: {named_error(error)}") from error

    async def _handle_unread(self, line: bytes) -> Params | None:
        """The message, if only halves of characters are wrong with it; a request is not read so, but answered."""
        whole = whole_characters(line)
        try:
            request = _requests.decode(whole)
        except NOT_JSON:
            with suppress(*NOT_JSON):
                return _decoder.decode(whole)
        else:
            error = {"code": INVALID_REQUEST, "message": f"`{request.method}` cannot be read"}
            with suppress(RpcClosedError):
                await self._send({"id": request.id, "error": error})
        await self._handler.on_garbage(line)
        return None

    def _waiting_for(self, message_id: Any) -> _Pending | None:
        return self._pending.get(message_id) if isinstance(message_id, int) else None

    async def _answer(
        self, message_id: Any, method: str, params: Params, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        task_status.started()
        try:
            result = await self._handler.on_request(method, params)
        except RpcError as error:
            answer: Params = {"error": {"code": error.code, "message": error.message}}
        except Exception as error:  # the other side must not wait for ever for an answer of ours
            answer = {"error": {"code": INTERNAL_ERROR, "message": f"`{method}` failed: {error_text(error)}"}}
        else:
            answer = {"result": result}
        try:
            await self._send({"id": message_id, **answer})
        except RpcClosedError:
            return


def _error_of(error: Any) -> RpcError:
    if isinstance(error, dict):
        code = error.get("code")
        return RpcError(
            code if isinstance(code, int) else INTERNAL_ERROR, str(error.get("message")), error.get("data")
        )
    return RpcError(INTERNAL_ERROR, str(error))
