"""`watch`: a live board of runs, limits and waiting approvals."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ..options import by_option, group_option, json_option, run_async, store_option
from ..output import console, say_json

if TYPE_CHECKING:
    from ...operations.views import Board
    from ..board_view import Person


@click.command()
@by_option
@group_option
@store_option
@json_option
def watch(by: str | None, groups: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Show current runs, how much of their limits is used, and the calls that wait for a person, updated live.

    Keys select a row, approve or deny a call, end a run, find one; `?` lists them. `q` or Ctrl-C leaves; the runs go
    on. If the output is not a terminal, or with --json, it shows the present state once and ends.
    """
    from ...kit.values import login_name
    from ..board_view import Person
    from ..persons import refusal

    name, why = (None, "") if as_json or not sys.stdout.isatty() else refusal("watch", store)
    person = Person(name=by or name or login_name(), groups=groups, refusal=why)
    run_async(lambda: _watched(store, person, as_json=as_json))


async def _watched(path: str | None, person: Person, *, as_json: bool) -> None:
    import anyio

    from ...operations.views import Board
    from ..board_view import live_board
    from ..options import is_there_as_named, operating

    seen = sys.stdout.isatty() and not as_json
    if not (seen or is_there_as_named(path)):
        _show(Board(), as_json=as_json)
        return
    async with operating(path, must_exist=False) as service:
        if seen:
            with suppress(anyio.get_cancelled_exc_class()):  # Ctrl-C is a way to leave
                await live_board(service, person)
        else:
            _show(await service.board(), as_json=as_json)


def _show(board: Board, *, as_json: bool) -> None:
    from ..board_view import plain

    say_json(board) if as_json else console().print(plain(board))
