"""Text for people and JSON for programs; neither is ever colour where nobody can see it."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output: colour on terminals only, and not where NO_COLOR says so."""
    from rich.console import Console

    out = file or sys.stdout
    plain = not out.isatty()
    return Console(file=out, highlight=False, markup=False, emoji=False, soft_wrap=plain, width=_width(plain))


def _width(plain: bool) -> int | None:
    """Where nobody sees it, tables are laid out for a hundred columns; a terminal knows its own width."""
    return 100 if plain else None


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """One value as a line of JSON, written at once so that who reads along sees it."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error: what is not the answer itself."""
    print(text, file=sys.stderr)


class Progress:
    """How many sessions were judged so far, on one line of a terminal's standard error."""

    EVERY = 200

    def __init__(self) -> None:
        self._shown = False
        self._seen = sys.stderr.isatty()

    def __call__(self, count: int) -> None:
        if self._seen and count % self.EVERY == 0:
            self._shown = True
            print(f"\r{count:,} sessions judged", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def version() -> str:
    """The version of this package, `unknown` where it is run without being installed."""
    from importlib import metadata

    try:
        return metadata.version("proctor")
    except metadata.PackageNotFoundError:
        return "unknown"
