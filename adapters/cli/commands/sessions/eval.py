"""`eval`: recorded sessions judged by a policy."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common import check_format, context_option, fail_on_option, format_option, json_option, policy_option
from ...exits import FINE, VIOLATED
from ...output_file import output_option, replaced
from ...terminal.output import Progress, console, say_hanging, version

if TYPE_CHECKING:
    from rich.text import Text

    from proctor.adapters.evaluate import SessionReport
    from proctor.adapters.evaluate.results import FailOn
    from proctor.adapters.traces import TraceSession

_HEAD = re.compile(r"  [a-z]+: +|  [> ] *\d+\. ")
"""How a line of a failure begins: the name of a field, or the number of a call."""
SHOWN = 20
"""How many failures are shown in full unless more are asked for."""


@click.command(name="eval")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@policy_option
@format_option
@context_option
@click.option("--junit", type=click.Path(dir_okay=False), metavar="FILE", help="Also write JUnit XML.")
@click.option("--sarif", type=click.Path(dir_okay=False), metavar="FILE", help="Also write SARIF 2.1.0.")
@click.option(
    "--failures",
    type=click.IntRange(min=0),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="Show at most this many failures in full.",
)
@fail_on_option
@output_option
@json_option
def evaluate(
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    format: str | None,
    context: tuple[str, ...],
    junit: str | None,
    sarif: str | None,
    failures: int,
    fail_on: FailOn,
    as_json: bool,
) -> int:
    """Judge recorded sessions: files or folders, also .gz.

    Exit code 1 when one of them breaks a rule whose action is deny or cancel; --fail-on changes that.

    The format is detected from each file unless --format names it. With --json: one line per session.
    """
    from proctor.adapters.evaluate import judge_sessions
    from proctor.adapters.traces import read_sessions

    from ...inputs import check_standard_input, read_compiled, read_context

    check_format(format)
    check_standard_input(*policies, *traces)
    _check_folders(junit, sarif)
    compiled = read_compiled(policies)
    report = _Report(as_json=as_json, junit=junit, sarif=sarif, failures=failures, fail_on=fail_on)
    sessions = read_sessions(traces, format=format, stdin=sys.stdin.buffer)
    progress = Progress()
    try:
        for session, found in judge_sessions(compiled, sessions, read_context(context), progress):
            if report.tells(found):
                progress.make_way()
            report.add(session, found)
    finally:
        progress.done()
    report.finish()
    return FINE if report.tally.all_passed else VIOLATED


def _check_folders(*files: str | None) -> None:
    """Before anything is judged: what takes long is not lost at the end."""
    for file in files:
        if file and not Path(file).parent.is_dir():
            raise click.UsageError(f"`{file}` cannot be written: there is no folder `{Path(file).parent}`")


class _Report:
    """Takes sessions as they are judged; what is long is written at the end."""

    def __init__(
        self, *, as_json: bool, junit: str | None, sarif: str | None, failures: int, fail_on: FailOn
    ) -> None:
        from proctor.adapters.evaluate import JUnitReport, SarifReport, Tally

        self.tally = Tally(fail_on=fail_on)
        self._fail_on = fail_on
        self._as_json = as_json
        self._junit = JUnitReport(fail_on=fail_on) if junit else None
        self._sarif = SarifReport(version()) if sarif else None
        self._files = (junit, sarif)
        self._left = failures
        self._console: Any = console()

    def tells(self, found: SessionReport) -> bool:
        """Whether something is printed of a session at once."""
        return self._as_json or (self._left > 0 and not found.passed)

    def add(self, session: TraceSession, found: SessionReport) -> None:
        import msgspec

        from proctor.adapters.evaluate import failure_reports
        from proctor.adapters.kit.values.printable import printable_json, redacted

        found = redacted(found)
        self.tally.add(found, session.source)
        for report in (self._junit, self._sarif):
            if report is not None:
                report.add(session, found)
        if self._as_json:
            sys.stdout.write(printable_json(msgspec.json.encode(found).decode()) + "\n")
        elif self._left > 0:
            for text in failure_reports(session, found, fail_on=self._fail_on):
                self._left -= 1
                self._show(text)
                if not self._left:
                    break

    def _show(self, text: Text) -> None:
        for line in text.split("\n", allow_blank=True):
            head = _HEAD.match(line.plain)
            say_hanging(self._console, line, len(head[0]) if head else 0)

    def finish(self) -> None:
        from proctor.adapters.evaluate import summary_table

        junit, sarif = self._files
        if self._junit is not None and junit:
            with replaced(junit) as file:
                file.write(self._junit.xml())
        if self._sarif is not None and sarif:
            with replaced(sarif) as file:
                file.write(self._sarif.json())
        if not self._as_json:
            self._console.print(summary_table(self.tally))
