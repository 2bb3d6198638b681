"""A call's arguments as its tool will get them, decoded strictly and validated as the SDK does."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from agents import FunctionTool
from agents.function_schema import FuncSchema, function_schema

from ...kit.values.jsonable import is_finite, plain


class UnreadableArgumentsError(ValueError):
    """Arguments that a tool could read differently from the gate; the text is for the model."""


def judged_input(tool: FunctionTool | None, text: str) -> dict[str, Any]:
    """The input that the gate judges: for a tool made of a Python function, what the function is called with.

    Args:
        tool: the tool; None for one of an MCP server, which gets the arguments as they are.
        text: the arguments as the model wrote them.

    Raises:
        UnreadableArgumentsError: no JSON object, a key given twice, a number that is not finite, or values
            that the function does not take.
    """
    given = _decoded(text)
    function = getattr(tool, "__wrapped__", None)
    found = given if function is None else _validated(function, given)
    if not is_finite(found):
        raise UnreadableArgumentsError("a number in the arguments is not finite")
    judged: dict[str, Any] = plain(found)
    return judged


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}", object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableArgumentsError(f"the arguments are not a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableArgumentsError("the arguments are not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"`{name}` is not JSON")


def _validated(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    schema = _schema(function)
    try:
        values = vars(schema.params_pydantic_model(**given))
    except (ValueError, TypeError) as error:
        raise UnreadableArgumentsError(f"the arguments do not fit the tool: {error}") from error
    found: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(schema.signature.parameters.items()):
        if schema.takes_context and index == 0:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            found = {**(values.get(name) or {}), **found}
        else:
            found[name] = values.get(name)
    return found


@functools.lru_cache(maxsize=1024)
def _schema(function: Callable[..., Any]) -> FuncSchema:
    return function_schema(function, use_docstring_info=False, strict_json_schema=False)
