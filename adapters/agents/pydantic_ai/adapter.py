"""PydanticAIAdapter: runs of a pydantic-ai agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import UsageError

from ...kit.function_tools import PYDANTIC_AI, own_tools
from ..loop.adapter import FrameworkAdapter
from ..loop.gate import LoopGate

LIMITS: Final = {
    "max_total_tokens": "total_tokens_limit",
    "max_input_tokens": "input_tokens_limit",
    "max_output_tokens": "output_tokens_limit",
    "max_turns": "request_limit",
}
HARMLESS: Final = ("tool_search",)
"""Native tools that only find other tools; every agent has this one."""


class PydanticAIAdapter(FrameworkAdapter):
    """Runs prompts with an agent of pydantic-ai and gates every call of its tools. On asyncio only.

    Args:
        agent: the agent, or its name as `module:name`; it is not changed.
        deps: the agent's dependencies.
        usage_limits: the caller's UsageLimits; a policy only tightens them.
        sub_agents: agents that its tools run; their tools are gated too.
        narrow: offer the model only the tools that it could call now; calls of other tools are denied.
        stream: report text as it is written; the model must be able to stream.
        run_options: anything else for `agent.run`, such as `model`, `toolsets` or `message_history`.
    """

    name = title = "pydantic-ai"
    library = "pydantic_ai"
    limits = LIMITS

    def __init__(
        self,
        agent: Any,
        *,
        deps: Any = None,
        usage_limits: Any = None,
        sub_agents: Sequence[Any] = (),
        narrow: bool = True,
        stream: bool = False,
        **run_options: Any,
    ) -> None:
        super().__init__(agent, narrow=narrow, stream=stream)
        if not callable(getattr(self._agent, "run", None)):
            raise UsageError(f"`{self._agent}` is not an agent of pydantic-ai: it has no `run`")
        parameters = inspect.signature(self._agent.run).parameters
        for option in run_options:
            if option not in parameters:
                raise UsageError(f"an agent's `run` takes no `{option}`")
        self._own = {**run_options, "deps": deps, "usage_limits": usage_limits}
        self._sub_agents = tuple(sub_agents)

    @property
    def capabilities(self) -> Capabilities:
        """The framework's capabilities; tools that the model's provider runs itself cannot be held.

        A function has a portable name if its name and its parameters tell what it does; a tool of an MCP server
        or of another toolset, if its name and its input do.
        """
        native = self._native_tools()
        tools = own_tools(self._functions(), PYDANTIC_AI, native)
        return self._capabilities(tools, self._model_name(), gate="some" if native else "all")

    def _player(self) -> Callable[[LoopGate], Awaitable[None]]:
        from .session import PydanticAISession

        return PydanticAISession(
            self._agent, self._own, self._histories, self._sub_agents, self._narrow, self._stream
        ).play

    def _model_name(self) -> str | None:
        model = self._own.get("model") or getattr(self._agent, "model", None)
        name = model if isinstance(model, str) else getattr(model, "model_name", None)
        return name.partition(":")[2] or name if isinstance(name, str) else None

    def _functions(self) -> Iterator[tuple[str, Any, str]]:
        """The tools that are functions, each with its name, its schema, and the path in its input that has the
        schema.
        """
        sets = [*(self._own.get("toolsets") or ())]
        for agent in (self._agent, *self._sub_agents):
            sets += getattr(agent, "toolsets", ())
        for each in _unwrapped(sets):
            for tool in getattr(each, "tools", {}).values():
                schema = tool.function_schema
                yield tool.name, schema.json_schema, _below(schema)

    def _native_tools(self) -> set[str]:
        """The kinds of the tools that the model provider runs."""
        agents = (self._agent, *self._sub_agents)
        roots = (getattr(each, "root_capability", None) for each in agents)
        given = [each for each in (*(self._own.get("capabilities") or ()), *roots) if each is not None]
        kinds = {getattr(tool, "kind", "") for each in given for tool in each.get_native_tools()}
        return kinds.difference(HARMLESS)


def _unwrapped(toolsets: Iterable[Any]) -> Iterator[Any]:
    """Toolsets and those inside them, except inside of toolsets that rename tools."""
    for each in toolsets:
        yield each
        if hasattr(each, "toolsets"):
            yield from _unwrapped(each.toolsets)
        elif hasattr(each, "wrapped") and not hasattr(each, "prefix") and not hasattr(each, "name_map"):
            yield from _unwrapped([each.wrapped])


def _below(schema: Any) -> str:
    """The path in a function's input that its schema describes, as the schema omits a single object parameter."""
    alone = getattr(schema, "single_arg_name", None)
    return f"$.{alone}" if alone else "$"
