"""A console that shows no text raw: its own colours reach the terminal, nobody else's escapes do."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from proctor.adapters.kit.values.printable import printable_lines


class SafeConsole(Console):
    """Cleans every piece of text that is about to be shown, whoever rendered it."""

    def on_broken_pipe(self) -> None:
        """Whoever read has gone: that is for the command to settle, not the end of the program."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, their text printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
