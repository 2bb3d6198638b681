"""Whether an Adapter can do what its `capabilities` say, as seen from outside."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import anyio

from proctor.policies.calls import ToolCall, tell_model_default
from proctor.policies.events import Event, RunCompleted, SessionStarted, TokenUsageUpdated
from proctor.supervisor.ports import GateAnswer

from .adapter_checks import PATIENCE_S, AdapterChecks, Shown
from .driving import Drive


class ShowingChecks(AdapterChecks):
    """Each capability is shown, and is what is declared: no more, and no less."""

    async def test_it_can_do_what_it_declares_and_declares_what_it_can_do(self) -> None:
        """`some` gates may hold every call a test thinks of; all else must agree."""
        declared = self.making("a").adapter.capabilities
        shown = await self.show()

        seen = {name: value for name, value in _fields(shown).items() if value is not None}
        said = {name: getattr(declared, name) for name in seen}
        if declared.gate == "some":
            said["gate"] = seen["gate"]
        assert said == seen, f"declared {said}, seen {seen}"
        self.declared, self.shown = declared, shown

    async def show(self) -> Shown:
        """Try out everything the agents of this suite can show."""
        gate = await self._show_gate()
        tokens, cost = await self._show_usage()
        return Shown(
            gate=gate,
            rewrite=await self._show_rewrite() if gate == "all" and self.acts else None,
            deny_ends_turn=await self._show_deny_ends_turn() if gate == "all" else None,
            usage=tokens,
            reports_cost=cost,
            cancel_kills_children=await self._show_kills_children(),
            resume=await self._show_resume(),
        )

    async def _show_gate(self) -> Literal["all", "none"]:
        async def refuse(call: ToolCall) -> GateAnswer:
            return GateAnswer(allowed=False, tell_model=tell_model_default(call.name))

        done = await self.run(self.making("gated"), answer=refuse)
        ran = "gated" in self.made() if self.acts else not done.asked
        assert ran is not bool(done.asked), "a call that was refused has run, or none was ever asked for"
        return "none" if ran else "all"

    async def _show_rewrite(self) -> bool:
        """The gate has another file made; what must never happen is that the first one is."""

        async def other(call: ToolCall) -> GateAnswer:
            changed = _replaced(call.input, "original", "rewritten")
            return GateAnswer(allowed=True, input=changed if changed != call.input else None)

        await self.run(self.making("original"), answer=other)
        assert "original" not in self.made()
        return "rewritten" in self.made()

    async def _show_deny_ends_turn(self) -> bool:
        counted = itertools.count()

        async def first(call: ToolCall) -> GateAnswer:
            refused = next(counted) == 0
            return GateAnswer(allowed=not refused, tell_model=tell_model_default(call.name) if refused else None)

        done = await self.run(self.making("refused", "next"), answer=first)
        if self.acts:
            return "next" not in self.made()
        return not any(done.outcomes(call.id) for call in done.asked[1:])

    async def _show_usage(self) -> tuple[Literal["per_turn", "at_end", "none"], bool | None]:
        reporting = self.using()
        if reporting is None:
            return "none", False
        agent, _ = reporting
        done = await self.run(agent)
        reports = [event for event in done.events if isinstance(event, TokenUsageUpdated)]
        counting = [event for event in reports if event.input_tokens or event.output_tokens]
        kind: Literal["per_turn", "at_end"] = "per_turn" if len(counting) > 1 else "at_end"
        costs = any(event.cost_usd is not None for event in reports)
        return kind if counting else "none", costs

    async def _show_kills_children(self) -> bool | None:
        agent = self.staying()
        if agent is None:
            return None
        drive = Drive(agent.adapter)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drive.run, agent.prompt)
                await self.up()
                drive.cancel()
        return self.processes() == []

    async def _show_resume(self) -> bool | None:
        """A second run has the agent's own session again."""
        agent = self.making("earlier")
        if not agent.adapter.capabilities.resume:
            return None
        known = _sessions((await self.run(agent)).events)
        again = self.making("later")
        done = await self.run(again, resume=known[0])
        return _sessions(done.events) == known and any(isinstance(event, RunCompleted) for event in done.events)


def _fields(shown: Shown) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in shown.__struct_fields__}


def _sessions(events: list[Event]) -> list[str]:
    return [e.provider_session_id for e in events if isinstance(e, SessionStarted) and e.provider_session_id]


def _replaced(value: Any, old: str, new: str) -> Any:
    """The value with a word replaced in every text inside it."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value
