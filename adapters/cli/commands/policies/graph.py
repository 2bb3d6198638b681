"""`graph`: a policy's rules and nets as a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...common import check_format, context_option, format_option, json_option, write_document
from ...output_file import output_option

if TYPE_CHECKING:
    from proctor.policies import Monitor, Policy


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Mermaid text. [default]")
@click.option("--svg", "as_svg", is_flag=True, help="An SVG drawing.")
@click.option("--trace", metavar="FILE", help="Mark the state that the session in this file has reached.")
@format_option
@context_option
@output_option
@json_option
def graph(
    files: tuple[str, ...],
    as_mermaid: bool,
    as_svg: bool,
    trace: str | None,
    format: str | None,
    context: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw the rules about order and the nets of policy files, stacked in the order given.

    With --json, print the picture's nodes and arrows.
    """
    from proctor.adapters.drawing import draw_svg
    from proctor.adapters.kit.values.printable import encoded, printable_lines
    from proctor.policies import merge_policies
    from proctor.policies.drawing import draw, draw_mermaid

    from ...inputs import check_standard_input, read_policies

    if as_mermaid + as_svg + as_json > 1:
        raise click.UsageError("choose one of `--mermaid`, `--svg` and `--json`")
    check_format(format)
    check_standard_input(*files, trace)
    policy = merge_policies(read_policies(files))
    monitor = _monitor(policy, trace, format, context) if trace else None
    if as_json:
        write_document(encoded(draw(policy, monitor)))
    else:
        write_document(printable_lines((draw_svg if as_svg else draw_mermaid)(policy, monitor)))


def _monitor(policy: Policy, trace: str, format: str | None, context: Sequence[str]) -> Monitor:
    """The state after the one session a file holds."""
    from proctor.adapters.evaluate.folding import observed
    from proctor.adapters.traces import read_sessions
    from proctor.policies import compile_policy

    from ...inputs import read_context

    sessions = list(read_sessions([trace], format=format, stdin=sys.stdin.buffer))
    if len(sessions) != 1:
        raise click.UsageError(f"`{trace}` holds {len(sessions)} sessions; `--trace` takes a file with one")
    return observed(compile_policy(policy), sessions[0].events, read_context(context))
