"""`suggest`: a policy learnt from recorded sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exits import FINE
from ..options import check_format, format_option, json_option, run_async, write_document
from ..output import Progress, note, output_parameter, replaced, say_json, written_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from proctor.policies import Policy

    from ...suggest import Suggestion
    from ...traces import TraceSession


@click.command()
@click.argument("sessions", nargs=-1, metavar="SESSION...")
@click.option(
    "--base",
    "bases",
    multiple=True,
    metavar="POLICY",
    help="A policy that nothing may be looser than; repeat it to stack more.",
)
@click.option("--store", metavar="STORE", help="Also read the sessions of this store.")
@click.option("--name", default="suggested", show_default=True, metavar="NAME", help="The policy's name.")
@click.option(
    "--action",
    type=click.Choice(["request_approval", "deny"]),
    help="What becomes of other calls. [default: request_approval; deny with --base]",
)
@click.option(
    "--tests", type=click.Path(dir_okay=False), metavar="FILE", help="Also write tests of it; goes with -o."
)
@format_option
@output_parameter
@json_option
def suggest(
    sessions: tuple[str, ...],
    bases: tuple[str, ...],
    store: str | None,
    name: str,
    action: str | None,
    tests: str | None,
    format: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Propose a policy from recorded sessions: files or folders, in the formats of `eval`.

    It allows the tools, commands, folders, hosts and values that the sessions used. Each entry has its evidence as a
    comment. With --base, it offers only what is proved to be no looser than the base.
    """
    from ...suggest import learn, observe, policy_text, tests_text
    from ..options import check_standard_input, read_policies

    check_format(format)
    check_standard_input(*sessions, *bases)
    if not sessions and not store:
        raise click.UsageError("name the sessions: files, folders or `--store`")
    if bases and action == "request_approval":
        raise click.UsageError("with `--base` other calls are denied: a person could approve what the base denies")
    if tests and (not output or output == "-"):
        raise click.UsageError("`--tests` goes with `--output FILE`: the tests name the policy's file")
    base = read_policies(bases) if bases else []
    observed = [observe(session) for session in _counted(_read(sessions, store, format))]
    found = learn(observed, name=name, action=action or ("deny" if bases else "request_approval"))
    if not found.tools:
        raise click.UsageError("the sessions have no call that ran: there is nothing to learn from")
    if base:
        found = _over(found, base)
    if as_json:
        say_json(_data(found))
    if output is not None or not as_json:
        with written_to(output):
            write_document(policy_text(found))
    if tests and output:
        beside = os.path.relpath(output, Path(tests).parent)
        with replaced(tests) as file:
            file.write(tests_text(found, observed, beside).encode())
    if found.dropped:
        note(f"left out over the base: {len(found.dropped)}; the policy says why")
    return FINE


def _read(sessions: tuple[str, ...], store: str | None, format: str | None) -> Iterator[TraceSession]:
    from ...traces import read_sessions

    if sessions:
        yield from read_sessions(sessions, format=format, stdin=sys.stdin.buffer)
    if store:
        yield from _stored(store)


def _stored(store: str) -> list[TraceSession]:
    """The sessions of a store."""
    from io import BytesIO

    from proctor.supervisor.store.maintenance import export_lines
    from proctor.supervisor.store.run_index import closing

    from ...kit.trace_lines import TraceLines
    from ...traces import FORMATS
    from ..options import opened

    async def exported() -> bytes:
        async with opened(store, must_exist=True) as opened_store, closing(export_lines(opened_store)) as lines:
            return b"".join([line async for line in lines])

    return [*FORMATS["events"](TraceLines(store, BytesIO(run_async(exported))))]


def _counted(sessions: Iterator[TraceSession]) -> Iterator[TraceSession]:
    progress = Progress()
    try:
        for count, session in enumerate(sessions, 1):
            yield session
            progress(count)
    finally:
        progress.done()


def _over(found: Suggestion, base: list[Policy]) -> Suggestion:
    """The part that is proved to be no looser than the base."""
    from proctor.policies import merge_policies, verify

    from ...suggest import without_denied

    merged = merge_policies(base)
    return without_denied(found, lambda policy: verify(policy, no_looser_than=merged))


def _data(found: Suggestion) -> dict[str, Any]:
    return {
        "policy": found.policy(),
        "sessions": found.sessions,
        "disturbed": len(found.disturbed),
        "entries": [entry.data() for entry in found.entries],
        "left_out": [{**entry.data(), "reason": why} for entry, why in found.dropped],
    }
