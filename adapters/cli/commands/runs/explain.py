"""`explain`: why each decision of a run was taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...common import context_option, json_option, run_async, store_option
from ...output_file import output_option
from ...terminal.output import console, note, say_hanging, say_json

if TYPE_CHECKING:
    from proctor.adapters.evaluate.folding import Explained, Recorded
    from proctor.policies import CompiledPolicy, Event

_FILES = (".jsonl", ".ndjson", ".json", ".gz")
"""A name that ends so is a file and not a run, whether or not the file is there."""


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("seq", type=click.IntRange(min=1), required=False)
@click.option("--policy", "policies", metavar="FILE", multiple=True, help="Judge by these files instead.")
@click.option("--refused", is_flag=True, help="Leave out what was allowed.")
@context_option
@store_option
@output_option
@json_option
def explain(
    run: str,
    seq: int | None,
    policies: tuple[str, ...],
    refused: bool,
    context: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Explain each decision of a run: every rule that judged it, its state before and after; then how the run ended.

    RUN is the id of a stored run, judged by the policies stored with it, or a file of events (give --policy
    if it holds none). SEQ picks one event.
    """
    from proctor.adapters.evaluate.folding import explained, recorded

    from ...inputs import check_standard_input, read_compiled, read_context

    check_standard_input(run, *policies)
    from_file = run == "-" or run.endswith(_FILES) or (Path(run).exists() and not Path(run).is_dir())
    events = _from_file(run) if from_file else run_async(lambda: _from_store(run, store))
    was = recorded(events)
    compiled = read_compiled(policies) if policies else _compiled(was)
    about = read_context(context) if context else was.context
    own = {event.seq for event in events if from_file or event.run_id == events[-1].run_id}
    steps = [item for item in explained(compiled, events, about) if item.seq in ({seq} if seq else own)]
    if seq is not None and not steps:
        raise click.UsageError(f"nothing was decided at event {seq}; leave out the number to see every decision")
    shown = [item for item in steps if _stopped(item)] if refused else steps
    for item in shown:
        if as_json:
            say_json(item)
        else:
            _show(item)
    if not shown:
        note("nothing was refused" if steps else "no call was requested and no rule was broken")
    if seq is None and not as_json:
        _show_end(events[-1])


def _from_file(file: str) -> list[Event]:
    import sys

    from proctor.adapters.traces import read_sessions

    sessions = list(read_sessions([file], stdin=sys.stdin.buffer))
    if len(sessions) != 1:
        raise click.UsageError(f"`{file}` holds {len(sessions)} sessions; `explain` takes a file with one")
    return sessions[0].events


async def _from_store(run_id: str, path: str | None) -> list[Event]:
    """The events of the run's session up to the run's end: what came before is part of its state."""
    from ...run_lookup import run_named
    from ...store_place import opened

    async with opened(path, must_exist=True) as store:
        run = await run_named(store, run_id)
        events = [event async for event in store.read(run.session_id)]
    last = max((n for n, event in enumerate(events) if event.run_id == run.run_id), default=-1)
    if last < 0:
        raise click.UsageError(f"run `{run_id}` has not started; nothing was decided")
    return events[: last + 1]


def _compiled(was: Recorded) -> CompiledPolicy:
    if not was.policies:
        raise click.UsageError("no policy is stored with it; name the files with `--policy`")
    for name in was.untold:
        note(f"policy `{name}`: what its checks in Python found cannot be shown again")
    return was.compiled()


def _stopped(item: Explained) -> bool:
    """Whether its action is more than a warning."""
    if item.decision is None:
        return any(found.action != "warn" for found in item.violations)
    return item.decision.action not in ("allow", "warn")


def _show_end(last: Event) -> None:
    """How the run ended, by its last event."""
    from proctor.policies.stream.events import TERMINAL

    from ...terminal.events import EventLines

    line = EventLines(numbered=True).of(last) if isinstance(last, TERMINAL) else None
    if line is None:
        note("the run has not ended; `proctor show` says where it stands")
    else:
        out = console()
        out.print(f"event {last.seq}  ", style="bold", end="")
        say_hanging(out, line[10:], 2)


def _show(item: Explained) -> None:
    from rich.text import Text

    from proctor.adapters.kit.values.printable import encoded, printable
    from proctor.policies.stream.calls import rule_name

    out = console()

    def show(text: str, style: str = "") -> None:
        say_hanging(out, Text(f"  {text}", style), 2)

    if item.decision is None:
        out.print(f"event {item.seq}  {item.event}", style="bold")
        for found in item.violations:
            name = rule_name(found.policy, found.rule)
            show(f"{name}: {found.action}, {printable(found.message)}", "red")
        return
    decision = item.decision
    style = "green" if decision.action in ("allow", "warn") else "red"
    named = f"{printable(decision.tool_name)} ({printable(decision.tool_call_id)})"
    out.print(f"event {item.seq}  {named}: ", style="bold", end="")
    out.print(decision.action, style=f"bold {style}")
    show(f"input {encoded(decision.tool_input)}", "dim")
    for step in decision.explain().splitlines()[1:]:
        show(printable(step.strip()))
    for found in decision.violations:
        if expected := found.details.get("expected"):
            show(f"{found.rule} expected {printable(str(expected))}", "dim")
