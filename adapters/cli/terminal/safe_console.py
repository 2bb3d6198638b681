"""A console that shows no text raw: its own colours reach the terminal, escapes of others do not."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from proctor.adapters.kit.values.printable import printable_lines


class SafeConsole(Console):
    """Cleans every piece of text that is about to be shown, whoever rendered it."""

    def on_broken_pipe(self) -> None:
        """The reader has gone: the command deals with that; the program does not end."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, their text printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
