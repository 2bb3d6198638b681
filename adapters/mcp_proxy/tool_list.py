"""The tools one client was shown, and whether it would be shown others now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .names import Naming
from .visibility import Visibility


class ToolList:
    """What a server offers and what of it its client may see."""

    def __init__(self, naming: Naming, visibility: Visibility) -> None:
        self._naming = naming
        self._visibility = visibility
        self._names: list[str] = []
        self._shown: frozenset[str] | None = None

    def page(self, result: dict[str, Any], *, first: bool) -> dict[str, Any]:
        """A page of the server's list without what could not be called; `first` begins the list anew."""
        tools = [tool for tool in result.get("tools") or () if isinstance(tool, dict) and "name" in tool]
        names = [str(tool["name"]) for tool in tools]
        self._names = names if first else [*self._names, *names]
        self._shown = self._visible(self._names)
        visible = self._visible(names)
        return {**result, "tools": [tool for tool, name in zip(tools, names, strict=True) if name in visible]}

    async def changed(self, seen: int) -> int:
        """Return when other tools could be called than were shown, or told of, last; see `Visibility.moved`."""
        while True:
            seen = await self._visibility.moved(seen)
            visible = self._visible(self._names)
            if self._shown is not None and visible != self._shown:
                self._shown = visible
                return seen

    def _visible(self, names: Sequence[str]) -> frozenset[str]:
        judged = {self._naming.judged(name): name for name in names}
        return frozenset(judged[name] for name in self._visibility.narrow(list(judged)))
