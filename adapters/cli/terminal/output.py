"""Text for people and JSON for programs; colour only where it can be seen."""

from __future__ import annotations

import logging
import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output: colour on terminals only; where NO_COLOR is set, plain text, not even bold."""
    from .safe_console import SafeConsole

    out = file or sys.stdout
    plain = not out.isatty()
    return SafeConsole(
        file=out,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=plain,
        width=_width(plain),
    )


def _width(plain: bool) -> int | None:
    """Where nobody sees it, tables are laid out for a hundred columns; a terminal knows its own width."""
    return 100 if plain else None


def say(text: str = "") -> None:
    """Text on standard output, a line or several."""
    from proctor.adapters.kit.values.printable import printable_lines

    sys.stdout.write(printable_lines(text) + "\n")


def say_hanging(out: Console, line: Text, indent: int) -> None:
    """One line; on a terminal what is too long goes on below, indented."""
    from rich.text import Text

    if out.soft_wrap:
        out.print(line)
        return
    head, body = line[:indent], line[indent:]
    for n, part in enumerate(body.wrap(out, max(out.width - indent, 20)) or [Text()]):
        out.print(Text.assemble(head if n == 0 else " " * indent, part), no_wrap=True)


def say_json(value: Any) -> None:
    """One value as a line of JSON, written at once for a reader that follows."""
    from proctor.adapters.kit.values.printable import encoded

    sys.stdout.write(encoded(value) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error: what is not the answer itself."""
    from proctor.adapters.kit.values.printable import printable_lines

    print(printable_lines(text), file=sys.stderr)


class NoteHandler(logging.Handler):
    """Log entries as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


class Progress:
    """How many sessions were judged so far, on one line of a terminal's standard error."""

    EVERY = 200

    def __init__(self) -> None:
        self._shown = 0
        self._seen = sys.stderr.isatty()

    def __call__(self, count: int) -> None:
        if self._seen and count % self.EVERY == 0:
            self._shown = max(self._shown, _over(f"{count:,} sessions judged"))

    def done(self) -> None:
        """Take the line away."""
        if self._shown:
            _over(" " * self._shown)
            _over("")
            self._shown = 0

    def make_way(self) -> None:
        """Take the line away where what comes on standard output would stand behind it."""
        if self._shown and sys.stdout.isatty():
            self.done()


def _over(text: str) -> int:
    """Write over the line of standard error; gives the length."""
    print(f"\r{text}", end="", file=sys.stderr, flush=True)
    return len(text)


def version() -> str:
    """The version of this package, `unknown` where it is run without being installed."""
    from importlib import metadata

    try:
        return metadata.version("proctor")
    except metadata.PackageNotFoundError:
        return "unknown"
