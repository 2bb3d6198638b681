"""`narrow`: the tools that could be called after a trace."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...common import check_format, context_option, format_option, json_option, policy_option
from ...exits import FINE, VIOLATED
from ...output_file import output_option
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.policies import Event


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option(
    "--tools", metavar="A,B", help="The tools to consider, separated by commas. [default: those the session offers]"
)
@policy_option
@format_option
@context_option
@output_option
@json_option
def narrow(
    trace: str,
    tools: str | None,
    policies: tuple[str, ...],
    format: str | None,
    context: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print the tools the policy would let an agent call next, after what the trace holds.

    If a trace does not say which tools the session offers, those that it called are considered. Exit code 1 where a
    rule could not be judged: its `when` asks for what the session's context leaves out.
    """
    from proctor.adapters.evaluate.folding import observed
    from proctor.adapters.evaluate.judge import filled, unjudged
    from proctor.adapters.traces import read_sessions

    from ...inputs import check_standard_input, read_compiled, read_context

    check_format(format)
    check_standard_input(*policies, trace)
    given = None if tools is None else [tool.strip() for tool in tools.split(",") if tool.strip()]
    if given == []:
        raise click.UsageError("`--tools` names no tool; for example `--tools bash,read`")
    compiled, about = read_compiled(policies), read_context(context)
    exit_code = FINE
    for session in read_sessions([trace], format=format, stdin=sys.stdin.buffer):
        offered = _offered(session.events) if given is None else given
        of_run = filled(about, session)
        visible = observed(compiled, session.events, of_run).narrow(offered)
        left_out = unjudged(compiled, of_run)
        if left_out:
            exit_code = VIOLATED
        if as_json:
            found = {"session": session.id, "tools": visible, "hidden": [t for t in offered if t not in visible]}
            say_json({**found, **({"unjudged": [each.rule for each in left_out]} if left_out else {})})
        else:
            say(f"{session.id}: {', '.join(visible) or 'none'}")
            for each in left_out:
                note(f"{session.id}: `{each.rule}`: {each.message}; give it with --context")
    return exit_code


def _offered(events: Sequence[Event]) -> list[str]:
    """The tools that a session is said to offer, else those it called, in order."""
    from proctor.policies.stream.events import RunStarted, ToolEvent

    declared = [event.tools for event in events if isinstance(event, RunStarted) and event.tools is not None]
    called = [event.tool_name for event in events if isinstance(event, ToolEvent)]
    return list(dict.fromkeys(declared[-1] if declared else called))
