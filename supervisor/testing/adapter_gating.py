"""What every Adapter must do with its calls: ask first, run what is allowed, and report what became of it."""

from __future__ import annotations

import itertools

import anyio
import anyio.lowlevel
import msgspec

from proctor.policies.calls import ToolCall, tell_model_default
from proctor.policies.events import (
    ApprovalEvent,
    BudgetWarned,
    PolicyViolated,
    RunCompleted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallStarted,
)
from proctor.supervisor.ports import GateAnswer

from .adapter_checks import AdapterChecks, Agent, terminals, total
from .driving import Answering


class GatingChecks(AdapterChecks):
    """Order, completeness, the gate before the effect, refusal and pairing. Ungated calls are only reported."""

    async def test_every_allowed_call_runs_once_and_has_one_outcome(self) -> None:
        """Asked for (or reported as started) first, then its outcome, with the same id and name."""
        done = await self.run(self.making("a", "b"))

        assert self.made() == self.effects("a", "b")
        begun = {call.id: n for n, call in enumerate(done.log) if isinstance(call, ToolCall)}
        if not begun:
            begun = {e.tool_call_id: n for n, e in enumerate(done.log) if isinstance(e, ToolCallStarted)}
        assert len(begun) >= 2
        for call_id, at in begun.items():
            outcomes = done.outcomes(call_id)
            assert len(outcomes) <= 1
            assert all(at < done.log.index(outcome) for outcome in outcomes)
        assert any(event.type == "tool_call_completed" for event in done.events)

    async def test_the_stream_ends_with_one_terminal_event(self) -> None:
        """A client that is done says so last, and once."""
        done = await self.run(self.making("a"))

        assert done.error is None
        assert [type(event) for event in terminals(done)] == [RunCompleted]
        assert isinstance(done.events[-1], RunCompleted)

    async def test_call_ids_are_unique_and_turns_count_up(self) -> None:
        """A call is known by its id; the turn is that of the response that asked."""
        done = await self.run(self.making("a", "b"))

        assert len({call.id for call in done.asked}) == len(done.asked)
        turns = [call.turn for call in done.asked]
        assert turns == sorted(turns)

    async def test_events_come_unstamped_and_do_not_speak_for_the_supervisor(self) -> None:
        """Ids, order and time are the supervisor's, and so are approvals, violations and denials."""
        done = await self.run(self.making("a"))

        assert all((event.run_id, event.session_id, event.seq) == ("", "", 0) for event in done.events)
        own = (ApprovalEvent, PolicyViolated, BudgetWarned, ToolCallDenied)
        assert not any(isinstance(event, own) for event in done.events)

    async def test_nothing_happens_before_the_gate_has_answered(self) -> None:
        """While a call is held, its file does not exist."""
        agent = self.making("a")
        if agent.adapter.capabilities.gate != "all":
            return

        async def hold(call: ToolCall) -> GateAnswer:
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert self.made() == []
            return GateAnswer(allowed=True)

        done = await self.run(agent, answer=hold)

        assert done.error is None
        assert self.made() == self.effects("a")

    async def test_a_refused_call_has_no_effect_and_no_outcome(self) -> None:
        """The first is refused; whether the second still runs is the adapter's kind."""
        agent = self.making("a", "b")
        if agent.adapter.capabilities.gate != "all":
            return
        done = await self.run(agent, answer=_refusing(0))

        assert done.outcomes(done.asked[0].id) == []
        assert "a" not in self.made()
        if not self.all_or_nothing:
            assert self.made() == self.effects("b")

    async def test_parallel_calls_are_held_side_by_side_or_one_by_one_and_paired(self) -> None:
        """Of three siblings the second is refused: the others run, each with its own outcome."""
        files = ["first", "second", "third"]
        agent = self.making(*files, together=True)
        if agent.adapter.capabilities.gate != "all" or self.all_or_nothing:
            return
        done = await self.run(agent, answer=_refusing(1))

        refused = str(msgspec.to_builtins(done.asked[1]))
        assert self.made() == self.effects(*(file for file in files if file not in refused))
        assert [len(done.outcomes(call.id)) for call in done.asked] == [1, 0, 1]

    async def test_after_a_stop_nothing_more_runs(self) -> None:
        """Whatever the client then calls its end: a refusal that stops is the last answer that matters."""
        agent = self.making("a", "b")
        if agent.adapter.capabilities.gate != "all":
            return
        done = await self.run(agent, answer=_refusing(0, stop=True))

        assert self.made() == []
        assert not any(isinstance(event, ToolCallCompleted) for event in done.events)

    async def test_a_gate_that_raises_permits_nothing(self) -> None:
        """No answer is no permission."""
        agent = self.making("a")
        if agent.adapter.capabilities.gate != "all":
            return

        async def broken(call: ToolCall) -> GateAnswer:
            raise RuntimeError("no answer")

        done = await self.run(agent, answer=broken)

        assert self.made() == []
        assert not any(isinstance(event, ToolCallCompleted) for event in done.events)

    async def test_usage_reports_add_up(self) -> None:
        """Deltas and cumulative reports give the same totals."""
        reporting = self.using()
        if reporting is None:
            return
        agent, expected = reporting
        done = await self.run(agent)

        assert total(done) == expected

    async def test_a_client_that_fails_says_so_once(self) -> None:
        """By an error or by its last event, never by a completion."""
        agent: Agent | None = self.failing()
        if agent is None:
            return
        done = await self.run(agent)

        ends = [event.type for event in terminals(done)]
        assert (ends, done.error is None) in ((["run_failed"], True), ([], False))


def _refusing(n: int, *, stop: bool = False) -> Answering:
    """A gate that refuses the n-th call it is asked for, from 0."""
    counted = itertools.count()

    async def answer(call: ToolCall) -> GateAnswer:
        if next(counted) == n:
            return GateAnswer(allowed=False, tell_model=tell_model_default(call.name), stop=stop)
        return GateAnswer(allowed=True)

    return answer
