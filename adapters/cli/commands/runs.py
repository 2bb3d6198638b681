"""`runs`, `show`, `tail`, `explain`, `watch`: stored and current runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from proctor.policies import CompiledPolicy, Event, RunContext
from proctor.policies.events import TERMINAL
from proctor.policies.events.calls import ALLOWING, rule_name
from proctor.policies.values.amounts import counted, dollars
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.store import Store, closing
from proctor.supervisor.ports.stored_types import RunFilter, RunStatus

from ...kit.display_text import amount, encoded, escape_control, tokens_used, took
from ...kit.values import login_name
from ..options import (
    Moment,
    by_option,
    check_standard_input,
    context_option,
    group_option,
    is_there_as_named,
    json_option,
    limit_option,
    opened,
    operated,
    operating,
    read_compiled,
    read_one_session,
    run_async,
    scope_options,
    store_option,
)
from ..output import console, echo_hanging, echo_json, note, output_option
from ..persons import refusal

if TYPE_CHECKING:
    from rich.text import Text

    from ...evaluate.fold import Explained, Recorded
    from ...operations.views import Board, RunView
    from ..board_view import Person
    from ..live import Live


_STATUSES = (*get_args(RunStatus), "waiting")
_LEAST_PROMPT = 20
"""A prompt with fewer columns than this beside its run goes below it."""


@click.command()
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_STATUSES),
    help="Only runs with this status; `waiting`: an approval is pending.",
)
@scope_options("Only runs", session="Only runs of this session.", label="labels")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option(
    "--since",
    type=Moment(),
    metavar="WHEN",
    help="Only runs that started at or after this time: 2026-01-31T08:00, 2h.",
)
@click.option("--until", type=Moment(), metavar="WHEN", help="Only runs that started before this time.")
@click.option("--before", metavar="RUN", help="Only runs older than this one, for the next page.")
@limit_option(20, "runs")
@store_option
@output_option
@json_option
def runs(
    statuses: tuple[Any, ...],
    session: str | None,
    tenant: str | None,
    labels: tuple[str, ...],
    agent: str | None,
    since: datetime | None,
    until: datetime | None,
    before: str | None,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List the stored runs, newest first: status, duration, calls and usage.

    \b
    proctor runs --status failed --since 24h
    proctor runs --tenant acme --label env=prod --json
    """  # noqa: D301 - click's mark for lines that are kept as they are
    waiting = "waiting" in statuses
    if waiting and len(statuses) > 1:
        raise click.UsageError("`--status waiting` cannot be combined with another status")
    where = RunFilter(
        status=frozenset(() if waiting else statuses),
        tenant=tenant,
        labels=_labels(labels),
        provider=agent,
        since=since,
        until=until,
    )
    found, more = _found(store, where, session, before, limit, waiting=waiting)
    if as_json:
        for info in found:
            echo_json(info)
        return
    if not found:
        note("no runs")
        return
    out = console()
    for line in _lines(found, out.width):
        out.print(line, no_wrap=True, overflow="ignore", crop=False)
    if more:
        note(f"older ones: `--before {found[-1].run_id}`, or a larger `--limit`")


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"`--label NAME=VALUE`: `{text}` is not NAME=VALUE")
        if labels.setdefault(name, value) != value:
            raise click.UsageError(f"`--label {name}=...` is given twice; give it once")
    return labels


def _found(
    store: str | None, where: RunFilter, session: str | None, before: str | None, limit: int, *, waiting: bool
) -> tuple[tuple[RunView, ...], bool]:
    if not is_there_as_named(store):
        return (), False
    found = operated(
        lambda service: service.runs(where, session_id=session, waiting=waiting, before=before, limit=limit), store
    )
    return found.runs, found.next is not None


_COLUMNS: dict[str, Callable[[RunView], str]] = {
    "run": lambda info: info.run_id,
    "status": lambda info: "waiting" if info.waiting else info.status,
    "agent": lambda info: info.provider,
    "tenant": lambda info: info.tenant or "",
    "started (UTC)": lambda info: f"{began:%Y-%m-%d %H:%M}" if (began := info.started_at or info.created_at) else "",
    "took": lambda info: _duration(info),
    "calls": lambda info: str(info.calls or ""),
    "violations": lambda info: str(info.violations or ""),
    "tokens": lambda info: amount(info.usage.total_tokens) if info.usage.total_tokens else "",
    "by subagents": lambda info: amount(info.usage.subagent_tokens) if info.usage.subagent_tokens else "",
    "cost": lambda info: dollars(info.usage.cost_usd) if info.usage.cost_usd else "",
}
"""Each column with its text for every run; a column that is empty for all is left out."""
_LESS = ("by subagents", "calls", "tokens", "violations", "tenant", "cost", "took")
"""Columns left out when a line has no room, the first of these first; `--json` and wider terminals show them."""
_RIGHT = frozenset(("took", "calls", "violations", "tokens", "by subagents", "cost"))


def _duration(info: RunView) -> str:
    if info.status == "running" and info.started_at is not None:
        return f"{took(max(0, round((datetime.now(UTC) - info.started_at).total_seconds() * 1000)))}.."
    return took(info.duration_ms) if info.duration_ms is not None else ""


def _lines(found: Sequence[RunView], width: int) -> Iterator[Text]:
    """The columns that fit, each whole; a prompt beside them, or below if there is no room, is cut to the width."""
    from rich.text import Text

    columns = [[title, *(escape_control(cell(info)) for info in found)] for title, cell in _COLUMNS.items()]
    cells_by_column = {column[0]: _aligned(column) for column in columns if any(column[1:])}
    for name in _LESS:
        if sum(len(column[0]) + 2 for column in cells_by_column.values()) - 2 > width:
            cells_by_column.pop(name, None)
    left = ["  ".join(cells) for cells in zip(*cells_by_column.values(), strict=True)]
    prompts = ["prompt", *(escape_control(info.prompt) for info in found)]
    beside = width - len(left[0]) - 2 >= _LEAST_PROMPT
    for n, (line, prompt) in enumerate(zip(left, prompts, strict=True)):
        style = "" if n else "bold"
        shown = Text(prompt, style)
        shown.truncate(max(width - (len(left[0]) + 2 if beside else 2), 10), overflow="ellipsis")
        if beside:
            yield Text(f"{line}  ", style) + shown
        else:
            yield Text(line.rstrip(), style)
            if prompt:
                yield Text("  ") + shown


def _aligned(column: list[str]) -> list[str]:
    from rich.cells import cell_len

    widest = max(map(cell_len, column))
    gaps = [" " * (widest - cell_len(cell)) for cell in column]
    right = column[0] in _RIGHT
    return [gap + cell if right else cell + gap for cell, gap in zip(column, gaps, strict=True)]


@click.command()
@click.argument("run", metavar="RUN")
@store_option
@output_option
@json_option
def show(run: str, store: str | None, as_json: bool) -> None:
    """Show a stored run, event by event. RUN is an id, the beginning of one, or `last`."""
    from ..live import EventLines, Live

    async def read() -> None:
        async with operating(store) as service:
            info = await service.run(run)
            ran = await service.calls_in(info.session_id)
            live = Live(EventLines(numbered=True, ran=ran, store=store), as_json=as_json)
            count = 0
            async with closing(service.store.read(info.session_id, run_id=info.run_id)) as events:
                async for event in events:
                    live(event)
                    count += 1
                    if live.unread:
                        break
            live.check()
            if not (as_json or live.unread):
                live.print(f"\n{_summary(info, count)}")

    run_async(read)


def _summary(info: RunView, count: int) -> str:
    parts = [info.status if info.duration_ms is None else f"{info.status} in {took(info.duration_ms)}"]
    if info.status == "lost":
        parts[0] = f"lost (its supervisor{f', {info.owner},' if info.owner else ''} is gone: `proctor reap` ends it)"
    parts += [counted(count, "event"), f"{counted(info.calls, 'call')} ran", counted(info.violations, "violation")]
    if info.usage.total_tokens:
        parts.append(tokens_used(info.usage))
    if info.usage.cost_usd:
        parts.append(dollars(info.usage.cost_usd))
    return f"{info.run_id}: {', '.join(parts)}, session {info.session_id}"


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Show new events as they come, until Ctrl-C.")
@click.option("--run", metavar="RUN", help="Only this run; --follow ends when it ends.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="The number of earlier events to show.",
)
@store_option
@json_option
def tail(follow: bool, run: str | None, lines: int, store: str | None, as_json: bool) -> None:
    """Show the latest events of all runs, in any process, grouped by run."""
    from ..live import EventLines, Live

    live = Live(EventLines(clock=True, store=store), as_json=as_json, named=run is None)
    if not (follow or run or is_there_as_named(store)):
        note("no runs")
        return

    async def read() -> None:
        async with opened(store, must_exist=not follow, writes=False) as opened_store:
            await _tail(opened_store, live, run, lines, follow=follow)

    try:
        run_async(read)
    except KeyboardInterrupt:
        sys.stdout.flush()
    live.check()


async def _tail(store: Store, live: Live, name: str | None, lines: int, *, follow: bool) -> None:
    from ...operations.service import run_named
    from ..live import Latest, following

    run = await run_named(store, name) if name else None
    before = Latest(lines, live.shows)
    for event in await (before.of_run(store, run) if run else before.of_all(store)):
        live(event)
    if not follow:
        return
    async with closing(following(store, run, before.cursor)) as events:
        async for event in events:
            live(event)
            if live.unread:
                return


_FILES = (".jsonl", ".ndjson", ".json", ".gz")
"""Endings of names that are files and not runs, whether or not the file exists."""


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("seq", type=click.IntRange(min=1), required=False)
@click.option("--policy", "policies", metavar="FILE", multiple=True, help="Evaluate under these files instead.")
@click.option("--refused", is_flag=True, help="Leave out allowed calls.")
@context_option
@store_option
@output_option
@json_option
def explain(
    run: str,
    seq: int | None,
    policies: tuple[str, ...],
    refused: bool,
    context: RunContext | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Explain each decision of a run: each rule that was evaluated, with its state before and after.

    RUN is a stored run (an id, its beginning, or `last`), or a file of events. proctor uses the policies that are
    stored with it, or --policy. SEQ selects one event.

    \b
    proctor explain last
    proctor explain last --refused
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...evaluate.fold import explained, recorded

    check_standard_input(run, *policies)
    from_file = run == "-" or run.endswith(_FILES) or (Path(run).exists() and not Path(run).is_dir())
    try:
        events = read_one_session(run, "explain") if from_file else run_async(lambda: _from_store(run, store))
    except UsageError as error:
        if from_file or Path(run).stem == run:
            raise
        raise UsageError(f"there is no file `{run}`, and {error}") from None
    was = recorded(events)
    compiled = read_compiled(policies) if policies else _compiled(was)
    own = {event.seq for event in events if from_file or event.run_id == events[-1].run_id}
    judged = explained(compiled, events, context or was.context)
    steps = [item for item in judged if item.seq in ({seq} if seq else own)]
    if seq is not None and not steps:
        raise click.UsageError(f"no decision at event {seq}; leave out the number to see every decision")
    shown = [item for item in steps if _stopped(item)] if refused else steps
    for item in shown:
        if as_json:
            echo_json(item)
        else:
            _show(item)
    if not shown:
        note("nothing was denied" if steps else "no call was requested and no rule was broken")
    if seq is None and not as_json:
        _show_end(events[-1])


async def _from_store(run_id: str, path: str | None) -> list[Event]:
    """The events of the run's session up to the run's end: what came before is part of its state."""
    async with operating(path) as service:
        run = await service.run_named(run_id)
        events = [event async for event in service.store.read(run.session_id)]
    last = max((n for n, event in enumerate(events) if event.run_id == run.run_id), default=-1)
    if last < 0:
        raise click.UsageError(f"run `{run_id}` has not started; there are no decisions")
    return events[: last + 1]


def _compiled(was: Recorded) -> CompiledPolicy:
    if not was.policies:
        raise click.UsageError("no policy is stored with it; name the files with `--policy`")
    for name in was.untold:
        note(f"policy `{name}`: the results of its checks in Python cannot be shown again")
    return was.compiled()


def _stopped(item: Explained) -> bool:
    """Whether its action is more than a warning."""
    stopped = item.decision is not None and item.decision.action not in ALLOWING
    return stopped or any(found.action != "warn" for found in item.violations)


def _show_end(last: Event) -> None:
    from ..live import EventLines

    line = EventLines(numbered=True).of(last) if isinstance(last, TERMINAL) else None
    if line is None:
        note("the run has not ended; `proctor show` shows its state")
    else:
        out = console()
        out.print(f"event {last.seq}  ", style="bold", end="")
        echo_hanging(out, line[10:], 2)


def _show(item: Explained) -> None:
    from rich.text import Text

    out = console()

    def show(text: str, style: str = "") -> None:
        echo_hanging(out, Text(f"  {escape_control(text)}", style), 2)

    decision = item.decision
    if decision is None:
        out.print(f"event {item.seq}  {item.event}", style="bold")
    else:
        style = "green" if decision.action in ALLOWING else "red"
        named = f"{escape_control(decision.tool_name)} ({escape_control(decision.tool_call_id)})"
        out.print(f"event {item.seq}  {named}: ", style="bold", end="")
        out.print(decision.action, style=f"bold {style}")
        show(f"input {encoded(decision.tool_input)}", "dim")
        for step in decision.explain().splitlines()[1:]:
            show(step.strip())
        for found in decision.violations:
            if expected := found.details.get("expected"):
                show(f"{found.rule} expected {expected}", "dim")
    for found in item.violations:
        name = rule_name(found.policy, found.rule)
        show(f"{name}: {found.action}, {found.message}", "red")


@click.command()
@by_option
@group_option
@store_option
@json_option
def watch(by: str | None, groups: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Show current runs, their limits and pending approvals, live.

    Press `?` for the keys: approve or deny a call, cancel a run, filter. `q` or Ctrl-C leaves; the runs continue.
    With --json, or if the output isn't a terminal (or TERM is `dumb`), it prints the current state once.
    """
    from ..board_view import Person

    seen = not as_json and sys.stdout.isatty() and not console().is_dumb_terminal
    name, why = refusal("watch", store) if seen else (None, "")
    person = Person(name=by or name or login_name(), groups=groups, refusal=why, holder=name)
    run_async(lambda: _watched(store, person, seen=seen, as_json=as_json))


async def _watched(path: str | None, person: Person, *, seen: bool, as_json: bool) -> None:
    import anyio

    from ...operations.views import Board
    from ..board_view import live_board

    if not (seen or is_there_as_named(path)):
        _show_board(Board(), as_json=as_json)
        return
    async with operating(path, must_exist=not seen) as service:
        if seen:
            with suppress(anyio.get_cancelled_exc_class()):  # Ctrl-C is a way to leave
                await live_board(service, person)
        else:
            _show_board(await service.board(), as_json=as_json)


def _show_board(board: Board, *, as_json: bool) -> None:
    from ..board_view import plain

    if as_json:
        echo_json(board)
    else:
        console().print(plain(board))
