"""Text for people and JSON for programs; colour only where it can be seen."""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from ..kit.display_text import encoded, escape_control, escape_control_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from proctor.supervisor.ports.stored_types import ApprovalRequest

    from ..evaluate.judge import FailOn, SessionReport
    from ..evaluate.reports import Case
    from ..operations.views import ApprovalView, BlockView
    from ..traces import TraceSession


def console(file: IO[str] | None = None, *, tables: bool = False) -> Console:
    """A console on standard output: colour on terminals only; where NO_COLOR is set, plain text, not even bold.

    `tables`: elsewhere than on a terminal, a row is one line, however long.
    """
    out = file or sys.stdout
    plain = not out.isatty()
    return _safe_console()(
        file=out,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=plain,
        width=(_MOST_CELLS if tables else 100) if plain else None,  # a terminal has its own
    )


_MOST_CELLS = 1000
"""Of a screen, in a row or a column."""
_UNKNOWN = (80, 25)
"""Cells of a screen of unknown size, which is reported as 0."""


@functools.cache
def _safe_console() -> type[Console]:
    """The class of the console, loaded when it is first needed."""
    from rich.console import Console, ConsoleDimensions
    from rich.segment import Segment

    class SafeConsole(Console):
        """Escapes control characters in every piece of text that is about to be shown, whoever rendered it; draws no
        larger screen than there is, whatever the terminal says, and none without room for text.
        """

        @property  # type: ignore[misc]
        def size(self) -> ConsoleDimensions:
            sides = zip(super().size, _UNKNOWN, strict=True)
            return ConsoleDimensions(*(min(cells or unknown, _MOST_CELLS) for cells, unknown in sides))

        def on_broken_pipe(self) -> None:
            """Let the command handle a reader that has left, instead of ending the program."""
            raise BrokenPipeError

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(escape_control_lines(segment.text), segment.style)

    return SafeConsole


def echo(text: str = "") -> None:
    """Print text on standard output."""
    sys.stdout.write(escape_control_lines(text) + "\n")


def echo_hanging(out: Console, line: Text, indent: int) -> None:
    """Print one line; on a terminal, one that is too long continues below, indented."""
    from rich.text import Text

    if out.soft_wrap:
        out.print(line)
        return
    head, body = line[:indent], line[indent:]
    for n, part in enumerate(body.wrap(out, max(out.width - indent, 20)) or [Text()]):
        out.print(Text.assemble(head if n == 0 else " " * indent, part), no_wrap=True)


def echo_json(value: Any) -> None:
    """Print one value as a line of JSON, at once."""
    sys.stdout.write(encoded(value) + "\n")
    sys.stdout.flush()


def echo_rows(rows: Iterable[tuple[Any, str]], *, as_json: bool, none: str = "") -> None:
    """Print each row as a line of JSON, or in words; `none` is the text for people if there is no row."""
    for data, words in rows:
        if as_json:
            echo_json(data)
        else:
            echo(words)
        none = ""
    if none and not as_json:
        note(none)


def note(text: str) -> None:
    """Print one line on standard error."""
    print(escape_control_lines(text), file=sys.stderr)


class NoteHandler(logging.Handler):
    """Log entries as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


class StatusLine:
    """One line of a terminal's standard error, which is written over and erased."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, text: str) -> None:
        """Show a text in place of the last one, on a terminal."""
        if sys.stderr.isatty():
            self._shown = max(self._shown, len(text))
            print(f"\r{text.ljust(self._shown)}", end="", file=sys.stderr, flush=True)

    def erase(self) -> None:
        if self._shown:
            print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class Progress(StatusLine):
    """How many sessions were evaluated so far."""

    EVERY = 200

    def __call__(self, count: int) -> None:
        if count % self.EVERY == 0:
            self.show(f"{count:,} sessions evaluated")

    def clear(self) -> None:
        """Erase the line if standard output goes to the same terminal."""
        if sys.stdout.isatty():
            self.erase()


def version() -> str:
    """The version of this package, `unknown` where it is run without being installed."""
    from importlib import metadata

    try:
        return metadata.version("proctor")
    except metadata.PackageNotFoundError:
        return "unknown"


def who_asks(request: ApprovalRequest) -> Iterator[tuple[str, str]]:
    """Each rule that requests an approval, with its message and its author's reason."""
    from proctor.policies.events.calls import rule_name

    for violation in request.violations:
        tag = f" ({violation.reason})" if violation.reason else ""
        yield (
            escape_control(f"{rule_name(violation.policy, violation.rule)} ({violation.kind})"),
            escape_control(violation.message + tag),
        )
    if not request.violations:
        yield (
            escape_control(f"{request.policy_name} ({request.violation_kind})"),
            escape_control(request.reason or ""),
        )


def approval_details(request: ApprovalView) -> Iterator[str]:
    """The whole call that waits, why a person is asked, and how the request is answered."""
    from ..operations.timeline import STARTER_UNKNOWN

    yield f"call     {escape_control(request.call.name)}"
    yield from (f"  {escape_control(name)}: {encoded(value)}" for name, value in request.call.input.items())
    for rule, why in who_asks(request):
        yield f"asked by {rule}"
        yield f"why      {why}"
    if request.approvers is not None:
        yield f"may say  {', '.join(escape_control(name) for name in request.approvers) or 'nobody'}"
    if request.started_by is not None:
        yield f"not by   {escape_control(request.started_by) or f'anyone: {STARTER_UNKNOWN}'}"
    if request.asks_itself:
        yield "answer   in the agent's terminal, where it is asked"
    if request.lost:
        yield "answer   nobody can: nobody goes on with the run, and `proctor kill` ends it"
    if request.like is not None:
        yield f"its like {escape_control(request.like.about)}"
    if request.expires_at:
        yield f"expires  {request.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def in_words(block: BlockView) -> str:
    why = f": {block.reason}" if block.reason else ""
    return f"{block.effect}, frozen by `{block.by}`{why}"


T = TypeVar("T")
output_parameter = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to this file, replacing it, instead of standard output.",
)
"""The option alone, for a command that uses `written_to` or `replaced` itself."""


def output_option(command: Callable[..., T]) -> Callable[..., T]:
    """The option, for a command whose whole standard output goes to the file."""

    @functools.wraps(command)
    def writing(*args: Any, output: str | None, **named: Any) -> T:
        with written_to(output):
            return command(*args, **named)

    return output_parameter(writing)


@contextmanager
def written_to(output: str | None) -> Iterator[None]:
    """Write the block's output to that file; without one, and for `-`, to standard output, also once its reader has
    left: the exit code and the reports of the block still count. Raises UsageError before the block is entered if the
    file cannot be written.
    """
    if output is None or output == "-":
        with redirect_stdout(lenient(sys.stdout, BrokenPipeError)):
            yield
            sys.stdout.flush()
        return
    with replaced(output) as file:
        printed = io.TextIOWrapper(file, "utf-8", "backslashreplace", write_through=True)
        with redirect_stdout(printed):
            yield
        printed.detach()


class _Lenient(io.FileIO):
    def __init__(self, file: int, ignored: type[OSError]) -> None:
        super().__init__(file, "w", closefd=False)
        self._ignored = ignored

    def write(self, data: Any, /) -> int:
        with suppress(self._ignored):
            return super().write(data) or len(data)
        return len(data)


def lenient(stream: Any, ignored: type[OSError]) -> Any:
    """The program's own output, or errors, as a stream that drops what it cannot write because of an error of that
    kind; any other stream as it is.
    """
    if stream not in (sys.__stdout__, sys.__stderr__) or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return _text_like(stream, _Lenient(stream.fileno(), ignored))


def _text_like(stream: io.TextIOWrapper, raw: io.FileIO) -> io.TextIOWrapper:
    """A stream for text that writes to `raw` and holds no line back that the other would not (`PYTHONUNBUFFERED`)."""
    by_line = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=by_line)


class _Queued(io.FileIO):
    """Hands what is written to a thread, so that nobody waits for a reader; raises what went wrong before, unless it
    is `finished`.
    """

    def __init__(self, file: int) -> None:
        super().__init__(file, "w", closefd=False)
        self.finished = False
        self._error: OSError | None = None
        self._queue: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        threading.Thread(target=self._write_all, name="proctor-output", daemon=True).start()

    def write(self, data: Any, /) -> int:
        if self._error is not None and not self.finished:
            raise self._error
        self._queue.put(bytes(data))
        return len(data)

    def wait_written(self) -> None:
        """Wait until everything has been written. Raises OSError: some of it was not."""
        written = threading.Event()
        self._queue.put(written)
        written.wait()
        if self._error is not None:
            raise self._error

    def _write_all(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            elif self._error is None:
                try:
                    while item:
                        item = item[super().write(item) or 0 :]
                except OSError as error:
                    self._error = error


@contextmanager
def queued_output() -> Iterator[None]:
    """Within the block, nothing waits for the reader of standard output, who may be a pager or a stopped terminal; at
    its end, everything is written, as far as somebody reads.
    """
    stream = sys.stdout
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        yield
        return
    stream.flush()
    raw = _Queued(stream.fileno())
    queued = _text_like(stream, raw)
    try:
        with redirect_stdout(queued):
            yield
    finally:
        try:
            with suppress(BrokenPipeError):
                queued.flush()
                raw.wait_written()
        finally:
            raw.finished = True


async def wait_written() -> None:
    """Wait until the reader of standard output has been sent all of it, without holding up what goes on."""
    import anyio

    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Queued):
        sys.stdout.flush()
        await anyio.to_thread.run_sync(raw.wait_written, abandon_on_cancel=True)


@contextmanager
def replaced(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that is put in place when the block ends well. Raises UsageError where there can be none."""
    from ..kit.values import atomic_write

    folder = Path(path).parent
    with ExitStack() as stack:
        if _is_database(Path(path)):
            raise click.UsageError(f"`{path}` is a database, as a store is one; choose another file")
        try:
            file = stack.enter_context(atomic_write(path))
        except OSError as error:
            from proctor.policies.errors import os_words

            why = f"there is no folder `{folder}`" if not folder.is_dir() else os_words(error)
            raise click.UsageError(f"`{path}` cannot be written: {why}") from error
        yield file


def _is_database(path: Path) -> bool:
    from ..stores.sqlite.file import MAGIC, read_header

    try:
        return path.is_file() and read_header(path).startswith(MAGIC)
    except OSError:
        return False


def report_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--junit` and `--sarif`: reports for other programs beside what is printed; see `ReportFiles`."""
    for option, what in (("--sarif", "SARIF 2.1.0"), ("--junit", "JUnit XML")):
        path = click.Path(dir_okay=False)
        command = click.option(option, type=path, metavar="FILE", help=f"Also write {what}.")(command)
    return command


class ReportFiles:
    """The reports that a command's options name, written at its end.

    Raises UsageError before anything is evaluated if there is no folder for one.
    """

    def __init__(self, junit: str | None, sarif: str | None, fail_on: FailOn = "deny") -> None:
        from ..evaluate.reports import JUnitReport, SarifReport

        for file in (junit, sarif):
            if file and not Path(file).parent.is_dir():
                raise click.UsageError(f"`{file}` cannot be written: there is no folder `{Path(file).parent}`")
        self._wanted: list[tuple[str, JUnitReport | SarifReport, Callable[[], bytes]]] = []
        if junit:
            xml = JUnitReport(fail_on=fail_on)
            self._wanted.append((junit, xml, xml.xml))
        if sarif:
            json = SarifReport(version())
            self._wanted.append((sarif, json, json.json))

    def add(self, session: TraceSession, found: SessionReport) -> None:
        for _, report, _ in self._wanted:
            report.add(session, found)

    def add_case(self, case: Case) -> None:
        for _, report, _ in self._wanted:
            report.add_case(case)

    def write(self) -> None:
        """Write each report, replacing its file."""
        for path, _, document in self._wanted:
            with replaced(path) as file:
                file.write(document())
