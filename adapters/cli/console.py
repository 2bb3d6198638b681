"""The console of the commands; a command that prints plain lines does not load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from ..kit.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType


class SafeConsole(Console):
    """Cleans every piece of text that is about to be shown, whoever rendered it."""

    def on_broken_pipe(self) -> None:
        """The reader has gone: the command deals with that; the program does not end."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, their text printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
