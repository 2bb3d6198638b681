"""OpenAIAgentsAdapter: runs of an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import UsageError

from ...kit.function_tools import OPENAI_AGENTS
from ..loop.adapter import FrameworkAdapter
from ..loop.gate import LoopGate

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


class OpenAIAgentsAdapter(FrameworkAdapter):
    """Runs prompts with an agent of the OpenAI Agents SDK. The calls of its functions, custom tools, shells,
    patches and MCP servers are gated, and so are those of agents that it hands over to or uses as tools. On
    asyncio only.

    Args:
        agent: the agent, or its name as `module:name`; it is not changed.
        run_config: the caller's RunConfig; tracing is switched off.
        narrow: offer the model only the tools that it could call now; calls of other tools are denied.
        stream: report text as it is written; the model must be able to stream.
        run_options: anything else for `Runner.run`, such as `context`, `hooks` or `session`.
    """

    name = "openai-agents"
    title = "the OpenAI Agents SDK"
    library = "agents"
    limits = {"max_turns": "max_turns"}

    def __init__(
        self, agent: Any, *, run_config: Any = None, narrow: bool = True, stream: bool = False, **run_options: Any
    ) -> None:
        super().__init__(agent, narrow=narrow, stream=stream)
        if not hasattr(self._agent, "tools") or not hasattr(self._agent, "handoffs"):
            raise UsageError(f"`{self._agent}` is not an agent of the OpenAI Agents SDK: it has no tools")
        for option in run_options:
            if option not in RUN_OPTIONS:
                raise UsageError(f"`Runner.run` takes no `{option}`")
        self._own = {**run_options, "run_config": run_config}

    @property
    def capabilities(self) -> Capabilities:
        """The SDK's capabilities; hosted tools and computers cannot be held, because they never ask.

        A function tool has a portable name if its name and its parameters tell what it does.
        """
        model = getattr(self._own.get("run_config"), "model", None) or self._agent.model
        name = model if isinstance(model, str) else getattr(model, "model", None)
        try:
            from .gated_agents import holds_every_call, tools_of
        except ImportError:  # what is not installed holds nothing; `prepare` says so
            return self._capabilities(OPENAI_AGENTS, name, gate="some", rewrite=False)
        gate = "all" if holds_every_call(self._agent) else "some"
        return self._capabilities(tools_of(self._agent), name, gate=gate, rewrite=False)

    def _player(self) -> Callable[[LoopGate], Awaitable[None]]:
        from .session import OpenAIAgentsSession

        return OpenAIAgentsSession(self._agent, self._own, self._histories, self._narrow, self._stream).play
