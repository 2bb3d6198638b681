"""`watch`: a live board of runs, limits and waiting approvals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...common import json_option, run_async, store_option
from ...moments import amount, took
from ...terminal.output import console, say_json
from ..control.kill import in_words, told

if TYPE_CHECKING:
    from rich.text import Text

    from proctor.adapters.web.folds import Folds
    from proctor.policies.monitor.usage.limits import LimitUse
    from proctor.supervisor import Block, RunInfo, StoredApproval
    from proctor.supervisor.ports.adapters import Store

SHOWN = 20
"""The most runs, and the most approvals, that are shown."""
_LOOK_AGAIN_S = 1.0
_PAUSE_S = 0.2
_BAR = 10


class Board(msgspec.Struct, frozen=True):
    """What is shown: the runs that go on, newest first, with their limits; what waits; what blocks starts."""

    runs: list[tuple[RunInfo, tuple[LimitUse, ...]]]
    more: bool
    approvals: list[StoredApproval]
    blocks: list[Block]


@click.command()
@store_option
@json_option
def watch(store: str | None, as_json: bool) -> None:
    """Show the runs that go on, what is used of their limits, and the calls that wait for a person, as it changes.

    Ctrl-C ends it; the runs go on. Where the output is no terminal, and with --json, it shows what is now and ends.
    """
    run_async(lambda: _watched(store, as_json=as_json))


async def _watched(path: str | None, *, as_json: bool) -> None:
    import anyio

    from proctor.adapters.web.folds import Folds

    from ...places import is_there, opened

    if not is_there(path):
        board = Board([], False, [], [])
        say_json(_as_data(board)) if as_json else console().print(_text(board))
        return
    async with opened(path) as store:
        folds = Folds(store)
        if as_json:
            say_json(_as_data(await _board(store, folds)))
        elif not sys.stdout.isatty():
            console().print(_text(await _board(store, folds)))
        else:
            with suppress(anyio.get_cancelled_exc_class()):  # Ctrl-C, which is how one leaves
                await _live(store, folds)


async def _live(store: Store, folds: Folds) -> None:
    import anyio
    from rich.live import Live

    token = 0
    with Live(_text(await _board(store, folds)), console=console(), auto_refresh=False, screen=True) as live:
        while True:
            token = await store.wait(token, _LOOK_AGAIN_S)
            live.update(_text(await _board(store, folds)), refresh=True)
            await anyio.sleep(_PAUSE_S)


async def _board(store: Store, folds: Folds) -> Board:
    from proctor.supervisor import RunFilter

    where = RunFilter(status=frozenset({"created", "running", "lost"}))
    found = await store.runs(limit=SHOWN + 1, where=where)
    runs = [(run, await _limits(folds, run)) for run in found[:SHOWN]]
    return Board(runs, len(found) > SHOWN, await store.approvals(limit=SHOWN), await store.blocks())


async def _limits(folds: Folds, run: RunInfo) -> tuple[LimitUse, ...]:
    from proctor.supervisor import ProctorError

    try:
        return (await folds.of(run)).limits()
    except ProctorError:  # it has not started, or another version wrote its policies
        return ()


def _text(board: Board) -> Text:
    from rich.text import Text

    text = Text()
    for block in board.blocks:
        text.append(f"{in_words(block)}\n", "bold red")
    count = f"{SHOWN} or more" if board.more else str(len(board.runs))
    text.append(f"{count} going on, {len(board.approvals)} waiting for a person\n", "bold")
    for approval in board.approvals:
        request = approval.request
        text.append(f"\nwaits    {request.approval_id}\n", "yellow")
        shown = msgspec.json.encode(request.call.input).decode()
        text.append(f"         {request.call.name} {shown if len(shown) < 60 else shown[:59] + '…'}\n")
    for run, limits in board.runs:
        text.append(f"\n{run.status:<8} {run.run_id}\n", "red" if run.status == "lost" else "green")
        text.append(f"         {'  '.join(_about(run))}\n")
        for use in limits:
            text.append(f"         {_bar(use)}\n", "red" if use.exceeded else "")
    return text


def _about(run: RunInfo) -> Iterator[str]:
    yield run.provider or "no agent yet"
    if run.tenant:
        yield run.tenant
    if run.started_at is not None:
        yield took(max(0, round((datetime.now(UTC) - run.started_at).total_seconds() * 1000)))
    yield f"{run.calls} calls"
    if run.violations:
        yield f"{run.violations} violations"
    if run.usage.total_tokens:
        yield f"{amount(run.usage.total_tokens)} tokens"
    if run.usage.cost_usd:
        yield f"${run.usage.cost_usd:.2f}"


def _bar(use: LimitUse) -> str:
    """How much of a limit is used, in words and as a bar of characters."""
    part = min(use.used / use.max, 1.0) if use.max else 1.0
    bar = "#" * round(part * _BAR)
    return f"[{bar:<{_BAR}}] {use.limit}: {use.used:g} of {use.max:g}"


def _as_data(board: Board) -> dict[str, Any]:
    return {
        "runs": [{**msgspec.structs.asdict(run), "limits": list(limits)} for run, limits in board.runs],
        "more": board.more,
        "approvals": board.approvals,
        "blocks": [told(block) for block in board.blocks],
    }
