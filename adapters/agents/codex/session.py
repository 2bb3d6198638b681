"""One run of the client: a thread, one turn of it, the gate's answers and the cancel steps."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.policies.events import RunCompleted, SessionStarted
from proctor.supervisor.errors import ProviderError, UnknownSessionError
from proctor.supervisor.ports.adapter import Launch

from ...kit.provider import RpcSession
from .approvals import CANCEL, CodexCalls
from .connection import CodexConnection
from .live_rollout import Rollouts
from .sandbox import Bounds
from .translation import CodexTranslation, error_code

INTERRUPT_S: Final = 1.0
CLEAN_UP_S: Final = 1.0
OUTCOMES_S: Final = 0.3
"""Seconds to wait for the outcomes of commands that were ended."""
_CALLS_DONE: Final = ("thread/tokenUsage/updated", "turn/completed")
"""Notifications that the calls of a turn are done, except for commands in the background."""
_NO_THREAD: Final = ("no rollout found for thread id", "failed to read thread:", "invalid session id:")
"""The beginnings of the client's errors for a thread that it does not have, or cannot read."""


class CodexSession(RpcSession[CodexConnection]):
    """A Provider: one prompt given to one thread."""

    interrupt_s = INTERRUPT_S + CLEAN_UP_S + OUTCOMES_S

    def __init__(self, launch: Launch, *, bounds: Bounds) -> None:
        super().__init__(launch)
        self._translation = CodexTranslation(
            thread_id="" if launch.resume is None or launch.fork else launch.resume, fresh=launch.resume is None
        )
        self._rollouts = Rollouts(self._find_rollout)
        self._calls = CodexCalls(self._gate, self._stream, self._translation, self._rollouts, bounds)
        self._turn_begun = anyio.Event()
        self._turn_over = False
        self._interrupted_by: str | None = None
        """`ladder` for the cancel steps, `answer` for an answer that ends the turn."""

    async def open_thread(self, method: str, thread: dict[str, Any]) -> dict[str, Any]:
        """Start, resume or fork the thread; returns the answer. Raises ProviderError, UnknownSessionError."""
        try:
            answer = await self._connection.request(method, thread)
        except ProviderError as error:
            if str(error.details.get("said", "")).startswith(_NO_THREAD):
                raise UnknownSessionError(str(error), details=error.details) from error
            raise
        found = answer.get("thread") or {}
        self._translation.threads.own = str(found.get("id"))
        self._translation.model = answer.get("model")
        path = found.get("path")
        self._rollouts.add(self._translation.threads.own, Path(path) if path else None)
        self._stream.send_nowait(
            SessionStarted(
                provider_session_id=self._translation.threads.own,
                metadata={"model": self._translation.model, "rollout": path, "cwd": answer.get("cwd")},
            )
        )
        return answer

    async def start_turn(self) -> None:
        """Give the thread its prompt. Raises ProviderError."""
        text = [{"type": "text", "text": self.prompt}]
        await self._connection.request("turn/start", {"threadId": self._translation.threads.own, "input": text})

    async def listen(self) -> None:
        """Read the client's messages until it closes the connection; then the stream of events ends."""
        await self._connection.peer.run()
        self._turn_begun.set()  # or it never will, so that an interrupt need not wait
        await self._connection.process.wait_exit()
        if self._interrupted_by is not None and self._turn_over:
            return  # the clean-up ends the stream
        if self._closing or self._interrupted_by is not None:
            self._close()
        else:
            code = self._connection.process.exit_code
            message = f"codex ended in the middle of its turn, exit code {code}"
            self._close(self._connection.process.exit_error(message))

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        if method in _CALLS_DONE:
            await self._calls.report_recorded()
        if method == "turn/completed":
            await self._calls.attempts()
            thread, ended = str(params.get("threadId")), params.get("turn") or {}
            if self._translation.threads.is_own(thread) and self._translation.is_current(thread, ended.get("id")):
                self._end_of_turn(ended)
            return
        await self._stream.send(self._translation.events(method, params))
        if self._translation.turn_id:
            self._turn_begun.set()
        self._calls.changed()
        if method in _CALLS_DONE:
            self._tasks.start_soon(self._rollouts.of, str(params.get("threadId") or self._translation.threads.own))
            await self._calls.attempts()

    async def on_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._calls.answer(method, params)
        if answer is CANCEL:
            self._interrupted_by = self._interrupted_by or "answer"
        return answer

    async def _find_rollout(self, thread_id: str) -> Path | None:
        try:
            answer = await self._connection.request("thread/read", {"threadId": thread_id})
        except ProviderError:  # then what the client does not say in its requests stays unknown
            return None
        path = (answer.get("thread") or {}).get("path")
        return Path(path) if path else None

    def _end_of_turn(self, ended: dict[str, Any]) -> None:
        self._turn_over = True
        self._turn_begun.set()
        self._stream.send_nowait(*self._translation.turns.end())
        match ended.get("status"):
            case "completed":
                self._calls.end()
                self._stream.send_nowait(RunCompleted(output=self._translation.output))
                self._stream.close()
            case "interrupted" if self._interrupted_by is not None:
                self._tasks.start_soon(self._end_after_clean_up)
            case status:
                error = ended.get("error") or {}
                message = error.get("message") or f"codex ended its turn as `{status}`"
                details = {"code": error_code(error), "error": error}
                self._close(ProviderError(str(message), details=details))

    async def _end_after_clean_up(self) -> None:
        with suppress(ProviderError):  # what is left is ended with the client
            params = {"threadId": self._translation.threads.own}
            await self._connection.request("thread/backgroundTerminals/clean", params, timeout_s=CLEAN_UP_S)
            with anyio.move_on_after(OUTCOMES_S):
                await self._calls.drain()
        if self._calls.ids():  # a command that has just started is not known to the client's clean-up
            await self._connection.process.end()
        self._close()

    def _close(self, error: ProviderError | None = None) -> None:
        self._calls.end()
        self._stream.close(error)

    async def interrupt(self) -> dict[str, Any]:
        """Interrupt the turn once it has begun, unless it is over; returns what ended it. Raises ProviderError,
        TimeoutError.
        """
        # a second interrupt of one turn is never answered, one before the client says that it began is refused
        if self._interrupted_by is None and not self._turn_over:
            self._interrupted_by = "ladder"
            with anyio.fail_after(INTERRUPT_S):
                await self._turn_begun.wait()
            if not self._turn_over:
                await self._interrupt_turn()
        return {"interrupted_by": self._interrupted_by}

    async def _interrupt_turn(self) -> None:
        params = {"threadId": self._translation.threads.own, "turnId": self._translation.turn_id}
        try:
            await self._connection.request("turn/interrupt", params, timeout_s=INTERRUPT_S)
        except ProviderError:
            if not self._turn_over:  # otherwise it was too late, which is no failure
                raise

    async def end(self) -> None:
        self._close()
