"""A Python call as a tool's input, and an input as a Python call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from proctor.supervisor.errors import UsageError

from ...kit.values.jsonable import plain


def with_objects(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed input, with the Python objects of `values` wherever both are equal."""
    before = plain(values)
    return {
        name: values[name] if name in values and before[name] == value else value for name, value in given.items()
    }


class Arguments:
    """The arguments of one call of a function, by parameter name, defaults included."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._bound = inspect.signature(function).bind(*args, **kwargs)
        self._bound.apply_defaults()
        self._gathered = next(
            (p.name for p in self._bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD), None
        )

    def as_input(self) -> dict[str, Any]:
        """The tool's input as JSON; what `**kwargs` collected is on the same level as the rest."""
        named = dict(self._bound.arguments)
        more = named.pop(self._gathered, {}) if self._gathered else {}
        found: dict[str, Any] = plain({**more, **named})
        return found

    def change(self, tool_input: Mapping[str, Any]) -> None:
        """Take the values of another input; unchanged ones keep their Python objects.

        Raises:
            UsageError: the function has no such parameter.
        """
        before = self.as_input()
        for name, value in tool_input.items():
            if name in before and before[name] == value:
                continue
            if name in self._bound.signature.parameters:
                self._bound.arguments[name] = value
            elif self._gathered:
                self._bound.arguments[self._gathered][name] = value
            else:
                raise UsageError(f"the function has no parameter `{name}`")

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._bound.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._bound.kwargs
