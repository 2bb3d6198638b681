"""Whether an Adapter can do what its `capabilities` say beside the gate, as seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from proctor.policies.stream.events import Event, RunCompleted, SessionStarted, TokenUsageUpdated, TurnStarted
from proctor.supervisor.ports.adapters import Adapter

from .checks import AdapterChecks, ends_once, total


class ShowingChecks(AdapterChecks):
    """Each capability is shown, and is what is declared: no more, and no less."""

    def test_it_is_an_adapter_with_a_name(self) -> None:
        """It has all that the port asks for."""
        adapter = self.making("alpha").adapter

        assert isinstance(adapter, Adapter)
        assert adapter.name

    async def test_usage_reports_add_up(self) -> None:
        """Deltas and cumulative reports give the same totals; they come when and as it is declared."""
        reporting = self.using()
        if reporting is None:
            self.saw(self.making("alpha").adapter.capabilities, usage="none", reports_cost=False)
            return self.lacking("using")
        agent, expected = reporting
        done = await self.run(agent)

        assert total(done) == expected
        reports = [event for event in done.events if isinstance(event, TokenUsageUpdated)]
        counting = [event for event in reports if event.input_tokens or event.output_tokens]
        turns = [event for event in done.events if isinstance(event, TurnStarted)]
        if agent.adapter.capabilities.usage == "per_turn" and len(turns) > 1:
            first, last = done.log.index(counting[0]), done.log.index(turns[-1])
            assert first < last, "declared `per_turn`, and nothing was reported before the last response"
        kind: Literal["per_turn", "at_end"] = "per_turn" if len(counting) > 1 else "at_end"
        costs = any(event.cost_usd is not None for event in reports)
        self.saw(agent.adapter.capabilities, usage=kind if counting else "none", reports_cost=costs)

    async def test_a_later_run_has_the_agents_own_session_again(self) -> None:
        """And goes on in it."""
        agent = self.making("earlier")
        if not agent.adapter.capabilities.resume:
            return
        sessions = _sessions((await self.run(agent)).events)
        done = await self.run(self.making("later"), resume=sessions[0])

        assert _sessions(done.events) == sessions
        assert ends_once(done)
        assert isinstance(done.events[-1], RunCompleted)
        assert self.made() == self.effects("earlier", "later")
        self.saw(agent.adapter.capabilities, resume=True)

    async def test_the_model_is_offered_what_could_be_called_or_everything(self) -> None:
        """A tool that no call could pass is hidden where the adapter narrows."""
        offering = self.offering()
        if offering is None:
            return self.lacking("offering", declares=self.making("alpha").adapter.capabilities.narrow)
        agent, offered = offering

        def without_hidden(tools: Sequence[str]) -> list[str]:
            return [tool for tool in tools if tool != "hidden"]

        await self.run(agent, narrow=without_hidden)

        assert "kept" in offered
        self.saw(agent.adapter.capabilities, narrow="hidden" not in offered)


def _sessions(events: list[Event]) -> list[str]:
    return [e.provider_session_id for e in events if isinstance(e, SessionStarted) and e.provider_session_id]
