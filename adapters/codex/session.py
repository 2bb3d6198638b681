"""One run of the client: a thread, one turn of it, the gate's answers and the cancel ladder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from proctor.policies.events import ErrorOccurred, Event, RunCompleted, SessionStarted, ToolCallFailed
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports import Launch, Rung

from ..conversation import retold
from ..event_stream import EventStream
from ..processes import process_rungs
from .approvals import CANCEL
from .connection import Connection
from .items import tool_name
from .questions import Questions
from .rollout import Rollouts
from .translation import Translation, error_code

BACKLOG: Final = 1024
"""Events that may wait for the supervisor before the client's output is left unread."""
INTERRUPT_S: Final = 1.0
CLEAN_UP_S: Final = 1.0
OUTCOMES_S: Final = 0.3
"""Seconds to wait for the outcomes of commands that were ended."""
_CALLS_DONE: Final = ("thread/tokenUsage/updated", "turn/completed")
"""What the client reports when the calls of a response are done, but for commands that go on in the background."""


class CodexSession:
    """A Provider: one prompt given to one thread.

    Args:
        launch: what to run, with the gate that holds its calls.
        sandboxed: commands run in a sandbox unless the model asks for more.
        confined: a call that would leave the sandbox is refused.
        folder: the folder the sandbox lets file changes touch; None if there is none.
        last_turn: the number of the session's last model response.
    """

    def __init__(
        self, launch: Launch, *, sandboxed: bool, confined: bool, folder: Path | None, last_turn: int
    ) -> None:
        self._launch = launch
        self._stream = EventStream()
        self._said = Translation(
            thread_id="" if launch.resume is None or launch.fork else launch.resume,
            fresh=launch.resume is None,
            turn=last_turn,
        )
        self._rollouts = Rollouts(self._find_rollout)
        self._questions = Questions(
            launch,
            self._said,
            self._stream,
            self._rollouts,
            sandboxed=sandboxed,
            confined=confined,
            folder=folder,
        )
        self._connection: Connection
        self._tasks: anyio.abc.TaskGroup
        self._interrupted: str | None = None
        self._closing = False
        self._turn_begun = anyio.Event()
        self._turn_over = False
        self._settled = anyio.Event()

    def attach(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> None:
        """Take the running client, and the tasks that live as long as it."""
        self._connection, self._tasks = connection, tasks

    async def take_up(self, method: str, thread: dict[str, Any]) -> dict[str, Any]:
        """Start, resume or fork the thread; returns the client's answer. Raises ProviderError."""
        answer = await self._connection.ask(method, thread)
        found = answer.get("thread") or {}
        self._said.thread_id = str(found.get("id"))
        self._said.model = answer.get("model")
        path = found.get("path")
        self._rollouts.add(self._said.thread_id, Path(path) if path else None)
        self._stream.post(
            SessionStarted(
                provider_session_id=self._said.thread_id,
                metadata={"model": self._said.model, "rollout": path, "cwd": answer.get("cwd")},
            )
        )
        return answer

    async def prompt(self) -> None:
        """Give the thread its prompt. Raises ProviderError."""
        text = [{"type": "text", "text": retold(self._launch.transcript, self._launch.prompt)}]
        await self._connection.ask("turn/start", {"threadId": self._said.thread_id, "input": text})

    def events(self) -> AsyncIterator[Event]:
        """The stream; see `Provider.events`."""
        return self._stream.events()

    def ladder(self) -> Sequence[Rung]:
        """Interrupt once, which cleans up the commands it leaves running, close, terminate, kill."""
        return [
            Rung(name="interrupt", act=self._interrupt, bound_s=INTERRUPT_S + CLEAN_UP_S + OUTCOMES_S),
            *process_rungs(self._connection.process.tree, close=self._hang_up, ended=self._ended),
        ]

    async def listen(self) -> None:
        """Read what the client says until it hangs up; then the stream of events ends."""
        await self._connection.peer.run()
        self._turn_begun.set()
        await self._connection.process.left()
        if self._interrupted is not None and self._turn_over:
            return  # the clean-up ends the stream
        if self._closing or self._interrupted is not None:
            self._close()
        else:
            code = self._connection.process.exit_code
            message = f"codex ended in the middle of its turn, exit code {code}"
            self._close(self._connection.process.gone(message))

    async def on_garbage(self, line: bytes) -> None:
        """A line that is no message of the protocol."""
        shown = line[:200].decode("utf-8", "replace")
        message = f"codex wrote `{shown}`, which is no message"
        self._stream.post(ErrorOccurred(code="bad_line", message=message))

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Something the client reports."""
        if self._stream.backlog > BACKLOG:
            await self._stream.settled()
        if method in _CALLS_DONE and self._running():
            for thread, rollout in tuple(self._rollouts.known.items()):
                await self._questions.report_recorded(thread, rollout)
        if method == "turn/completed":
            if params.get("threadId") == self._said.thread_id:
                self._end_of_turn(params.get("turn") or {})
            return
        for event in self._said.events(method, params):
            self._stream.post(event)
        if self._said.turn_id:
            self._turn_begun.set()
        if not self._running():
            self._settled.set()

    async def on_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Something the client asks; what is not known is refused."""
        answer = await self._questions.answer(method, params)
        if answer is CANCEL:
            self._interrupted = self._interrupted or "answer"
        return answer

    async def _find_rollout(self, thread_id: str) -> Path | None:
        try:
            answer = await self._connection.ask("thread/read", {"threadId": thread_id})
        except ProviderError:  # then what the client does not say in its requests stays unknown
            return None
        path = (answer.get("thread") or {}).get("path")
        return Path(path) if path else None

    def _end_of_turn(self, turn: dict[str, Any]) -> None:
        self._turn_over = True
        self._turn_begun.set()
        for event in self._said.response_ends():
            self._stream.post(event)
        match turn.get("status"):
            case "completed":
                self._end_calls()
                self._stream.post(RunCompleted(output=self._said.output))
                self._stream.close()
            case "interrupted" if self._interrupted is not None:
                self._tasks.start_soon(self._end_after_clean_up)
            case status:
                error = turn.get("error") or {}
                message = error.get("message") or f"codex ended its turn as `{status}`"
                details = {"kind": error_code(error), "error": error}
                self._close(ProviderError(str(message), details=details))

    async def _interrupt(self) -> dict[str, Any]:
        # a second interrupt of one turn is never answered, one before the client says that it began is refused
        if self._interrupted is not None or self._turn_over:
            return {"interrupted_by": self._interrupted}
        self._interrupted = "ladder"
        with anyio.fail_after(INTERRUPT_S):
            await self._turn_begun.wait()
        if not self._turn_over:
            await self._interrupt_turn()
        return {"interrupted_by": self._interrupted}

    async def _interrupt_turn(self) -> None:
        params = {"threadId": self._said.thread_id, "turnId": self._said.turn_id}
        try:
            await self._connection.ask("turn/interrupt", params, timeout_s=INTERRUPT_S)
        except ProviderError:
            if not self._turn_over:  # otherwise it was too late, which is no failure
                raise

    async def _clean_up(self) -> None:
        """End the commands an interrupt leaves running, and wait for their outcomes."""
        self._settled = anyio.Event()
        params = {"threadId": self._said.thread_id}
        try:
            await self._connection.ask("thread/backgroundTerminals/clean", params, timeout_s=CLEAN_UP_S)
        except ProviderError:  # what is left is ended with the client
            return
        with anyio.move_on_after(OUTCOMES_S):
            if self._running():
                await self._settled.wait()

    async def _end_after_clean_up(self) -> None:
        await self._clean_up()
        if self._running():  # a command that has just started is not known to the client's clean-up
            await self._connection.process.end()
        self._close()

    def _close(self, error: ProviderError | None = None) -> None:
        self._end_calls()
        self._stream.close(error)

    def _end_calls(self) -> None:
        """Say of the calls that still run that they do not outlive the run."""
        for call_id in self._running():
            item = self._said.running.pop(call_id)
            ended = {"message": "ended with the run, its outcome unknown"}
            self._stream.post(ToolCallFailed(tool_call_id=call_id, tool_name=tool_name(item), error=ended))

    def _running(self) -> list[str]:
        """The calls that run: held and refused ones do not."""
        return [call_id for call_id in self._said.running if call_id in self._questions.let_run | self._said.unasked]

    async def _hang_up(self) -> None:
        self._closing = True
        await self._connection.process.hang_up()

    async def _ended(self) -> None:
        self._close()
