"""`narrow`: the tools that could be called after a trace."""

from __future__ import annotations

import sys

import click

from .common import check_format, context_option, format_option, json_option, policy_option
from .output import say, say_json


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option("--tools", required=True, metavar="A,B", help="The tools to ask about, with commas between.")
@policy_option
@format_option
@context_option
@json_option
def narrow(
    trace: str, tools: str, policies: tuple[str, ...], format: str | None, context: tuple[str, ...], as_json: bool
) -> None:
    """Print the tools the policy would let an agent call next, after what the trace holds."""
    from proctor.adapters.traces import read_sessions

    from .folding import observed
    from .inputs import check_standard_input, read_compiled, read_context

    check_format(format)
    check_standard_input(*policies, trace)
    asked = [tool.strip() for tool in tools.split(",") if tool.strip()]
    if not asked:
        raise click.UsageError("`--tools` names no tool; say for example `--tools bash,read`")
    compiled, about = read_compiled(policies), read_context(context)
    for session in read_sessions([trace], format=format, stdin=sys.stdin.buffer):
        visible = observed(compiled, session.events, about).narrow(asked)
        if as_json:
            say_json({"session": session.id, "tools": visible, "hidden": [t for t in asked if t not in visible]})
        else:
            say(f"{session.id}: {', '.join(visible) or 'none'}")
