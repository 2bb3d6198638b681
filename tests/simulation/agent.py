"""The agent of a simulation: it follows the steps of its start, and the witness sees its reports and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from proctor.policies import Policy, ToolCall
from proctor.policies import events as ev
from proctor.supervisor import GateAnswer, Launch, ProctorError, Provider, ProviderError, run_once
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, Pause
from proctor.supervisor.testing import Stop as StopTalking
from proctor.supervisor.testing.fakes import Step as FakeStep
from proctor.supervisor.testing.fakes import Together as FakeTogether

from .plans import Call, End, Flood, Result, Says, Start, Together, Usage, Wait
from .witness import LIE, Witness

if TYPE_CHECKING:
    from .team import Team


class Agent(FakeAdapter):
    """Follows the steps of a start; the witness sees its reports and its calls. As a `member` of a fallback, its
    calls are `recorded` with other ids.
    """

    recorded: Callable[[ToolCall], ToolCall] = staticmethod(lambda call: call)

    def __init__(
        self,
        start: Start,
        witness: Witness,
        policies: Sequence[Policy],
        record: dict[str, int],
        team: Team | None = None,
        *,
        member: int = 0,
    ) -> None:
        self._team = team
        self._member = member
        self._start = start
        self._run = start.run
        self._witness = witness
        self._policies = policies
        self._record = record
        self._messages = 0
        super().__init__(list(self._all(start)), gate=start.gate, deaf=start.deaf, rung_s=1.0)

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start it, with a gate that the witness observes."""
        self._witness.opened(self._run, self._member)
        ask = launch.gate

        async def gate(call: ToolCall) -> GateAnswer:
            answer = await ask(call)
            if answer.allowed:
                self._witness.permitted(self._run, self.recorded(call))
            return answer

        return super().open(msgspec.structs.replace(launch, gate=gate))

    def tells(self, event: ev.Event, *, taken: bool) -> None:
        """One of its events is about to be read, or was."""
        self._witness.takes(self._run, self._member, event, taken=taken, asks=self.capabilities.gate == "all")

    def _all(self, start: Start) -> Iterator[FakeStep]:
        for step in start.steps:
            match step:
                case Call():
                    yield self._ask(step)
                case Together():
                    yield FakeTogether(tuple(self._ask(call) for call in step.calls))
                case Usage():
                    yield self._reports(
                        ev.TokenUsageUpdated(
                            input_tokens=step.tokens, scope="cumulative" if step.cumulative else "delta"
                        )
                    )
                case Flood():
                    for _ in range(step.messages):
                        self._messages += 1
                        yield self._reports(ev.MessageReceived(content=f"m{self._messages}"))
                case Wait():
                    yield Pause(step.seconds)
                case Says():
                    yield from _session_events(step.what)
                case Result():
                    yield ev.ToolCallCompleted(tool_call_id=step.id, tool_name="read", tool_output="early")
                case End():
                    yield from self._ends(step.how)

    def _ends(self, how: str) -> Iterator[FakeStep]:
        if how == "crash":
            yield Crash(ProviderError("the client crashed"))
        elif how == "own":
            yield ev.ToolApprovalGranted(approval_id="a", tool_name="write", tool_call_id="c0", by="me")
        elif how == "twice":
            yield ev.RunCompleted(output="one")
            yield ev.RunCompleted(output="two")
        elif how == "failed":
            yield ev.RunFailed(error={"message": "overloaded"})
        yield StopTalking()

    def _ask(self, call: Call) -> Ask:
        async def works() -> None:
            if call.gated and self.gated:
                self._witness.runs(self._run, self.recorded(ToolCall(id=call.id, name=call.tool)).id)
            self._witness.acted.add((self._run, self._member))
            await anyio.sleep(call.seconds)
            if call.starts:
                await self._run_another(call)

        return Ask(
            id=call.id,
            name=call.tool,
            input={"path": "a.txt"},
            error="it failed" if call.fails else None,
            ungated=not call.gated,
            meanwhile=works,
        )

    async def _run_another(self, call: Call) -> None:
        run = f"{self._run}.{f'm{self._member}' if self._member else ''}{call.id}"
        start = msgspec.structs.replace(self._start, run=run, session=run, steps=call.starts, deaf=0, gate="all")
        with suppress(ProctorError, ConnectionError):  # the agent continues
            if call.here and self._team is not None and self._team.supervisor is not None:
                start = msgspec.structs.replace(start, others=(call.starts,) * len(start.others))
                await self._team.run_here(start, waits=call.waits)
                return
            given: Any = {"run_id": run, "session_id": run, "policies": self._policies, **self._record}
            await run_once(Agent(start, self._witness, self._policies, self._record), "go", **given)

    def _reports(self, event: ev.Event) -> ev.Event:
        what = event.content if isinstance(event, ev.MessageReceived) else event.type
        self._witness.reported[self._run, what] += 1
        return event


class QueuedAgent(Agent):
    """The agent of a queued run. It may be opened for the run and for its retries."""

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start an agent of that run."""
        start = msgspec.structs.replace(self._start, run=launch.run_id)
        return Agent(start, self._witness, self._policies, self._record, self._team).open(launch)


def _session_events(what: str) -> Iterator[ev.Event]:
    """Events that an agent may report, and events that only a supervisor may."""
    match what:
        case "turn":
            yield from (ev.TurnStarted(turn=1), ev.TurnCompleted(turn=1))
        case "words":
            yield from (ev.MessageStreamed(delta="w"), ev.MessageStreamed(delta="o"))
        case "tool":
            yield ev.ToolCallFailed(tool_call_id="nowhere", tool_name="read", error="it was never there")
        case "error":
            yield ev.ErrorOccurred(message="the network is slow", code="slow")
        case "recovered":
            yield ev.ErrorRecovered(message="it is fast again", code="slow")
        case "own":
            yield ev.SessionStarted(provider_session_id="p")
        case "session":
            yield from (ev.SessionStarted(provider_session_id="p"), ev.SessionPaused(), ev.SessionResumed())
        case "violation":
            yield ev.PolicyViolated(policy="team", rule=LIE, action="cancel")
        case "budget":
            yield ev.BudgetReserved(budget=LIE, granted=True)
        case "pruned":
            yield ev.RecordPruned(by=LIE, events=9)
