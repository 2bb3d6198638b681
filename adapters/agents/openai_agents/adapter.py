"""OpenAIAgentsAdapter: runs of an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities
from proctor.policies.stream.tools import Tool
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapters import Launch, LaunchOptions, Provider

from ...kit.processes.environment import home_of
from ...kit.tool_names import offering
from ...kit.tool_names.frameworks import MOSTLY, OPENAI_AGENTS
from ...kit.values.named_object import named_object
from ..loop.histories import Histories
from ..loop.running import looping
from .options import COMPILES, compile_options

RUN_OPTIONS = frozenset(
    (
        "context",
        "max_turns",
        "hooks",
        "run_config",
        "error_handlers",
        "previous_response_id",
        "auto_previous_response_id",
        "conversation_id",
        "session",
    )
)
"""What `Runner.run` takes besides the agent and the prompt."""


class OpenAIAgentsAdapter:
    """Runs prompts with an agent of the OpenAI Agents SDK: the calls of its functions, custom tools, shells, patches
    and MCP servers are gated, those of agents it hands over to and of agents used as tools too. On asyncio only.

    Args:
        agent: the agent, or its name as `module:name`; it is not changed.
        run_config: the caller's RunConfig; tracing is switched off.
        narrow: offer the model only the tools that could be called now.
        stream: report text as it is written; the model must be able to stream.
        run_options: anything else for `Runner.run`, such as `context`, `hooks` or `session`.
    """

    name = "openai-agents"

    def __init__(
        self, agent: Any, *, run_config: Any = None, narrow: bool = False, stream: bool = False, **run_options: Any
    ) -> None:
        self._agent = named_object(agent, what="agent")
        if not hasattr(self._agent, "tools") or not hasattr(self._agent, "handoffs"):
            raise UsageError(f"`{self._agent}` is not an agent of the OpenAI Agents SDK: it has no tools")
        for option in run_options:
            if option not in RUN_OPTIONS:
                raise UsageError(f"`Runner.run` takes no `{option}`")
        self._own = {**run_options, "run_config": run_config}
        self._narrow = narrow
        self._stream = stream
        self._histories: Histories[Any] = Histories()

    @property
    def capabilities(self) -> Capabilities:
        """What the SDK can do; hosted tools and computers ask nobody and cannot be held.

        A function tool goes by the portable name of what it does where its name and its parameters tell.
        """
        model = getattr(self._own.get("run_config"), "model", None) or self._agent.model
        return Capabilities(
            gate="all" if self._holds_every_call() else "some",
            rewrite=False,
            usage="per_turn",
            reports_cost=False,
            cancel_kills_children=False,
            resume=False,
            narrow=self._narrow,
            compiles=COMPILES,
            **offering(self._tools(), None),
            mostly=MOSTLY,
            model=model if isinstance(model, str) else getattr(model, "model", None),
            workspace=os.path.abspath(os.curdir),
            home=home_of(os.environ),
        )

    async def prepare(self) -> None:
        """Check that the SDK is there and that this is its event loop. Raises ProviderUnavailableError."""
        try:
            import agents  # noqa: F401
        except ImportError as error:
            raise ProviderUnavailableError(
                "the OpenAI Agents SDK is not installed; pip install 'proctor[openai-agents]'"
            ) from error
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ProviderUnavailableError(
                "the OpenAI Agents SDK runs on asyncio only; start with `anyio.run(..., backend='asyncio')`"
            ) from None

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy's `max_turns` into the SDK's."""
        return compile_options(policy)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Start the agent; leaving cancels it."""
        await self.prepare()
        from .session import OpenAIAgentsSession

        session = OpenAIAgentsSession(
            self._agent, self._own, self._histories, narrows=self._narrow, streams=self._stream
        )
        async with looping(launch, session.play) as provider:
            yield provider

    def _tools(self) -> tuple[Tool, ...]:
        try:
            from .gated_agents import tools_of
        except ImportError:
            return OPENAI_AGENTS
        return tools_of(self._agent)

    def _holds_every_call(self) -> bool:
        try:
            from .gated_agents import holds_every_call
        except ImportError:  # what is not installed holds nothing; `prepare` says so
            return False
        return holds_every_call(self._agent)
