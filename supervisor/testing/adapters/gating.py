"""What every Adapter must do with its calls: ask first, run those allowed, and report the outcomes."""

from __future__ import annotations

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import (
    ApprovalEvent,
    BudgetReserved,
    BudgetWarned,
    PolicyViolated,
    RunCompleted,
    ToolCallDenied,
    ToolCallStarted,
    TurnStarted,
)
from proctor.supervisor.ports.adapters import GateAnswer

from .checks import AdapterChecks, ends_once, has_failed, mentions, terminals, ungated
from .driving import Driven

_OURS = (ApprovalEvent, PolicyViolated, BudgetReserved, BudgetWarned, ToolCallDenied)


class GatingChecks(AdapterChecks):
    """Order, completeness, and the gate before the effect. Ungated calls are only reported."""

    async def test_a_run_holds_its_calls_reports_them_in_order_and_ends_once(self) -> None:
        """A call has no effect before its answer; then it runs once and has one outcome. The supervisor alone
        sets ids, order and time of events, and records approvals, violations and denials.
        """
        files = ["alpha", "beta"]
        agent = self.making(*files)

        async def hold(call: ToolCall) -> GateAnswer:
            self.processes()  # takes a while, in which an agent that does not wait would act
            assert not [file for file in self.made() if mentions(call, file)]
            return GateAnswer(allowed=True)

        done = await self.run(agent, answer=hold)

        assert done.error is None
        assert self.made() == self.effects(*files)
        assert [type(event) for event in terminals(done)] == [RunCompleted]
        assert ends_once(done)
        assert all((event.run_id, event.session_id, event.seq) == ("", "", 0) for event in done.events)
        assert not any(isinstance(event, _OURS) for event in done.events)
        self._assert_in_order(done, files)
        gate = agent.adapter.capabilities.gate
        assert (not done.proposed) if gate == "none" else (not ungated(done)), f"the gate is `{gate}`"
        if gate != "some":
            self.saw(agent.adapter.capabilities, gate=gate)

    async def test_what_runs_unasked_is_reported_when_it_begins(self) -> None:
        """With the gate `some`, one call is held, and one that is not held is reported."""
        agent = self.mixing("alpha")
        if agent is None:
            gate = self.making("alpha").adapter.capabilities.gate
            if gate == "some":
                self.lacking("mixing", declares=True)
            return
        done = await self.run(agent)

        assert self.made() == self.effects("alpha")
        began = ungated(done)
        assert began
        assert not {call.tool_call_id for call in began} & {call.id for call in done.proposed}
        assert [len(done.outcomes(call.tool_call_id)) for call in began] == [1] * len(began)
        assert [mentions(call, "alpha") for call in done.proposed] == [True]
        self.saw(agent.adapter.capabilities, gate="some")

    async def test_a_client_that_fails_says_so_once(self) -> None:
        """By an error or by its last event, never by a completion."""
        agent = self.failing()
        if agent is None:
            return self.lacking("failing")
        assert has_failed(await self.run(agent))

    async def test_a_call_that_fails_is_told_as_failed_once(self) -> None:
        """It is never reported as completed, and never left without an outcome."""
        agent = self.erring()
        if agent is None:
            return self.lacking("erring")
        done = await self.run(agent)

        begun = [call.id for call in done.proposed] or [call.tool_call_id for call in ungated(done)]
        assert begun
        assert [[each.type for each in done.outcomes(call_id)] for call_id in begun] == [["tool_call_failed"]] * len(
            begun
        )
        assert ends_once(done)

    def _assert_in_order(self, done: Driven, files: list[str]) -> None:
        """A call for each file, in their order, with unique ids and rising turns; each outcome after its call."""
        begun: list[ToolCall | ToolCallStarted] = [*(done.proposed or ungated(done))]
        ids = [call.id if isinstance(call, ToolCall) else call.tool_call_id for call in begun]
        assert len(set(ids)) == len(ids)
        turns = [call.turn for call in begun]
        assert turns == sorted(turns)
        if any(isinstance(event, TurnStarted) for event in done.events):
            assert min(turns) > 0, "the adapter reports turns, and its calls say 0"
        outcomes = [done.outcomes(call_id) for call_id in ids]
        if self.all_or_nothing:  # calls stand beside the one that they are parts of
            assert any(outcomes)
        else:
            assert [mentions(call, file) for call, file in zip(begun, files, strict=True)] == [True] * len(files)
            assert [len(found) for found in outcomes] == [1] * len(files)
        for call, found in zip(begun, outcomes, strict=True):
            assert [outcome.type for outcome in found] in ([], ["tool_call_completed"])
            assert all(done.log.index(call) < done.log.index(outcome) for outcome in found)
        if len({call.turn for call in begun}) == len(begun) > 1:  # one call a response: each is over before the next
            for found, later in zip(outcomes, begun[1:], strict=False):
                assert all(done.log.index(outcome) < done.log.index(later) for outcome in found)
