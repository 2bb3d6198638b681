"""FunctionAdapter: an agent loop that is a function."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

from proctor.policies.stream.calls import Capabilities
from proctor.policies.stream.tools import Tool
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import Launch, Provider

from ...kit.launch_options import NoLaunchOptions
from ...kit.processes.environment import home_of
from ...kit.tool_names import KNOWN
from ...kit.tool_names.frameworks import MOSTLY
from ...kit.tool_names.given import tools_given
from ...kit.values.named_object import named_object
from .loop_gate import LoopGate
from .running import looping

Loop: TypeAlias = Callable[[LoopGate, str], Awaitable[Any]]
NAME: Final = "function"


class FunctionAdapter(NoLaunchOptions):
    """Runs prompts with your own loop, `async def loop(gate, prompt)`; its result is the output.

    Args:
        loop: the function, or its name as `module:name`.
        tools: the tools it calls, if known: names, functions, tools of a framework, or schemas as given to
            models.
        model: the model it uses, if known.

    Raises:
        UsageError: there is no such function.
    """

    name = NAME

    def __init__(self, loop: Loop | str, *, tools: Sequence[Any] | None = None, model: str | None = None) -> None:
        found = named_object(loop, what="loop")
        if not callable(found):
            raise UsageError(f"loop `{loop}` is not a function")
        self._loop: Loop = found
        self._tools = None if tools is None else tools_given(tools)
        self._model = model

    @property
    def capabilities(self) -> Capabilities:
        """What a loop can do that calls its tools through the gate."""
        return loop_capabilities(self._tools, self._model)

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start the loop; leaving cancels it."""

        async def job(gate: LoopGate) -> None:
            gate.output = await self._loop(gate, launch.prompt)
            await gate.complete()

        return looping(launch, job)


def loop_capabilities(tools: tuple[Tool, ...] | None, model: str | None, **more: Any) -> Capabilities:
    """What any loop can do that calls its tools through the gate, but for what `more` says of this one.

    A tool goes by the portable name of what it does where its name and what it takes tell.
    """
    can: dict[str, Any] = {"gate": "all", "rewrite": True, "usage": "per_turn", "narrow": True, **more}
    can |= {"workspace": os.path.abspath(os.curdir), "home": home_of(os.environ)}
    return Capabilities(tools=tools, mostly=MOSTLY, elsewhere=KNOWN, model=model, **can)
