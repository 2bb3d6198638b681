"""Several adapters as one, in the order in which they are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapters import Adapter, Launch, LaunchOptions, Provider

from ...kit.tasks import helpers
from .breaker import Breaker, Health
from .capabilities import weakest
from .session import FallbackSession, Member, last_agent


class FallbackAdapter:
    """Runs the first of several adapters whose client works; see docs/agents/fallback.md.

    If a client fails before anything ran, the next one takes over. A client that fails several times in a row is
    skipped for a while. A session stays with the client that ran it last, as long as that client works.

    Args:
        adapters: the adapters, in the order in which they are tried.
        failures: after how many failures in a row a client is skipped.
        rest_s: for how many seconds it is skipped; then one run decides.

    Raises:
        UsageError: an argument makes no sense, or two agents mean different things by one tool.
    """

    name = "fallback"

    def __init__(self, adapters: Sequence[Adapter], *, failures: int = 3, rest_s: float = 60.0) -> None:
        if len(adapters) < 2:
            raise UsageError("a fallback needs two adapters at least, in the order in which they are tried")
        if failures < 1 or not rest_s >= 0:
            raise UsageError("`failures` is a number from 1, `rest_s` one from 0")
        self._members = [
            Member(label, adapter, Breaker(failures, rest_s))
            for label, adapter in zip(_labels(adapters), adapters, strict=True)
        ]
        self._remains = [found for one in adapters if (found := getattr(one, "end_remains", None)) is not None]
        weakest([one.capabilities for one in adapters])

    @property
    def capabilities(self) -> Capabilities:
        """What all of them can do."""
        return weakest([member.adapter.capabilities for member in self._members])

    def health(self) -> dict[str, Health]:
        """How each client does, by its name."""
        return {member.label: member.breaker.health for member in self._members}

    async def prepare(self) -> None:
        """Check that one of them can be started. Raises ProviderUnavailableError, which names what each lacks."""
        lacking = []
        for member in self._members:
            try:
                await member.adapter.prepare()
            except ProviderUnavailableError as error:
                lacking.append(f"`{member.label}`: {error}")
            else:
                return
        raise ProviderUnavailableError(f"none of these agents can be started: {'; '.join(lacking)}")

    def compile(self, policy: Policy) -> LaunchOptions:
        """The policy as the launch options of each adapter; what one of them cannot express is left out."""
        each = [member.adapter.compile(policy) for member in self._members]
        expressed = tuple(part for part in each[0].expressed if all(part in one.expressed for one in each))
        others = dict.fromkeys(part for one in each for part in (*one.expressed, *one.unexpressed))
        return LaunchOptions(
            options={"each": each},
            expressed=expressed,
            unexpressed=tuple(part for part in others if part not in expressed),
        )

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Try the adapters in order; leaving ends the one that runs."""
        given = launch.options.options.get("each")
        options = given if isinstance(given, list) else [LaunchOptions()] * len(self._members)
        session = FallbackSession(self._members, launch, options)
        async with helpers() as tasks:
            tasks.start_soon(session.run, self._order(launch))
            yield session

    async def end_remains(self, mark: str) -> dict[str, Any]:
        """End what a run of any of them left running on this machine; returns the evidence."""
        evidence: dict[str, Any] = {}
        for end in dict.fromkeys(self._remains):
            evidence |= await end(mark)
        return evidence

    def _order(self, launch: Launch) -> list[int]:
        """The one that ran the session last, then the others."""
        labels = [member.label for member in self._members]
        last = last_agent(launch.transcript, labels)
        order = list(range(len(labels)))
        return order if last is None else sorted(order, key=lambda n: labels[n] != last)


def _labels(adapters: Sequence[Adapter]) -> Iterator[str]:
    """Their names; one that comes again has a number."""
    seen: Counter[str] = Counter()
    for adapter in adapters:
        seen[adapter.name] += 1
        yield adapter.name if seen[adapter.name] == 1 else f"{adapter.name}-{seen[adapter.name]}"
