"""Proposes a client's calls to the gate: in order, after all earlier events, and failing closed."""

import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import anyio
import msgspec

from proctor.policies.events import Event, RunCompleted, ToolCallFailed
from proctor.policies.events.calls import ToolCall, same_input, tell_model_default
from proctor.policies.values.foreign_code import error_text
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapter import GateAnswer, Launch

BACKLOG: Final = 1024
"""Events that may wait for the reader before `send` waits for it too."""


class EventStream:
    """Passes events, in order, to the one reader of the stream.

    `send` slows down a client that reports faster than it is supervised. `send_and_wait` returns when the event was
    processed, so that the agent's next act (propose a call, run one) comes after everything it reported.

    Args:
        backlog: how many events may wait for the reader before `send` waits.
    """

    def __init__(self, *, backlog: int = BACKLOG) -> None:
        self._waiting: deque[tuple[Event, anyio.Event]] = deque()
        self._backlog = backlog
        self._wake = anyio.Event()
        self._error: Exception | None = None
        self.closed = False

    async def send_and_wait(self, event: Event) -> None:
        """Send one event and wait until it was processed; after the end of the stream, drop it."""
        self.send_nowait(event)
        await self.drain()

    async def send(self, events: Iterable[Event]) -> None:
        """Send events, waiting for the reader while too many are unread."""
        for event in events:
            self.send_nowait(event)
            if len(self._waiting) >= self._backlog:
                await self.drain()

    def send_nowait(self, *events: Event) -> None:
        """Send events without waiting; after the end of the stream, drop them."""
        if not self.closed:
            self._waiting.extend((event, anyio.Event()) for event in events)
            self._wake.set()

    async def drain(self) -> None:
        """Wait until everything sent so far was processed, or the reader has left."""
        if self._waiting:
            await self._waiting[-1][1].wait()

    def close(self, error: Exception | None = None) -> None:
        """End the stream after the events sent so far, by raising `error` if given; only the first close counts."""
        if not self.closed:
            self._error = error
            self.closed = True
            self._wake.set()

    async def events(self) -> AsyncIterator[Event]:
        """The stream; to be iterated once."""
        try:
            while True:
                while self._waiting:
                    event, handled = self._waiting[0]
                    yield event
                    self._waiting.popleft()
                    handled.set()
                if self.closed:
                    break
                self._wake = anyio.Event()
                await self._wake.wait()
            if self._error is not None:
                raise self._error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Wake all that wait for the reader, which has left."""
        self.closed = True
        while self._waiting:
            self._waiting.popleft()[1].set()


def run_logger(launch: Launch) -> Any:
    """A logger bound to a run and its session; silent until the program asks for logs."""
    return logger(run_id=launch.run_id, session_id=launch.session_id)


def trace_of(error: BaseException) -> str:
    """An exception with its traceback, as text.

    Log this in place of the exception: a program's log format may print the local variables of every frame, which
    hold tool inputs and secrets.
    """
    return "".join(traceback.format_exception(error))


NO_SUCH_TOOL = "the client has no such tool"
OTHER_INPUT = "the client cannot run a call with another input"
CANCELLED = "the run is being cancelled"


class CallGate:
    """Proposes a client's calls to the gate, and passes on what the client reports.

    Calls are evaluated in the order they are proposed, each on everything reported before. If the gate fails,
    the call is denied and the run ends with the error. `stopped` once an answer stopped the run, or `stop` was
    called.

    Args:
        launch: the run, with its gate.
        stream: takes the client's events.
        rewrites: whether the client can run a call with another input than it requested.
        on_failure: ends the run if the gate fails; by default the stream ends with the error.
    """

    def __init__(
        self,
        launch: Launch,
        stream: EventStream,
        *,
        rewrites: bool = False,
        on_failure: Callable[[ProviderError], None] | None = None,
    ) -> None:
        self._gate = launch.gate
        self._narrow = launch.narrow
        self._stream = stream
        self._rewrites = rewrites
        self._on_failure = on_failure or stream.close
        self._order = anyio.Lock()
        self._log = run_logger(launch)
        self.stopped = False

    async def propose(self, call: ToolCall) -> GateAnswer:
        """The gate's answer for one call; a denial if the client cannot carry out the answer."""
        async with self._order:
            await self._stream.drain()
        if self.stopped:
            return _worded(GateAnswer(allowed=False, stop=True), call)
        answer = await self._decided(call)
        self.stopped = self.stopped or answer.stop
        if not answer.allowed:
            return _worded(answer, call)
        if self.stopped:
            return self.reject(call, CANCELLED)
        if answer.input is not None and not (self._rewrites or same_input(answer.input, call.input)):
            return self.reject(call, OTHER_INPUT)
        return answer

    async def attempted(self, call: ToolCall) -> bool:
        """Evaluate a call that the client itself denied because it was started without the tool.

        Returns whether the policy denies it too: then it is recorded as requested and denied, otherwise not at all.
        """
        if self._narrow([call.name]):
            return False
        answer = await self.propose(call)
        if answer.allowed:
            self.reject(call, NO_SUCH_TOOL)
        return True

    def reject(self, call: ToolCall, why: str) -> GateAnswer:
        """Deny a call that the gate allowed and that cannot run after all; it is reported as failed."""
        failed = ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error={"message": f"not run: {why}"})
        self._stream.send_nowait(failed)
        return _worded(GateAnswer(allowed=False, stop=self.stopped), call)

    def stop(self) -> None:
        """Allow no more calls."""
        self.stopped = True

    async def report(self, events: Iterable[Event]) -> None:
        """Pass on what the client reports. After `stop`, it cannot report that it completed its run."""
        await self._stream.send(event for event in events if not (self.stopped and isinstance(event, RunCompleted)))

    async def _decided(self, call: ToolCall) -> GateAnswer:
        try:
            return await self._gate(call)
        except Exception as error:
            # INVARIANT: a gate without an answer permits nothing, and its error never reaches the model
            self._log.error("gate.failed", tool_name=call.name, tool_call_id=call.id, error=trace_of(error))
            self._on_failure(_failure(error))
            return GateAnswer(allowed=False, stop=True)


def _failure(error: Exception) -> ProviderError:
    failed = ProviderError(f"the gate failed: {error_text(error)}")
    failed.__cause__ = error
    return failed


def _worded(answer: GateAnswer, call: ToolCall) -> GateAnswer:
    """The answer; a denial always with a text for the model."""
    return answer if answer.tell_model else msgspec.structs.replace(answer, tell_model=tell_model_default(call.name))
