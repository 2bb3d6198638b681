"""`-o FILE`: what a command prints, in a file that is there as a whole or not at all."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, Any, TypeVar

import click

T = TypeVar("T")

output_parameter = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to this file, replacing it, instead of standard output.",
)
"""The option alone, for a command that says itself what goes to the file: see `written_to` and `replaced`."""


def output_option(command: Callable[..., T]) -> Callable[..., T]:
    """The option, for a command whose whole standard output goes to the file."""

    @functools.wraps(command)
    def writing(*args: Any, output: str | None, **named: Any) -> T:
        with written_to(output):
            return command(*args, **named)

    return output_parameter(writing)


@contextmanager
def written_to(output: str | None) -> Iterator[None]:
    """What the block prints goes to that file; without one, and for `-`, to standard output. Raises UsageError
    before the block is entered where there can be no such file.
    """
    if output is None or output == "-":
        yield
        return
    with replaced(output) as file:
        printed = _Printed(file, "utf-8", "backslashreplace", write_through=True)
        with redirect_stdout(printed):
            yield
        printed.detach()
        if printed.error is not None:
            raise printed.error


@contextmanager
def replaced(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that is put in place when the block ends well. Raises UsageError where there can be none."""
    from proctor.adapters.kit.whole_file import whole_file

    folder = Path(path).parent
    with ExitStack() as stack:
        try:
            file = stack.enter_context(whole_file(path))
        except OSError as error:
            why = f"there is no folder `{folder}`" if not folder.is_dir() else (error.strerror or str(error)).lower()
            raise click.UsageError(f"`{path}` cannot be written: {why}") from error
        yield file


class _Printed(io.TextIOWrapper):
    """What is printed into a file. An error is kept, even if the code that printed ignores it."""

    error: OSError | None = None

    def write(self, text: str, /) -> int:
        with self._remembering():
            return super().write(text)

    def flush(self) -> None:
        with self._remembering():
            super().flush()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            raise
