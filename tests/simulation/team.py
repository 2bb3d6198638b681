"""The agents of one owner: members of a fallback, and agents that start runs on the same supervisor."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import anyio
import msgspec

from proctor.adapters.agents.fallback import FallbackAdapter, FallbackSession
from proctor.policies import Policy
from proctor.policies.events import Event
from proctor.policies.events.run_context import Capabilities
from proctor.supervisor import Launch, Provider, ProviderUnavailableError, Supervisor
from proctor.supervisor.errors import UnknownSessionError
from proctor.supervisor.ports.adapter import Adapter, CancelStep
from proctor.supervisor.testing import FakeAdapter

from .agent import Agent
from .plans import Member, Plan, Says, Start
from .witness import Witness, first_of


class Team:
    """The agents that run the runs of one owner.

    Args:
        plan: which agents replace which.
        witness: observes them.
        policies: those of every run.
    """

    supervisor: Supervisor | None = None

    def __init__(self, plan: Plan, witness: Witness, policies: Sequence[Policy]) -> None:
        self._plan = plan
        self._witness = witness
        self._policies = policies
        self._starts: dict[str, Start] = {}
        members = [StandIn(n, member, self._member) for n, member in enumerate(plan.members)]
        self._fallback = FallbackAdapter(members, failures=2, rest_s=plan.rest_s) if members else None

    def agent(self, start: Start, kind: type[Agent] = Agent) -> Adapter:
        """The agent of a run."""
        if self._fallback is None:
            return kind(start, self._witness, self._policies, self._plan.record, self)
        self._starts[start.run] = start
        return self._fallback

    async def run_here(self, start: Start, *, waits: bool) -> None:
        """Start a run on the same supervisor, from within its agent, and wait for its end."""
        assert self.supervisor is not None
        self._witness.here.add(start.run)
        given: Any = {"run_id": start.run, "session_id": start.session, "policies": self._policies}
        handle = await self.supervisor.start(self.agent(start), "go", continuation="replay", **given)
        if waits:
            await handle.wait()

    def check(self, *, left: bool = False) -> None:
        """No run waits while a slot is free. Once the supervisor is `left`, all slots are free, and no member is
        still being tried.
        """
        if self.supervisor is None:
            return
        places = self.supervisor._starting.admission
        if places._waiting and places._free > 0:
            self._witness.found.append(f"{places._free} places are free, and {len(places._waiting)} starts wait")
        if left and (places._free != self._plan.max_running or places._sessions or places._waiting):
            self._witness.found.append(f"{places._free} of {self._plan.max_running} places are free in the end")
        for label, health in (self._fallback.health() if left and self._fallback else {}).items():
            if health.on_trial:
                self._witness.found.append(f"`{label}` is on trial in the end, so nobody ever tries it again")

    def _member(self, number: int, run: str) -> Agent:
        start = self._starts.get(run) or self._starts[first_of(run)]
        steps = (start.steps, *start.others)[number]
        if self._plan.members[number].resume:
            steps = (Says("own"), *steps)
        start = msgspec.structs.replace(start, run=run, steps=steps, gate=self._plan.members[number].gate)
        return Agent(start, self._witness, self._policies, self._plan.record, self, member=number)


class StandIn(FakeAdapter):
    """A member of a fallback, in any run that tries it."""

    def __init__(self, number: int, member: Member, agent: Callable[[int, str], Agent]) -> None:
        able = Capabilities(gate=member.gate, usage="per_turn", resume=member.resume)  # type: ignore[arg-type]
        super().__init__(capabilities=able)
        self._number = number
        self._member = member
        self._agent = agent

    async def prepare(self) -> None:
        await anyio.sleep(self._member.seconds)
        since, until = self._member.gone
        if since <= anyio.current_time() < until:
            raise ProviderUnavailableError("it is gone")

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start it with the steps of the run."""
        if launch.resume is not None and self._member.forgets:
            raise UnknownSessionError(f"there is no session `{launch.resume}`")
        agent = self._agent(self._number, launch.run_id)
        session: Any = launch.gate
        assert isinstance(session.__self__, FallbackSession)
        agent.recorded = session.__self__._counting.call
        return _heard(agent, launch)


@asynccontextmanager
async def _heard(agent: Agent, launch: Launch) -> AsyncIterator[Provider]:
    async with agent.open(launch) as provider:
        yield _Heard(agent, provider)


class _Heard:
    """A member's provider. The witness knows which of its events were read."""

    def __init__(self, agent: Agent, provider: Provider) -> None:
        self._agent = agent
        self._provider = provider

    def cancel_steps(self) -> Sequence[CancelStep]:
        return self._provider.cancel_steps()

    async def events(self) -> AsyncIterator[Event]:
        stream: Any = self._provider.events()
        async with aclosing(stream) as events:
            async for event in events:
                self._agent.tells(event, taken=False)
                yield event
                self._agent.tells(event, taken=True)
