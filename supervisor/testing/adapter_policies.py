"""Whether the parts of a policy that an Adapter compiles hold as launch options alone, without the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events import RunCompleted, ToolCallRequested, ToolCallStarted
from proctor.policies.language.conditions import Condition
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import Limit, Limits
from proctor.policies.policy import Allow, Deny, Policy

from ..api.run_once import run_once
from ..errors import ProviderError
from .adapter_fixture import AdapterChecks
from .fakes import PATIENCE_S

if TYPE_CHECKING:
    from typing import Final

    from ..machine.interface import RunResult
    from .adapter_fixture import Agent, Driven


class CompilingChecks(AdapterChecks):
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
        """Denied by its name, or not among those allowed."""
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
        """The second one would."""
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
            if not any(isinstance(event, RunCompleted) for event in done.events):
                self.saw_compiled(agent.adapter.capabilities, part)

    async def _compiled(self, agent: Agent, policy: Policy) -> Driven:
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


class SupervisingChecks(AdapterChecks):
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

        calls = [event for event in result.events if isinstance(event, (ToolCallRequested, ToolCallStarted))]
        parents = {call.tool_call_id: call.parent_tool_call_id for call in calls}
        assert list(parents.values()) == [None, calls[0].tool_call_id]
        found = [(violation.kind, violation.enforcement) for violation in result.policy.violations]
        assert found == [("max_tool_calls", "prevented")]
        assert self.made() == []
        self.saw_sub_agents(agent.adapter.capabilities)

    async def test_tokens_past_the_limit_interrupt_the_run(self) -> None:
        """If tokens are reported at all."""
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


async def _supervised(agent: Agent, policy: Policy) -> RunResult:
    """The result of a run, however it ended."""
    with anyio.fail_after(PATIENCE_S):
        try:
            return await run_once(agent.adapter, agent.prompt, policies=[policy])
        except (PolicyViolationError, ProviderError) as error:
            partial: RunResult = error.partial
            return partial
