"""One run of an agent: a session, one prompt, the gate's answers and the cancel steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio

from proctor.policies.events import RunCompleted, RunFailed, SessionStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer, Launch

from ...kit.client_process import LEAVE_S
from ...kit.gate import EventStream
from ...kit.jsonrpc import RpcClosedError
from ...kit.provider import RpcSession
from .connection import AcpConnection, AgentTraits
from .translation import (
    KINDS,
    AcpCall,
    AcpTranslation,
    CostMeter,
    given,
    parent_of,
    prompt_usage,
    tool_input,
    tool_name,
)


class UngatedCalls:
    """Watches calls that are in progress; `over` once the prompt is.

    After `patience_s` seconds a call counts as running without a question. Time in which another question is open
    does not count, as agents ask one at a time.
    """

    def __init__(self, translation: AcpTranslation, stream: EventStream, *, patience_s: float) -> None:
        self._translation = translation
        self._stream = stream
        self._patience_s = patience_s
        self._questions = 0
        self._no_question = anyio.Event()
        self.over = False

    @contextmanager
    def question(self) -> Iterator[None]:
        """Note, while inside, that a question of the agent is open."""
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._no_question.set()
                self._no_question = anyio.Event()

    def watch(self, call_id: str, tasks: anyio.abc.TaskGroup) -> None:
        """Watch a call that the agent reports as in progress."""
        call = self._translation.calls.get(call_id)
        if call is not None and not (call.watched or call.proposals or call.over or call.reported):
            call.watched = True
            tasks.start_soon(self._report, call)

    async def _report(self, call: AcpCall) -> None:
        while True:
            await anyio.sleep(self._patience_s)
            if call.proposals or call.over or self.over:
                return
            if not self._questions:
                break
            await self._no_question.wait()
        self._stream.send_nowait(*self._translation.ungated(call))


CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
"""The answer when the prompt is being cancelled; it permits nothing."""


def option(options: Any, kind: str) -> dict[str, Any] | None:
    """The answer that picks the option of that kind, or None if the agent does not offer it."""
    for offered in options if isinstance(options, list) else ():
        if isinstance(offered, dict) and offered.get("kind") == kind and "optionId" in offered:
            return {"outcome": {"outcome": "selected", "optionId": offered["optionId"]}}
    return None


def proposal(call: AcpCall, fields: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The id, name and input to propose to the gate.

    The input is the announced one, overridden by the question's own `fields`. A second question about a call with
    another input, or one about a call that already runs, is a call of its own.
    """
    kind = fields.get("kind") if fields.get("kind") in KINDS else call.fields.get("kind")
    merged = {**call.fields, **given(fields), "kind": kind}
    raw = [part.get("rawInput") for part in (call.fields, fields)]
    if all(isinstance(part, dict) for part in raw):
        merged["rawInput"] = {**raw[0], **raw[1]}  # type: ignore[dict-item]
    name, tool_input_ = tool_name(merged, call.first_title), tool_input(merged)
    for call_id, proposed in call.proposals.items():
        if proposed == (name, tool_input_):
            return call_id, name, tool_input_
    asked_before = len(call.proposals) + call.reported
    return (f"{call.id}:{asked_before + 1}" if asked_before else call.id), name, tool_input_


INTERRUPT_S: Final = 3.0
UNASKED_S: Final = 5.0
"""Seconds a call may be in progress without a question before it counts as ungated."""
_UNKNOWN_METHOD: Final = "_proctor/history_sent"
"""The protocol has an agent answer a request that it does not know with an error."""
_STOPS: Final = {
    "cancelled": "the agent cancelled its turn by itself",
    "max_tokens": "the model reached the most tokens it may answer with",
    "max_turn_requests": "the agent reached the most requests it may make in a turn",
    "refusal": "the model refuses to go on",
}


class AcpSession(RpcSession[AcpConnection]):
    """A Provider: one prompt given to one session, whose running cost is `cost`; for `unasked_s` see `UNASKED_S`."""

    interrupt_s = INTERRUPT_S + LEAVE_S

    def __init__(self, launch: Launch, *, cost: CostMeter, traits: AgentTraits, unasked_s: float) -> None:
        super().__init__(launch)
        self._traits = traits
        self._translation = AcpTranslation(cost)
        self._ungated = UngatedCalls(self._translation, self._stream, patience_s=unasked_s)
        self._session_id = ""
        self._model: str | None = None
        self._live = False
        self._past_updates = 0
        self._prompted = False
        self._over = False
        self._refused = False
        self._interrupted: str | None = None
        self._cancelled = anyio.Event()

    async def skip_history(self, session_id: str, *, timeout_s: float) -> None:
        """Wait until the agent has sent what a resumed session already holds. Raises ProviderError.

        Gemini goes on sending it after its answer to `session/load`, a message at a time. An agent answers a request
        behind the message that it is sending; if no message came between two answers, it has sent the last.
        """
        seen = -1
        with anyio.move_on_after(timeout_s):
            while seen != self._past_updates:
                seen = self._past_updates
                try:
                    await self._connection.request(_UNKNOWN_METHOD, {"sessionId": session_id})
                except ProviderError as error:
                    if "said" not in error.details:
                        raise
            return
        name = self._connection.process.name
        raise ProviderError(f"{name} did not send the whole history of session `{session_id}` within {timeout_s:g} s")

    def begin(self, session_id: str, metadata: dict[str, Any]) -> None:
        """Report the session and send it the prompt; earlier updates of the agent are past."""
        self._session_id, self._model = session_id, metadata.get("model")
        self._stream.send_nowait(SessionStarted(provider_session_id=session_id, metadata=metadata))
        self._live = True
        self._stream.send_nowait(*self._translation.turns.begin())
        self._tasks.start_soon(self._prompt)

    async def listen(self) -> None:
        """Read the agent's messages until it closes the connection."""
        await self._connection.peer.run()  # then every question of ours fails, the prompt among them

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            return
        if not self._live:
            self._past_updates += 1
            self._translation.past(update)
            return
        await self._stream.send(self._translation.events(update))
        if update.get("status") == "in_progress":
            self._ungated.watch(str(update.get("toolCallId") or ""), self._tasks)

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        if method != "session/request_permission":
            return await super().on_request(method, params)
        with self._ungated.question():
            return await self._permission(params)

    async def _permission(self, params: dict[str, Any]) -> dict[str, Any]:
        fields = params.get("toolCall")
        if not isinstance(fields, dict) or not self._live or self._over or self._cancelled.is_set():
            return CANCELLED
        self._stream.send_nowait(*self._translation.turns.begin(), *self._translation.message())
        call = self._translation.call_of(fields, begins=True)
        call_id, name, tool_input = proposal(call, fields)
        call.proposals[call_id] = (name, tool_input)
        parent, turn = call.parent or parent_of(fields), self._translation.turns.number
        proposed = ToolCall(id=call_id, name=name, input=tool_input, turn=turn, parent_tool_call_id=parent)
        answer = await self._propose(proposed)
        if answer is None or answer.stop:
            return CANCELLED
        return self._answered(call, proposed, answer, params.get("options"))

    async def _propose(self, call: ToolCall) -> GateAnswer | None:
        """The gate's answer, or None if the prompt is being cancelled, so that nothing is allowed any more."""
        answer: GateAnswer | None = None
        async with anyio.create_task_group() as tasks:

            async def stop_waiting() -> None:
                await self._cancelled.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_waiting)
            answer = await self._gate.propose(call)
            tasks.cancel_scope.cancel()
        if self._cancelled.is_set():
            return None
        if answer is not None and answer.stop:
            await self._interrupt_once("answer")
        return answer

    def _answered(self, call: AcpCall, proposed: ToolCall, answer: GateAnswer, options: Any) -> dict[str, Any]:
        # an option that permits more than this one call is never picked
        permitted = option(options, "allow_once") if answer.allowed else None
        if permitted is not None:
            call.refused = False
            if proposed.id not in call.allowed_ids:
                call.allowed_ids.append(proposed.id)
            return permitted
        call.refused = self._refused = True
        if answer.allowed:
            self._gate.reject(proposed, "the agent cannot permit one call")
        return option(options, "reject_once") or CANCELLED

    async def _prompt(self) -> None:
        text = [{"type": "text", "text": self.prompt}]
        params = {"sessionId": self._session_id, "prompt": text}
        if self._cancelled.is_set():
            self._end_early()
            return
        self._prompted = True
        try:
            answer = await self._connection.request("session/prompt", params)
        except ProviderError as error:
            self._end_early(None if self._closing or self._interrupted is not None else error)
            return
        self._over = self._ungated.over = True
        used = () if self._traits.partial_usage else prompt_usage(answer, self._model)
        self._stream.send_nowait(*used, *self._translation.response_ends())
        if self._interrupted is not None:
            # the agent may leave commands running
            await self._connection.process.end()
            self._end_early()
        else:
            self._completed(answer.get("stopReason"))

    def _completed(self, reason: Any) -> None:
        if reason == "end_turn" or (reason == "cancelled" and self._refused):
            self._stream.send_nowait(RunCompleted(output=self._translation.output))
        else:
            message = _STOPS.get(str(reason), f"the agent ended its turn as `{reason}`")
            self._stream.send_nowait(RunFailed(error={"code": str(reason), "message": message}))
        self._stream.close()

    def _end_early(self, error: ProviderError | None = None) -> None:
        """End the stream without an end of the agent's own."""
        self._over = self._ungated.over = True
        self._stream.send_nowait(*self._translation.given_up())
        self._stream.close(error)

    async def interrupt(self) -> dict[str, Any]:
        """Cancel the prompt, once."""
        await self._interrupt_once("ladder")
        return {"interrupted_by": self._interrupted}

    async def _interrupt_once(self, by: str) -> None:
        if self._interrupted is not None or self._over:
            return
        self._interrupted = by
        self._translation.interrupted = True
        try:
            if self._prompted:
                await self._connection.peer.notify("session/cancel", {"sessionId": self._session_id})
        except RpcClosedError:
            return
        finally:
            self._cancelled.set()  # every question that is open is answered as cancelled, after the cancel

    async def end(self) -> None:
        self._end_early()
