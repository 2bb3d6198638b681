"""PydanticAIAdapter: runs of a pydantic-ai agent."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import Capabilities
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.ports.adapters import Launch, LaunchOptions, Provider

from ...kit.processes.environment import home_of
from ...kit.tool_names import offering
from ...kit.tool_names.frameworks import MOSTLY, PYDANTIC_AI, own_tools
from ...kit.values.named_object import named_object
from ..loop.histories import Histories
from ..loop.running import looping
from .options import LIMITS, compile_options

HARMLESS: Final = ("tool_search",)
"""Native tools that do nothing but find other tools; every agent has this one."""


class PydanticAIAdapter:
    """Runs prompts with an agent of pydantic-ai, every call of its tools gated. On asyncio only.

    Args:
        agent: the agent, or its name as `module:name`; it is not changed.
        deps: the agent's dependencies.
        usage_limits: the caller's UsageLimits; a policy only tightens them.
        sub_agents: agents that its tools run: their tools are gated too.
        narrow: offer the model only the tools that could be called now.
        stream: report text as it is written; the model must be able to stream.
        run_options: anything else for `agent.run`, such as `model`, `toolsets` or `message_history`.
    """

    name = "pydantic-ai"

    def __init__(
        self,
        agent: Any,
        *,
        deps: Any = None,
        usage_limits: Any = None,
        sub_agents: Sequence[Any] = (),
        narrow: bool = False,
        stream: bool = False,
        **run_options: Any,
    ) -> None:
        self._agent = named_object(agent, what="agent")
        if not callable(getattr(self._agent, "run", None)):
            raise UsageError(f"`{self._agent}` is not an agent of pydantic-ai: it has no `run`")
        parameters = inspect.signature(self._agent.run).parameters
        for option in run_options:
            if option not in parameters:
                raise UsageError(f"an agent's `run` takes no `{option}`")
        self._own = {**run_options, "deps": deps, "usage_limits": usage_limits}
        self._sub_agents = tuple(sub_agents)
        self._narrow = narrow
        self._stream = stream
        self._histories: Histories[Any] = Histories()

    @property
    def capabilities(self) -> Capabilities:
        """What the framework can do; tools that the model's provider runs by itself cannot be held.

        A tool that is a function goes by the portable name of what it does where its name and its parameters tell,
        and one of an MCP server or of another toolset where its name and its input do.
        """
        return Capabilities(
            gate="some" if self._native_tools() else "all",
            rewrite=True,
            usage="per_turn",
            reports_cost=False,
            cancel_kills_children=False,
            resume=False,
            narrow=self._narrow,
            compiles=tuple(LIMITS),
            **offering(own_tools(self._functions(), PYDANTIC_AI, self._native_tools()), None),
            mostly=MOSTLY,
            model=self._model_name(),
            workspace=os.path.abspath(os.curdir),
            home=home_of(os.environ),
        )

    async def prepare(self) -> None:
        """Check that the framework is there and that this is its event loop. Raises ProviderUnavailableError."""
        try:
            import pydantic_ai  # noqa: F401
        except ImportError as error:
            raise ProviderUnavailableError(
                "pydantic-ai is not installed; pip install 'proctor[pydantic-ai]'"
            ) from error
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ProviderUnavailableError(
                "pydantic-ai runs on asyncio only; start with `anyio.run(..., backend='asyncio')`"
            ) from None

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy's limits into UsageLimits."""
        return compile_options(policy)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Start the agent; leaving cancels it."""
        await self.prepare()
        from .session import PydanticAISession

        session = PydanticAISession(
            self._agent,
            self._own,
            self._histories,
            sub_agents=self._sub_agents,
            narrows=self._narrow,
            streams=self._stream,
        )
        async with looping(launch, session.play) as provider:
            yield provider

    def _model_name(self) -> str | None:
        model = self._own.get("model") or getattr(self._agent, "model", None)
        name = model if isinstance(model, str) else getattr(model, "model_name", None)
        return name.partition(":")[2] or name if isinstance(name, str) else None

    def _functions(self) -> Iterator[tuple[str, Any, str]]:
        """The tools that are functions: the name of each, the schema of its input, and where the input has that."""
        sets = [*(self._own.get("toolsets") or ())]
        for agent in (self._agent, *self._sub_agents):
            sets += getattr(agent, "toolsets", ())
        for each in _unwrapped(sets):
            for tool in getattr(each, "tools", {}).values():
                schema = tool.function_schema
                yield tool.name, schema.json_schema, _below(schema)

    def _native_tools(self) -> set[str]:
        """The kinds of the tools that the model's provider runs."""
        agents = (self._agent, *self._sub_agents)
        roots = (getattr(each, "root_capability", None) for each in agents)
        given = [each for each in (*(self._own.get("capabilities") or ()), *roots) if each is not None]
        kinds = {getattr(tool, "kind", "") for each in given for tool in each.get_native_tools()}
        return kinds.difference(HARMLESS)


def _unwrapped(toolsets: Iterable[Any]) -> Iterator[Any]:
    """Toolsets with those inside of them, but for those that rename what is inside."""
    for each in toolsets:
        yield each
        if hasattr(each, "toolsets"):
            yield from _unwrapped(each.toolsets)
        elif hasattr(each, "wrapped") and not hasattr(each, "prefix") and not hasattr(each, "name_map"):
            yield from _unwrapped([each.wrapped])


def _below(schema: Any) -> str:
    """Where a function's input has what its schema describes: one parameter that is an object is left out of it."""
    alone = getattr(schema, "single_arg_name", None)
    return f"$.{alone}" if alone else "$"
