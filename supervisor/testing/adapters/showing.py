"""Whether an Adapter can do what its `capabilities` declare besides the gate, as seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

import anyio

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event, RunCompleted, SessionStarted, TokenUsageUpdated, TurnStarted
from proctor.supervisor.errors import UnknownSessionError
from proctor.supervisor.ports.adapters import Adapter, GateAnswer, Launch

from ..patience import PATIENCE_S
from .checks import AdapterChecks, Agent, ends_once, total


class ShowingChecks(AdapterChecks):
    """Each capability is shown to be exactly what is declared."""

    def test_it_is_an_adapter_with_a_name(self) -> None:
        """It has all that the port asks for."""
        adapter = self.making("alpha").adapter

        assert isinstance(adapter, Adapter)
        assert adapter.name

    async def test_usage_reports_add_up(self) -> None:
        """Deltas and cumulative reports give the same totals, and come at the declared times."""
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
        """And continues in it."""
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


def _launch(agent: Agent, *, resume: str) -> Launch:
    async def refuse(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=False, stop=True)

    return Launch(run_id=f"run-{uuid4().hex}", session_id="s-1", prompt=agent.prompt, gate=refuse, resume=resume)


def _sessions(events: list[Event]) -> list[str]:
    return [e.provider_session_id for e in events if isinstance(e, SessionStarted) and e.provider_session_id]
