"""Whether the parts of a policy that an Adapter compiles hold as launch options alone, without the gate."""

from __future__ import annotations

from proctor.policies.policy import Allow, Deny, Limits, Policy
from proctor.policies.stream.events import RunCompleted

from .checks import AdapterChecks, Agent
from .driving import Driven


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
