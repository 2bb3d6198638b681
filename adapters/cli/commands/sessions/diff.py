"""`diff`: two policies over the same recorded sessions."""

from __future__ import annotations

import sys

import click

from ...common import check_format, context_option, format_option, json_option
from ...exits import FINE, VIOLATED
from ...output_file import output_option
from ...terminal.output import Progress, console, say


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@format_option
@context_option
@output_option
@json_option
def diff(
    old: str, new: str, traces: tuple[str, ...], format: str | None, context: tuple[str, ...], as_json: bool
) -> int:
    """Show which recorded calls the policy file NEW judges differently from OLD.

    Exit code 1 when a session that passed under OLD fails under NEW.
    """
    import msgspec

    from proctor.adapters.evaluate import DiffTally, compare_sessions, diff_table
    from proctor.adapters.kit.values.printable import printable_json
    from proctor.adapters.traces import read_sessions

    from ...inputs import check_standard_input, read_compiled, read_context

    check_format(format)
    check_standard_input(old, new, *traces)
    compiled = read_compiled([old]), read_compiled([new])
    sessions = read_sessions(traces, format=format, stdin=sys.stdin.buffer)
    tally, progress = DiffTally(), Progress()
    try:
        for count, change in enumerate(compare_sessions(*compiled, sessions, read_context(context)), 1):
            tally.add(change)
            progress(count)
            if as_json:
                progress.make_way()
                say(printable_json(msgspec.json.encode(change).decode()))
    finally:
        progress.done()
    if not as_json:
        console().print(diff_table(tally))
    return VIOLATED if tally.now_failing else FINE
