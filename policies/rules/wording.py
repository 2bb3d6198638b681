"""How selectors and figures are said in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..language.selectors import Selector, ToolWhere


def items_of(selector: Any) -> tuple[str | ToolWhere, ...]:
    """The items of a selector."""
    return tuple(selector) if isinstance(selector, tuple | list) else (selector,)


def names(selector: Selector) -> str:
    """A selector in words."""
    return " or ".join(_item(item) for item in items_of(selector))


def plain_names(selector: Selector) -> str:
    """A selector in words, without code marks."""
    return names(selector).replace("`", "")


def chain(tools: Sequence[Selector]) -> str:
    """Selectors in words, one after the other."""
    return " -> ".join(map(names, tools))


def times(n: int) -> str:
    """How often, in words."""
    return "once" if n == 1 else f"{n} times"


def calls(n: int) -> str:
    """So many calls, without the figure where it is one."""
    return "call" if n == 1 else f"{n} calls"


def _item(item: str | ToolWhere) -> str:
    if isinstance(item, str):
        return f"`{item}`"
    shown = item.tool if isinstance(item.tool, str) else "|".join(item.tool)
    return f"`{shown}` (some inputs)" if item.where else f"`{shown}`"
