"""Plays a script: reports its messages, proposes its calls to the gate, and really runs what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, assert_never

import anyio
import anyio.abc
import msgspec

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import (
    MessageReceived,
    MessageSent,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolOutcome,
    TurnCompleted,
    TurnStarted,
)
from proctor.supervisor.ports.adapters import Gate, GateAnswer

from ...kit.event_stream import EventStream
from ...kit.values.jsonable import plain
from .steps import Call, Fail, Output, Parallel, Say, Script, Silence, Step, Think, Tokens, UsageStep, User
from .tools import Toolbox, ToolFailedError

Outcome: TypeAlias = Literal["completed", "failed", "denied"]


class ScriptedAgent:
    """One run of a script.

    # INVARIANT: a call runs after its gate allowed it, with the input the gate answered with.

    Args:
        script: what to do.
        stream: takes the events.
        tools: run the calls.
        gate: asked before every call; None runs calls at once and only reports them.
    """

    def __init__(self, script: Script, stream: EventStream, tools: Toolbox, gate: Gate | None) -> None:
        self._script = script
        self._stream = stream
        self._tools = tools
        self._gate = gate
        self._turn = 0
        self._speaking = False
        self._calls = 0
        self._output: Any = None
        self._stopped = False
        self._failure: str | None = None

    async def play(self) -> None:
        """Take every step, then report how the run ended."""
        await self._take(self._script.steps)
        await self._end_turn()
        if self._failure is not None:
            await self._stream.emit(RunFailed(error={"code": "scripted_failure", "message": self._failure}))
        elif not self._stopped:
            await self._stream.emit(RunCompleted(output=self._output))

    async def _take(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self._stopped or self._failure is not None:
                return
            await self._step(step)

    async def _step(self, step: Step) -> None:
        match step:
            case Say(say=text):
                self._output = text
                await self._speak(text, text, streamed=step.stream)
            case Think(think=text):
                await self._speak([{"type": "thinking", "thinking": text}], text, streamed=step.stream)
            case User(user=text):
                await self._end_turn()
                await self._stream.emit(MessageSent(content=text))
            case Call():
                await self._respond((step,))
            case Parallel(parallel=calls):
                await self._respond(calls)
            case UsageStep(usage=tokens):
                await self._stream.emit(_usage(tokens, self._script.model))
            case Silence(silence=seconds):
                await (anyio.sleep_forever() if seconds == "forever" else anyio.sleep(seconds))
            case Fail(fail=message):
                self._failure = message
            case Output(output=output):
                self._output = output
            case _:
                assert_never(step)

    async def _speak(self, content: Any, text: str, *, streamed: bool) -> None:
        await self._begin_turn()
        for delta in re.findall(r"\s*\S+\s*$|\s*\S+", text) if streamed else ():
            await self._stream.emit(MessageStreamed(delta=delta))
        await self._stream.emit(MessageReceived(content=content))

    async def _begin_turn(self) -> None:
        if not self._speaking:
            self._speaking = True
            self._turn += 1
            await self._stream.emit(TurnStarted(turn=self._turn))

    async def _end_turn(self) -> None:
        if self._speaking:
            self._speaking = False
            await self._stream.emit(TurnCompleted(turn=self._turn))

    async def _respond(self, calls: Sequence[Call]) -> None:
        """Propose the calls of one response in order; they are held and run in parallel."""
        await self._begin_turn()
        outcomes: list[Outcome] = ["denied"] * len(calls)

        async def one(n: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            outcomes[n] = await self._call(calls[n], task_status)

        async with anyio.create_task_group() as siblings:
            for n in range(len(calls)):
                await siblings.start(one, n)
        await self._end_turn()
        for call, outcome in zip(calls, outcomes, strict=True):
            await self._take(getattr(call, f"if_{outcome}"))

    async def _call(self, step: Call, task_status: anyio.abc.TaskStatus[None]) -> Outcome:
        self._calls += 1
        call = ToolCall(id=step.id or f"call-{self._calls}", name=step.call, input=step.input, turn=self._turn)
        task_status.started()  # the next sibling is asked for once this one has reached the gate
        answer = await self._ask(call)
        if not answer.allowed:
            self._stopped = self._stopped or answer.stop
            return "denied"
        return await self._run(call, call.input if answer.input is None else answer.input)

    async def _ask(self, call: ToolCall) -> GateAnswer:
        if self._gate is not None:
            return await self._gate(call)
        await self._stream.emit(
            ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input, turn=call.turn)
        )
        return GateAnswer(allowed=True)

    async def _run(self, call: ToolCall, input: dict[str, Any]) -> Outcome:
        outcome: ToolOutcome = _failed(call, "ended before it was done")
        try:
            output = plain(await self._tools.run(call.name, input))
            outcome = ToolCallCompleted(tool_call_id=call.id, tool_name=call.name, tool_output=output)
        except ToolFailedError as error:
            outcome = _failed(call, plain(error.error))
        finally:
            # a call that ran has an outcome, also when the run is being ended around it
            with anyio.CancelScope(shield=True):
                await self._stream.emit(outcome)
        return "completed" if isinstance(outcome, ToolCallCompleted) else "failed"


def _failed(call: ToolCall, error: Any) -> ToolCallFailed:
    return ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error=error)


def _usage(tokens: Tokens, model: str) -> TokenUsageUpdated:
    fields = msgspec.structs.asdict(tokens)
    return TokenUsageUpdated(**{**fields, "model": tokens.model or model})
