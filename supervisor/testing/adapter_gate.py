"""Every Adapter's calls: ask first, run those allowed, report outcomes; and launch options that hold alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, Literal
from uuid import uuid4

import anyio

from proctor.policies import events as ev
from proctor.policies.errors import PolicyViolationError
from proctor.policies.events.calls import ToolCall, tell_model_default
from proctor.policies.language.conditions import Condition
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import Limit, Limits
from proctor.policies.policy import Allow, Deny, Policy

from ..api.run_once import run_once
from ..errors import ProviderError, UnknownSessionError
from ..machine.interface import RunResult
from ..machine.provider_events import is_ours
from ..ports.adapter import Adapter, GateAnswer, Launch
from . import adapter_fixture
from .fakes import PATIENCE_S


class GatingChecks(adapter_fixture.AdapterChecks):
    """Order, completeness, and the gate before the effect. Ungated calls are only reported."""

    async def test_a_run_holds_its_calls_reports_them_in_order_and_ends_once(self) -> None:
        """A call has no effect before its answer; then it runs once and has one outcome. The supervisor alone
        sets ids, order and time of events, and records approvals, violations and denials.
        """
        files = ["alpha", "beta"]
        agent = self.making(*files)

        async def hold(call: ToolCall) -> GateAnswer:
            self.processes()  # takes a while, in which an agent that does not wait would act
            assert not [file for file in self.made() if adapter_fixture.mentions(call, file)]
            return GateAnswer(allowed=True)

        done = await self.run(agent, answer=hold)

        assert done.error is None
        assert self.made() == self.effects(*files)
        assert [type(event) for event in adapter_fixture.terminals(done)] == [ev.RunCompleted]
        assert adapter_fixture.ends_once(done)
        assert all((event.run_id, event.session_id, event.seq) == ("", "", 0) for event in done.events)
        assert not any(is_ours(event) or isinstance(event, ev.ToolCallDenied) for event in done.events)
        self._assert_in_order(done, files)
        gate = agent.adapter.capabilities.gate
        assert (not done.proposed) if gate == "none" else (not adapter_fixture.ungated(done)), f"the gate is `{gate}`"
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
        began = adapter_fixture.ungated(done)
        assert began
        assert not {call.tool_call_id for call in began} & {call.id for call in done.proposed}
        assert [len(done.outcomes(call.tool_call_id)) for call in began] == [1] * len(began)
        assert [adapter_fixture.mentions(call, "alpha") for call in done.proposed] == [True]
        self.saw(agent.adapter.capabilities, gate="some")

    async def test_a_client_that_fails_says_so_once(self) -> None:
        agent = self.failing()
        if agent is None:
            return self.lacking("failing")
        assert adapter_fixture.has_failed(await self.run(agent))

    async def test_a_call_that_fails_is_reported_as_failed_once(self) -> None:
        agent = self.erring()
        if agent is None:
            return self.lacking("erring")
        done = await self.run(agent)

        begun = [call.id for call in done.proposed] or [call.tool_call_id for call in adapter_fixture.ungated(done)]
        assert begun
        assert [[each.type for each in done.outcomes(call_id)] for call_id in begun] == [["tool_call_failed"]] * len(
            begun
        )
        assert adapter_fixture.ends_once(done)

    def _assert_in_order(self, done: adapter_fixture.Driven, files: list[str]) -> None:
        """A call for each file, in their order, with unique ids and rising turns; each outcome after its call."""
        begun: list[ToolCall | ev.ToolCallStarted] = [*(done.proposed or adapter_fixture.ungated(done))]
        ids = [call.id if isinstance(call, ToolCall) else call.tool_call_id for call in begun]
        assert len(set(ids)) == len(ids)
        turns = [call.turn for call in begun]
        assert turns == sorted(turns)
        if any(isinstance(event, ev.TurnStarted) for event in done.events):
            assert min(turns) > 0, "the adapter reports turns, and its calls say 0"
        outcomes = [done.outcomes(call_id) for call_id in ids]
        if self.all_or_nothing:  # calls stand beside the one that they are parts of
            assert any(outcomes)
        else:
            assert [adapter_fixture.mentions(call, file) for call, file in zip(begun, files, strict=True)] == [
                True
            ] * len(files)
            assert [len(found) for found in outcomes] == [1] * len(files)
        for call, found in zip(begun, outcomes, strict=True):
            assert [outcome.type for outcome in found] in ([], ["tool_call_completed"])
            assert all(done.log.index(call) < done.log.index(outcome) for outcome in found)
        if len({call.turn for call in begun}) == len(begun) > 1:  # one call a response: each is over before the next
            for found, later in zip(outcomes, begun[1:], strict=False):
                assert all(done.log.index(outcome) < done.log.index(later) for outcome in found)


class RefusingChecks(adapter_fixture.AdapterChecks):
    """Refusals, and the pairing of calls with outcomes, for the calls that are proposed to the gate."""

    async def test_a_refused_call_has_no_effect_and_no_outcome(self) -> None:
        """The first is refused; whether the second still runs is what a refusal does to the turn."""
        agent = self._proposing("alpha", "beta")
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(0))

        assert adapter_fixture.ends_once(done)
        assert done.outcomes(done.proposed[0].id) == []
        assert "alpha" not in self.made()
        went_on = bool(adapter_fixture.completed(done))
        assert self.made() == (self.effects("beta") if went_on else [])
        self.saw(agent.adapter.capabilities, deny_ends_turn=not went_on)

    async def test_parallel_calls_are_asked_about_and_paired_with_their_outcomes(self) -> None:
        """Of three siblings, the second is refused: the others run, unless one refusal refuses all."""
        files = ["first", "second", "third"]
        agent = self._proposing(*files, together=True)
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(1))

        assert adapter_fixture.ends_once(done)
        if not self.in_order:
            files.sort(key=lambda file: [adapter_fixture.mentions(call, file) for call in done.proposed].index(True))
        assert all(adapter_fixture.mentions(call, file) for call, file in zip(done.proposed, files, strict=False))
        ran = [call.id in adapter_fixture.completed(done) for call in done.proposed]
        assert self.made() == self.effects(*itertools.compress(files, ran))
        assert done.outcomes(done.proposed[1].id) == []
        assert max(len(done.outcomes(call.id)) for call in done.proposed) <= 1
        if not (self.all_or_nothing or agent.adapter.capabilities.deny_ends_turn):
            assert ran == [True, False, True]

    async def test_after_a_stop_nothing_more_is_asked_or_runs(self) -> None:
        """After a refusal that stops the agent, no other answer matters."""
        agent = self._proposing("alpha", "beta")
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(0, stop=True))

        assert len(done.proposed) == 1
        _assert_nothing_ran(done, self.made())
        assert len(adapter_fixture.terminals(done)) <= 1

    async def test_a_gate_that_raises_permits_nothing_and_is_not_passed_over(self) -> None:
        """Without an answer there is no permission, and the run does not end as if there had been one."""
        agent = self._proposing("alpha")
        if agent is None:
            return

        async def broken(call: ToolCall) -> GateAnswer:
            raise RuntimeError("no answer")

        done = await self.run(agent, answer=broken)

        _assert_nothing_ran(done, self.made())
        assert adapter_fixture.ends_once(done)

    async def test_an_input_of_the_gates_own_is_what_runs_or_nothing_does(self) -> None:
        agent = self._proposing("original")
        if agent is None or not self.acts:
            return

        async def other(call: ToolCall) -> GateAnswer:
            changed = _replaced(call.input, "original", "rewritten")
            return GateAnswer(allowed=True, input=changed if changed != call.input else None)

        done = await self.run(agent, answer=other)

        assert adapter_fixture.ends_once(done)
        rewritten = self.made() == ["rewritten"]
        assert rewritten or self.made() == []
        assert bool(adapter_fixture.completed(done)) is rewritten
        self.saw(agent.adapter.capabilities, rewrite=rewritten)

    def _proposing(self, *files: str, together: bool = False) -> adapter_fixture.Agent | None:
        agent = self.making(*files, together=together)
        return None if agent.adapter.capabilities.gate == "none" else agent


def _assert_nothing_ran(done: adapter_fixture.Driven, made: list[str]) -> None:
    assert made == []
    assert adapter_fixture.completed(done) == []
    assert done.types[-1:] != ["run_completed"]


def _refusing(n: int, *, stop: bool = False) -> adapter_fixture.Answering:
    """A gate that refuses the n-th call it is asked for, from 0."""
    counted = itertools.count()

    async def answer(call: ToolCall) -> GateAnswer:
        if next(counted) == n:
            return GateAnswer(allowed=False, tell_model=tell_model_default(call.name), stop=stop)
        return GateAnswer(allowed=True)

    return answer


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value


class ShowingChecks(adapter_fixture.AdapterChecks):
    """Each capability is shown to be exactly what is declared."""

    def test_it_is_an_adapter_with_a_name(self) -> None:
        adapter = self.making("alpha").adapter

        missing = [name for name in vars(Adapter) if not name.startswith("_") and not hasattr(adapter, name)]
        assert missing == []
        assert adapter.name

    async def test_usage_reports_add_up(self) -> None:
        """Deltas and cumulative reports give the same totals, and come at the declared times."""
        reporting = self.using()
        if reporting is None:
            self.saw(self.making("alpha").adapter.capabilities, usage="none", reports_cost=False)
            return self.lacking("using")
        agent, expected = reporting
        done = await self.run(agent)

        assert adapter_fixture.total(done) == expected
        reports = [event for event in done.events if isinstance(event, ev.TokenUsageUpdated)]
        counting = [event for event in reports if event.input_tokens or event.output_tokens]
        turns = [event for event in done.events if isinstance(event, ev.TurnStarted)]
        if agent.adapter.capabilities.usage == "per_turn" and len(turns) > 1:
            first, last = done.log.index(counting[0]), done.log.index(turns[-1])
            assert first < last, "declared `per_turn`, and nothing was reported before the last response"
        kind: Literal["per_turn", "at_end"] = "per_turn" if len(counting) > 1 else "at_end"
        costs = any(event.cost_usd is not None for event in reports)
        self.saw(agent.adapter.capabilities, usage=kind if counting else "none", reports_cost=costs)

    async def test_a_later_run_has_the_agents_own_session_again(self) -> None:
        agent = self.making("earlier")
        if not agent.adapter.capabilities.resume:
            return
        sessions = _sessions((await self.run(agent)).events)
        done = await self.run(self.making("later"), resume=sessions[0])

        assert _sessions(done.events) == sessions
        assert adapter_fixture.ends_once(done)
        assert isinstance(done.events[-1], ev.RunCompleted)
        assert self.made() == self.effects("earlier", "later")
        self.saw(agent.adapter.capabilities, resume=True)

    async def test_a_session_that_the_agent_does_not_have_is_said_so_before_it_begins(self) -> None:
        """Its conversation can then be told to a new session: nothing was done, and nothing is left running."""
        agent = self.making("alpha")
        if not agent.adapter.capabilities.resume:
            return
        opened = False
        try:
            with anyio.fail_after(PATIENCE_S):
                await agent.adapter.prepare()
                async with agent.adapter.open(_launch(agent, resume=self.nobodys_session)):
                    opened = True
        except UnknownSessionError:
            assert not opened
        else:
            raise AssertionError("a session that there is not was opened")
        assert self.made() == []
        assert self.processes() == []

    async def test_the_model_is_offered_what_could_be_called_or_everything(self) -> None:
        """If the adapter narrows, a tool of which no call could be allowed is hidden."""
        offering = self.offering()
        if offering is None:
            return self.lacking("offering", declares=self.making("alpha").adapter.capabilities.narrow)
        agent, offered = offering

        def without_hidden(tools: Sequence[str]) -> list[str]:
            return [tool for tool in tools if tool != "hidden"]

        await self.run(agent, narrow=without_hidden)

        assert "kept" in offered
        self.saw(agent.adapter.capabilities, narrow="hidden" not in offered)


def _launch(agent: adapter_fixture.Agent, *, resume: str) -> Launch:
    async def refuse(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=False, stop=True)

    return Launch(run_id=f"run-{uuid4().hex}", session_id="s-1", prompt=agent.prompt, gate=refuse, resume=resume)


def _sessions(events: list[ev.Event]) -> list[str]:
    return [e.provider_session_id for e in events if isinstance(e, ev.SessionStarted) and e.provider_session_id]


class CompilingChecks(adapter_fixture.AdapterChecks):
    """The gate allows everything here: it is the client itself that refuses."""

    def test_it_compiles_purely(self) -> None:
        """The same policy gives the same options, and every part is reported as fitting or not."""
        adapter = self.making("alpha").adapter
        parts = {"deny bash", "max_cost_usd", "max_turns"}
        policy = Policy(name="p", tool_rules=(Deny(("bash",)),), limits=Limits(max_cost_usd=1, max_turns=1))

        options = adapter.compile(policy)

        assert options == adapter.compile(policy)
        assert sorted((*options.expressed, *options.unexpressed)) == sorted(parts)
        assert {part.split()[0] for part in options.expressed} <= set(adapter.capabilities.compiles)

    async def test_a_tool_that_launch_options_take_away_does_not_run(self) -> None:
        agent = self.making("alpha")
        parts = {"deny", "allow"} & set(agent.adapter.capabilities.compiles)
        if not parts:
            return
        tool = (await self.run(agent)).proposed[0].name
        rules: dict[str, Allow | Deny] = {"deny": Deny((tool,)), "allow": Allow(("no-such-tool",))}
        for part in sorted(parts):
            await self._compiled(self.making(part), Policy(name="p", tool_rules=(rules[part],)))
            self.saw_compiled(agent.adapter.capabilities, part)

        assert self.made() == self.effects("alpha")

    async def test_responses_past_launch_options_do_not_act(self) -> None:
        agent = self.making("alpha", "beta")
        if "max_turns" not in agent.adapter.capabilities.compiles:
            return
        await self._compiled(agent, Policy(name="p", limits=Limits(max_turns=1)))

        assert "beta" not in self.made()
        self.saw_compiled(agent.adapter.capabilities, "max_turns")

    async def test_tokens_and_usd_past_launch_options_end_the_run(self) -> None:
        """If a client counts them over a run; a cap on each response shows nothing here."""
        reporting = self.using()
        if reporting is None:
            return self.lacking("using")
        agent, _ = reporting
        limits = {
            "max_total_tokens": Limits(max_total_tokens=1),
            "max_input_tokens": Limits(max_input_tokens=1),
            "max_output_tokens": Limits(max_output_tokens=1),
            "max_cost_usd": Limits(max_cost_usd=1e-9),
        }
        for part in sorted(set(limits) & set(agent.adapter.capabilities.compiles)):
            done = await self._compiled(agent, Policy(name="p", limits=limits[part]))
            if not any(isinstance(event, ev.RunCompleted) for event in done.events):
                self.saw_compiled(agent.adapter.capabilities, part)

    async def _compiled(self, agent: adapter_fixture.Agent, policy: Policy) -> adapter_fixture.Driven:
        options = agent.adapter.compile(policy)
        assert options.unexpressed == (), f"{options.unexpressed} is not compiled"
        return await self.run(agent, options=options)


CAREFUL: Final = Policy(
    name="careful",
    tool_rules=(
        Deny((ToolWhere(tool="*", where=(Condition(path="$[*]", regex="network"),)),), action="deny"),
        Deny((ToolWhere(tool="*", where=(Condition(path="$[*]", regex="outside"),)),), action="deny"),
    ),
    limits=Limits(max_total_tokens=1_000_000),
)
"""No network, nothing outside, so many tokens: by the text in the calls, as their inputs are the agent's own."""

IDLE: Final = Policy(name="idle", tool_rules=(Deny(("*",), action="deny"),))
ONE_CALL: Final = Policy(name="one-call", limits=Limits(max_tool_calls=Limit(max=1, action="deny")))
FRUGAL: Final = Policy(name="frugal", limits=Limits(max_total_tokens=1))


class SupervisingChecks(adapter_fixture.AdapterChecks):
    """The adapter under the real supervisor."""

    async def test_a_denied_call_is_prevented_or_interrupted_as_the_gate_allows(self) -> None:
        """Held calls never run; the first one that is only reported ends the run. The report names the gate."""
        agent = self.making("inside", "network", "outside", "later")
        gate = agent.adapter.capabilities.gate
        report = (await _supervised(agent, CAREFUL)).policy

        assert report.metadata["gate"] == gate
        levels = [violation.enforcement for violation in report.violations]
        if gate == "none":
            # what an agent does before the cancel reaches it is observed
            assert levels[:1] == ["interrupted"], levels
            assert set(levels[1:]) <= {"observed"}, levels
            assert not {"outside", "later"} & set(self.made())
            return
        goes_on = not self.all_or_nothing and not agent.adapter.capabilities.deny_ends_turn
        assert set(levels) == {"prevented"}, levels
        assert not {"network", "outside"} & set(self.made())
        assert not goes_on or (len(levels), self.made()) == (2, self.effects("inside", "later"))

    async def test_a_denied_call_that_is_not_asked_about_is_interrupted(self) -> None:
        """Of a gate that is `some`, the report says which of both it was for each call."""
        agent = self.mixing("alpha")
        if agent is None:
            return
        report = (await _supervised(agent, IDLE)).policy

        assert report.metadata["gate"] == "some"
        levels = [violation.enforcement for violation in report.violations]
        assert levels[:1] == ["interrupted"], levels
        assert report.action == "cancel"
        assert self.made() == []
        assert self.processes() == []

    async def test_a_sub_agents_calls_count_and_are_held_as_its_parents_are(self) -> None:
        """The call that starts it, asked about or not, is the one that is allowed; the next says who it is for."""
        agent = self.delegating("alpha")
        if agent is None:
            return self.lacking("delegating")
        result = await _supervised(agent, ONE_CALL)

        calls = [event for event in result.events if isinstance(event, (ev.ToolCallRequested, ev.ToolCallStarted))]
        parents = {call.tool_call_id: call.parent_tool_call_id for call in calls}
        assert list(parents.values()) == [None, calls[0].tool_call_id]
        found = [(violation.kind, violation.enforcement) for violation in result.policy.violations]
        assert found == [("max_tool_calls", "prevented")]
        assert self.made() == []
        self.saw_sub_agents(agent.adapter.capabilities)

    async def test_tokens_past_the_limit_interrupt_the_run(self) -> None:
        reporting = self.using()
        if reporting is None:
            return self.lacking("using")
        if reporting[0].adapter.capabilities.usage == "none":
            return None
        report = (await _supervised(reporting[0], FRUGAL)).policy

        found = [(violation.kind, violation.enforcement) for violation in report.violations]
        assert [kind for kind, _ in found] == ["max_total_tokens"], found
        assert report.action == "cancel"
        assert self.processes() == []


async def _supervised(agent: adapter_fixture.Agent, policy: Policy) -> RunResult:
    with anyio.fail_after(PATIENCE_S):
        try:
            return await run_once(agent.adapter, agent.prompt, policies=[policy])
        except (PolicyViolationError, ProviderError) as error:
            partial: RunResult = error.partial
            return partial
