"""Agents of frameworks that call their tools by themselves, on asyncio: what their adapters do alike."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, ClassVar

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities
from proctor.policies.stream.tools import Tool
from proctor.supervisor.errors import ProviderUnavailableError
from proctor.supervisor.ports.adapters import Launch, LaunchOptions, Provider

from ...kit.launch_options import limit_options
from ...kit.values.named_object import named_object
from .adapter import loop_capabilities
from .histories import Histories
from .loop_gate import LoopGate
from .running import looping


class FrameworkAdapter(ABC):
    """Runs prompts with an agent of a framework.

    Args:
        agent: the agent, or its name as `module:name`.
        narrow: offer the model only the tools that it could call now.
        stream: report text as it is written.
    """

    name: ClassVar[str]
    """Also that of the extra which installs it."""
    title: ClassVar[str]
    """What messages call the framework."""
    library: ClassVar[str]
    """The module that is imported."""
    limits: ClassVar[Mapping[str, str]]
    """The limits that it holds as a policy means them, by its own names."""

    def __init__(self, agent: Any, *, narrow: bool, stream: bool) -> None:
        self._agent = named_object(agent, what="agent")
        self._narrow = narrow
        self._stream = stream
        self._histories: Histories[Any] = Histories()

    async def prepare(self) -> None:
        """Check that the framework is there and that this is its event loop. Raises ProviderUnavailableError."""
        try:
            import_module(self.library)
        except ImportError as error:
            raise ProviderUnavailableError(
                f"{self.title} is not installed; pip install 'proctor[{self.name}]'"
            ) from error
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ProviderUnavailableError(
                f"{self.title} runs on asyncio only; start with `anyio.run(..., backend='asyncio')`"
            ) from None

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy's limits into the framework's."""
        return limit_options(policy, self.limits)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Start the agent; leaving cancels it."""
        await self.prepare()
        async with looping(launch, self._player()) as provider:
            yield provider

    @abstractmethod
    def _player(self) -> Callable[[LoopGate], Awaitable[None]]:
        """What runs the agent under a gate."""

    def _capabilities(self, tools: tuple[Tool, ...], model: str | None, **more: Any) -> Capabilities:
        more |= {"narrow": self._narrow, "compiles": tuple(self.limits), "other_tools": True}
        return loop_capabilities(tools or None, model, **more)
