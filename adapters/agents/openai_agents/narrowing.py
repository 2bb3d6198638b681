"""Models that are shown only the tools that could be called now.

The SDK's agents keep every tool: an attempt at one that was not shown is put to the gate like any other call. Where
an agent itself lacks the tool, the SDK ends the run, and nobody judges the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import FunctionTool, Model
from agents.models.interface import ModelProvider

from ..loop import LoopGate
from ..loop.gate import is_forced


class Narrowing:
    """Gives stand-ins of models and providers of models, which share everything with those they stand in for."""

    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate

    def model(self, own: Any) -> Any:
        """The model, shown less; a model's name is its own."""
        if not isinstance(own, Model):
            return own

        def asking(ask: Callable[..., Any]) -> Callable[..., Any]:
            def respond(
                _: Any, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *rest: Any, **more: Any
            ) -> Any:
                shown = self._shown(tools, model_settings)
                return ask(system_instructions, input, model_settings, shown, *rest, **more)

            return respond

        return _stand_in(own, get_response=asking(own.get_response), stream_response=asking(own.stream_response))

    def provider(self, own: ModelProvider) -> Any:
        """The provider, whose models are shown less."""
        return _stand_in(own, get_model=lambda _, name: self.model(own.get_model(name)))

    def _shown(self, tools: Sequence[Any], settings: Any) -> list[Any]:
        if is_forced(settings.tool_choice):
            return list(tools)
        callable_now = set(self._gate.narrow([tool.name for tool in tools if isinstance(tool, FunctionTool)]))
        return [tool for tool in tools if not isinstance(tool, FunctionTool) or tool.name in callable_now]


def _stand_in(own: Any, **methods: Callable[..., Any]) -> Any:
    """An object of a class like that of `own`, with its attributes and other methods."""
    kind = type(own)
    made: Any = object.__new__(type(kind.__name__, (kind,), methods))
    made.__dict__ = own.__dict__
    return made
