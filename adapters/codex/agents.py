"""Sub-agents: threads of their own, whose calls belong to the call that started them."""

from __future__ import annotations

import msgspec

from .items import Item, agent_threads, starts_agents


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sub-agent's thread comes from: the call, its turn, and whether the thread began with it."""

    call_id: str
    turn: int
    model: str | None
    new: bool


class Agents:
    """The sub-agents of one run, by thread."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}

    def take(self, item: Item, turn: int) -> None:
        """Take in the sub-agents an item mentions; the first call that mentions one is its own.

        Args:
            item: an item that is a call.
            turn: the model response it came in.
        """
        for thread in agent_threads(item):
            new = starts_agents(item)
            agent = Agent(call_id=str(item.get("id")), turn=turn, model=item.get("model") or None, new=new)
            self._agents.setdefault(thread, agent)

    def get(self, thread_id: str) -> Agent | None:
        """The sub-agent of a thread, None for one nobody mentioned."""
        return self._agents.get(thread_id)
