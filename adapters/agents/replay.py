"""Runs a recorded stream of events again, under a policy that gates or only observes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.calls import call_of, same_input
from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import UsageError
from proctor.supervisor.machine.provider_events import is_ours
from proctor.supervisor.ports.adapter import CancelStep, Gate, GateAnswer, Launch, Provider

from ..kit.client_tools import recorded_tools, tool_capabilities
from ..kit.launch_options import NoLaunchOptions
from ..kit.trace_lines import TraceError, open_lines

Pace: TypeAlias = Literal["original", "flat"] | float

_OF_RUNS = (ev.RunStarted, *ev.TERMINAL, ev.SessionEvent)
"""The beginnings and ends of a recording, which its replay has of its own."""


class ReplayAdapter(NoLaunchOptions):
    """Replays a recording. Nothing runs: outcomes, usage and texts are the recorded ones.

    Args:
        recording: events, or the path of a file with one event a line, gzip or plain; `-` is standard input.
        gated: propose every call to the gate, and leave out the outcomes of denied calls; if false, report the
            calls as recorded.
        pace: `original` keeps the recorded times, a number divides them by it, `flat` does not wait.

    Raises:
        TraceError: the recording cannot be read; names the file and line.
        UsageError: an argument is wrong.
    """

    name = "replay"

    def __init__(
        self, recording: Iterable[ev.Event] | str | Path, *, gated: bool = True, pace: Pace = "flat"
    ) -> None:
        self._speed = _speed(pace)
        self._gated = gated
        events = _read(str(recording)) if isinstance(recording, str | Path) else list(recording)
        if any(not isinstance(event, ev.Event) for event in events):
            raise UsageError("`recording` is events, or the path of a file of them")
        self._model = next((event.model for event in events if isinstance(event, ev.RunStarted)), None)
        offered = next((event.tools for event in events if isinstance(event, ev.RunStarted)), None)
        self._offering = tool_capabilities(recorded_tools(events), offered)
        self._costs = any(isinstance(e, ev.TokenUsageUpdated) and e.cost_usd is not None for e in events)
        self._events = tuple(e for e in events if not (is_ours(e) or isinstance(e, _OF_RUNS)))
        self._output = next((e.output for e in reversed(events) if isinstance(e, ev.RunCompleted)), None)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of a recording; its model and tools are those recorded."""
        return Capabilities(
            gate="all" if self._gated else "none",
            usage="per_turn",
            reports_cost=self._costs,
            cancel_kills_children=True,
            model=self._model,
            **self._offering,
        )

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Replay the recording; leaving ends it."""
        gate = launch.gate if self._gated else None
        yield Replay(_without_prompt(self._events, launch.prompt), self._output, gate, self._speed)


class Replay:
    """One replay of a recording; `speed` None waits for nothing."""

    def __init__(self, events: Sequence[ev.Event], output: Any, gate: Gate | None, speed: float | None) -> None:
        self._events = events
        self._output = output
        self._gate = gate
        self._speed = speed
        self._stopped = False
        self._scope = anyio.CancelScope()
        self._open: dict[str, _Open] = {}

    async def events(self) -> AsyncIterator[ev.Event]:
        before: datetime | None = None
        for recorded in self._events:
            with anyio.CancelScope() as self._scope:  # ended by its cancel step, whatever is waited for
                await self._wait(before, recorded.at)
                event = await self._shown(recorded)
            if self._stopped:
                return
            before = recorded.at or before
            if event is not None:
                yield msgspec.structs.replace(event, run_id="", session_id="", seq=0, at=None, provider="")
        yield ev.RunCompleted(output=self._output)

    def cancel_steps(self) -> Sequence[CancelStep]:
        return [CancelStep(name="stop", act=self._stop, bound_s=1.0)]

    async def _stop(self) -> dict[str, Any]:
        self._stopped = True
        self._scope.cancel()
        return {}

    async def _wait(self, before: datetime | None, at: datetime | None) -> None:
        if self._speed is None or before is None or at is None:
            await anyio.lowlevel.checkpoint()
        else:
            await anyio.sleep(max(0.0, (at - before).total_seconds() / self._speed))

    async def _shown(self, event: ev.Event) -> ev.Event | None:
        """The event to report for a recorded one, if any; requests of calls go to the gate, which records them."""
        if self._gate is None:
            return None if isinstance(event, ev.ToolCallDenied) else event
        if isinstance(event, ev.ToolCallRequested | ev.ToolCallStarted):
            return await self._called(self._gate, event)
        if isinstance(event, ev.ToolOutcome):
            return self._outcome(event)
        return event

    async def _called(self, gate: Gate, event: ev.ToolCallRequested | ev.ToolCallStarted) -> ev.Event | None:
        call = self._open.get(event.tool_call_id)
        if call is None or (isinstance(event, ev.ToolCallRequested) and not call.is_repeated_by(event)):
            answer = await gate(call_of(event))
            self._stopped = self._stopped or answer.stop
            if call is None or answer.allowed or not call.answer.allowed:  # else the first goes on
                call = self._open[event.tool_call_id] = _Open(event, answer)
                call.started = isinstance(event, ev.ToolCallStarted)
            return None
        if isinstance(event, ev.ToolCallRequested):
            return None
        again, call.started = call.started, True
        differs = again or not same_input(event.tool_input, call.event.tool_input)
        return event if call.answer.allowed and differs else None

    def _outcome(self, event: ev.ToolOutcome) -> ev.Event | None:
        call = self._open.pop(event.tool_call_id, None)  # the id names another call from here on
        if call is not None and not call.answer.allowed:
            return None
        if isinstance(event, ev.ToolCallDenied):
            return ev.ToolCallFailed(
                tool_call_id=event.tool_call_id, tool_name=event.tool_name, error="denied in the recording"
            )
        return event


class _Open:
    def __init__(self, event: ev.ToolCallRequested | ev.ToolCallStarted, answer: GateAnswer) -> None:
        self.event = event
        self.answer = answer
        self.started = False

    def is_repeated_by(self, request: ev.ToolCallRequested) -> bool:
        same = request.tool_name == self.event.tool_name and same_input(request.tool_input, self.event.tool_input)
        return same and not self.started


def _without_prompt(events: Sequence[ev.Event], prompt: str) -> Sequence[ev.Event]:
    """The events without the message of this run's prompt, which the supervisor records itself."""
    for n, event in enumerate(events):
        if isinstance(event, ev.MessageSent):
            return [*events[:n], *events[n + 1 :]] if event.content == prompt else events
    return events


def _read(path: str) -> list[ev.Event]:
    with open_lines(path) as lines:
        events: list[ev.Event] = []
        for line in lines:
            try:
                events.append(ev.decode_event(line))
            except EventError as error:
                hint = "; `proctor show RUN --json` writes the events of a run" if b'"format"' in line else ""
                raise lines.fail(f"{error}{hint}") from None
    if not events:
        raise TraceError("no events", place=path)
    return events


def _speed(pace: Pace) -> float | None:
    if pace == "flat":
        return None
    if pace == "original":
        return 1.0
    if isinstance(pace, bool) or not isinstance(pace, int | float) or not 0 < pace < float("inf"):
        raise UsageError(f"`pace` is `original`, `flat` or a number above 0, not `{pace}`")
    return float(pace)
