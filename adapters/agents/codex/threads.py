"""The threads of a run: the agent's own, and those of sub-agents, whose calls belong to the call they began with."""

from __future__ import annotations

import msgspec

from .items import CodexItem, agent_threads, starts_agents


class SubAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sub-agent's thread comes from: the call, its turn, and whether the thread began with it."""

    call_id: str
    turn: int
    model: str | None
    new: bool


class Threads:
    """Which thread is whose, by what the client reports.

    Args:
        own: the agent's own thread; "" when one starts with this run or is forked.
        fresh: the own thread has no past.
    """

    def __init__(self, own: str, *, fresh: bool) -> None:
        self.own = own
        self._fresh = fresh
        self._agents: dict[str, SubAgent] = {}
        self._turn_ids: dict[str, str] = {}
        self._thread_of: dict[str, str] = {}

    def is_own(self, thread_id: str) -> bool:
        """Whether a thread is the agent's, not a sub-agent's."""
        return thread_id == self.own

    def is_fresh(self, thread_id: str) -> bool:
        """Whether a thread is known to have no past."""
        agent = self._agents.get(thread_id)
        return self._fresh if self.is_own(thread_id) else agent is not None and agent.new

    def turn_begins(self, thread_id: str, turn_id: str) -> None:
        """Take in the client's turn that a thread is in."""
        self._turn_ids[thread_id] = turn_id

    def turn_id(self, thread_id: str) -> str:
        """The client's turn that a thread is in; "" before the client says that one began."""
        return self._turn_ids.get(thread_id, "")

    def take(self, item: CodexItem, thread_id: str, turn: int) -> str:
        """Take in a call, with the sub-agents it mentions; the first call that mentions one is its own.

        Args:
            item: an item that is a call.
            thread_id: the thread it is part of.
            turn: the model response of the agent that the thread's calls count for.

        Returns:
            The call's id.
        """
        call_id = str(item.get("id"))
        self._thread_of[call_id] = thread_id
        for started in agent_threads(item):
            new = starts_agents(item)
            agent = SubAgent(call_id=call_id, turn=turn, model=item.get("model") or None, new=new)
            self._agents.setdefault(started, agent)
        return call_id

    def of(self, call_id: str) -> str:
        """The thread of a call that was taken in."""
        return self._thread_of[call_id]

    def agent(self, thread_id: str) -> SubAgent | None:
        """The sub-agent of a thread; None for a thread that was never mentioned."""
        return self._agents.get(thread_id)
