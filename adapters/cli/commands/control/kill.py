"""`kill`: end runs by way of the store, whatever process they are in, and keep others from starting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import click

from ...common import json_option, run_async, store_option
from ...exits import FAILED, FINE
from ...terminal.blocks import block_data, in_words
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor import KillOutcome, KillSwitch

_REASON = "killed by an operator"


@click.command()
@click.argument("target", metavar="[RUN]", required=False)
@click.option("--run", metavar="RUN", help="The same as RUN: an id, its beginning, or `last`.")
@click.option("--session", metavar="ID", help="The run of this session.")
@click.option("--tenant", metavar="NAME", help="Every run of this tenant.")
@click.option("--label", metavar="KEY=VALUE", help="Every run with this label.")
@click.option("--all", "everything", is_flag=True, help="Every run.")
@click.option("--no-new-starts", is_flag=True, help="Also refuse to start such runs, in any process, until --lift.")
@click.option("--lift", is_flag=True, help="End nothing; let runs start again. Without a scope, lift every block.")
@click.option("--by", metavar="WHO", help="Who orders it; recorded. [default: your login name]")
@click.option("--reason", metavar="TEXT", help=f"Recorded. [default: {_REASON}]")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30, show_default=True, metavar="SECONDS", help="At most."
)
@store_option
@json_option
def kill(
    target: str | None,
    run: str | None,
    session: str | None,
    tenant: str | None,
    label: str | None,
    everything: bool,
    no_new_starts: bool,
    lift: bool,
    by: str | None,
    reason: str | None,
    wait: float,
    store: str | None,
    as_json: bool,
) -> int:
    """End runs in every process that uses the store, and wait until they have ended.

    The list says how each run ended. Exit code 3 if one does not end in time. With --no-new-starts, starting such
    a run is refused; the error says who stopped it, when and why.

    \b
    proctor kill last
    proctor kill --tenant acme --reason "wrong prices"
    proctor kill --all --no-new-starts --reason "an incident"
    proctor kill --lift
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...own_tree import check_person

    holder = check_person("kill", store, "stop")
    if isnan(wait):
        raise click.UsageError("`--wait SECONDS`: `nan` is not a number")
    from proctor.adapters.kit.values.login_name import login_name

    who = by or holder or login_name()
    scope: dict[str, Any] = {"session_id": session, "tenant": tenant, "label": label, "everything": everything}
    named = sum(bool(value) for value in (target, run, *scope.values()))
    run = run or target
    if lift:
        what = scope if named else {"everything": True}
        return _lifted(what, run, no_new_starts, by=who, reason=reason or "", store=store, as_json=as_json)
    if named != 1:
        raise click.UsageError(
            "choose what to end with one of RUN (or `last`), `--session`, `--tenant`, `--label` and `--all`"
        )

    async def killed(switch: KillSwitch) -> list[KillOutcome]:
        if session:
            await _check_session(switch, session)
        return await switch.kill(
            by=who,
            reason=_REASON if reason is None else reason,
            run_id=run and await _full_id(switch, run),
            block_starts=no_new_starts,
            wait_s=wait,
            **scope,
        )

    outcomes = _with_switch(killed, store)
    _report(outcomes, blocked=no_new_starts, as_json=as_json)
    return FINE if all(outcome.ended for outcome in outcomes) else FAILED


def _lifted(
    scope: dict[str, Any],
    run: str | None,
    no_new_starts: bool,
    *,
    by: str,
    reason: str,
    store: str | None,
    as_json: bool,
) -> int:
    if run or no_new_starts:
        raise click.UsageError("`--lift` lets runs start again; it goes with neither a run nor `--no-new-starts`")
    if sum(bool(value) for value in scope.values()) != 1:
        raise click.UsageError(
            "choose what may start again with one of `--session`, `--tenant`, `--label` and `--all`"
        )
    lifted = _with_switch(lambda switch: switch.lift(by=by, reason=reason, **scope), store)
    for block in lifted:
        if as_json:
            say_json({"lifted": block_data(block)})
        else:
            say(f"lifted: {in_words(block)}")
    if not lifted and not as_json:
        note("nothing to lift: starts are not blocked there")
    return FINE


def _with_switch(use: Callable[[KillSwitch], Awaitable[Any]], store: str | None) -> Any:
    from ...store_place import opened

    async def used() -> Any:
        from proctor.adapters.kit.processes.remains import end_remains
        from proctor.supervisor import KillSwitch

        async with opened(store, must_exist=True) as opened_store:
            return await use(KillSwitch(opened_store, remains=end_remains))

    return run_async(used)


async def _full_id(switch: KillSwitch, run: str) -> str:
    """The id of a run that goes on, named as every command names runs."""
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.ports.facts import NOT_OVER

    from ...run_lookup import run_named

    named = await run_named(switch.store, run)
    if named.status not in NOT_OVER:
        raise UsageError(f"run `{named.run_id}` is not running: it is {named.status}")
    return named.run_id


async def _check_session(switch: KillSwitch, session: str) -> None:
    from proctor.supervisor.errors import UsageError

    if await switch.store.session(session) is None:
        raise UsageError(f"there is no session `{session}`; `proctor runs` lists them")


def _report(outcomes: Sequence[KillOutcome], *, blocked: bool, as_json: bool) -> None:
    for outcome in outcomes:
        if as_json:
            about = {"run_id": outcome.run_id, "session_id": outcome.session_id, "ended": outcome.ended}
            owner = {"owner": str(outcome.owner)} if outcome.owner is not None else {}
            say_json({**about, "status": outcome.status, **owner})
        else:
            say(f"{outcome.run_id}: {_how(outcome)}")
    if not outcomes and not as_json:
        note("nothing to end: none of these runs is still running")
    if blocked:
        note("none of them starts until `proctor kill --lift`")


def _how(outcome: KillOutcome) -> str:
    if outcome.ended:
        return f"ended, {outcome.status}"
    owner = f"{outcome.owner} has" if outcome.owner is not None else "nobody has"
    return f"has not ended; {owner} not answered in time"
