"""`kill`, `reap` and `budgets`: runs ended through the store in any process, and what budgets have left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.stored_types import NOT_OVER, Owner, RunInfo

from ..exits import FAILED, FINE
from ..options import (
    Age,
    by_option,
    is_there_as_named,
    json_option,
    opened,
    operated,
    run_async,
    scope_options,
    store_option,
    wait_option,
)
from ..output import console, echo_json, echo_rows, in_words, note, output_option
from ..persons import acting, check_person

if TYPE_CHECKING:
    from ...operations.service import OperatorService
    from ...operations.views import OutcomeView, Stopped


_REASON = "killed by an operator"


@click.command()
@click.argument("target", metavar="[RUN]", required=False)
@click.option("--run", metavar="RUN", help="The same as RUN: an id, its beginning, or `last`.")
@scope_options("Every run", session="The run of this session.")
@click.option("--all", "everything", is_flag=True, help="Every run.")
@click.option(
    "--no-new-starts", is_flag=True, help="Also prevent new starts of such runs, in any process, until --lift."
)
@click.option("--lift", is_flag=True, help="Cancel nothing; allow starts again. Without a scope, lift every freeze.")
@by_option
@click.option("--reason", metavar="TEXT", help=f"The reason, as recorded. [default: {_REASON}]")
@wait_option(30)
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
    wait_s: float,
    store: str | None,
    as_json: bool,
) -> int:
    """Cancel runs in every process that uses the store, and wait until they have ended.

    Exit code 3: a run doesn't end in time. A start that --no-new-starts prevents fails with an error that says who
    decided this, when and why.

    \b
    proctor kill last
    proctor kill --tenant acme --reason "wrong prices"
    proctor kill --all --no-new-starts --reason "an incident"
    proctor kill --lift
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from proctor.supervisor.control.kill_switch import scope_of

    holder = check_person("kill", store, "stop")
    who, reason = acting(by, holder, _REASON if reason is None and not lift else reason)
    scope: dict[str, Any] = {"session_id": session, "tenant": tenant, "label": label, "everything": everything}
    named = sum(bool(value) for value in (target, run, *scope.values()))
    run = run or target
    if lift:
        scope = scope if named else {"everything": True}
        return _lifted(scope, run, no_new_starts, by=who, reason=reason or "", store=store, as_json=as_json)
    if named != 1:
        raise click.UsageError(
            "choose what to cancel with one of RUN (or `last`), `--session`, `--tenant`, `--label` and `--all`"
        )

    async def killed(service: OperatorService) -> Stopped:
        if session:
            await _check_session(service, session)
        run_id = await _full_id(service, run) if run else None
        return await service.stop(
            scope_of(run_id=run_id, **scope), by=who, reason=reason or "", block_starts=no_new_starts, wait_s=wait_s
        )

    outcomes = operated(killed, store).outcomes
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
    from proctor.supervisor.control.kill_switch import scope_of

    if run or no_new_starts:
        raise click.UsageError("`--lift` does not go with a run or with `--no-new-starts`")
    if sum(bool(value) for value in scope.values()) != 1:
        raise click.UsageError("choose what to lift with one of `--session`, `--tenant`, `--label` and `--all`")
    lifted = operated(lambda service: service.lift(scope_of(**scope), by=by, reason=reason), store).lifted
    rows = (({"lifted": block}, f"lifted: {in_words(block)}") for block in lifted)
    echo_rows(rows, as_json=as_json, none="nothing to lift: there is no such freeze")
    return FINE


async def _full_id(service: OperatorService, run: str) -> str:
    named = await service.run_named(run)
    if named.status not in NOT_OVER:
        raise UsageError(f"run `{named.run_id}` is not running: it is {named.status}")
    return named.run_id


async def _check_session(service: OperatorService, session: str) -> None:
    if await service.store.session(session) is None:
        raise UsageError(f"there is no session `{session}`; `proctor runs` lists them")


def _report(outcomes: Sequence[OutcomeView], *, blocked: bool, as_json: bool) -> None:
    rows = ((outcome, f"{outcome.run_id}: {_how(outcome)}") for outcome in outcomes)
    echo_rows(rows, as_json=as_json, none="nothing to cancel: none of these runs is active")
    if blocked:
        note("no such run starts until `proctor kill --lift`")


def _how(outcome: OutcomeView) -> str:
    if outcome.ended:
        return f"ended, {outcome.status}"
    owner = f"{outcome.owner} has" if outcome.owner is not None else "nobody has"
    return f"has not ended; {owner} not answered in time"


@click.command()
@click.option(
    "--created-older-than",
    "age",
    type=Age(),
    help="Also withdraw runs that were created longer ago than this and never started: 1d, 12h, 30m.",
)
@store_option
@json_option
def reap(age: timedelta | None, store: str | None, as_json: bool) -> None:
    """End every run whose supervisor is gone, and the processes that it left on this machine.

    The run fails with the code `owner_lost`, and its session can continue in a new run.
    """
    check_person("reap", store, "stop")
    from proctor.supervisor.control.ownership import reap as reaped
    from proctor.supervisor.control.ownership import withdraw_created
    from proctor.supervisor.run.recovery import whose

    from ...kit.process_tree import end_orphans

    async def ended() -> tuple[list[RunInfo], list[RunInfo]]:
        async with opened(store, must_exist=True) as opened_store:
            lost = await reaped(opened_store, end_orphans=end_orphans)
            created = [] if age is None else await withdraw_created(opened_store, older_than=age)
        return lost, created

    lost, created = run_async(ended) if is_there_as_named(store) else ([], [])
    rows = [(_over(info, "failed", info.owner), f"{info.run_id}: ended; {whose(info.owner)}") for info in lost]
    for info in created:
        withdrawn = f"withdrawn; created {info.created_at:%Y-%m-%d %H:%M} UTC and never started"
        rows.append((_over(info, "cancelled", None), f"{info.run_id}: {withdrawn}"))
    echo_rows(rows, as_json=as_json, none="nothing to end: there are no lost runs")


def _over(info: RunInfo, status: str, owner: Owner | None) -> dict[str, Any]:
    return {"run_id": info.run_id, "session_id": info.session_id, "status": status, "owner": owner}


@click.command()
@click.option("--name", "-n", help="Only budgets whose name (policy/name) contains this.")
@click.option("--key", "-k", help="Only budgets whose key contains this.")
@store_option
@output_option
@json_option
def budgets(name: str | None, key: str | None, store: str | None, as_json: bool) -> None:
    """List shared budgets: how much is used in this window, reserved for current runs (`+`) and left."""
    from ..board_view import budget_lines

    every = operated(lambda service: service.budgets(), store).budgets if is_there_as_named(store) else ()
    found = [b for b in every if (name or "") in b.budget and (key or "") in b.key]
    if as_json:
        for budget in found:
            echo_json(budget)
        return
    if not found:
        note("no budget has been used yet")
    out = console()
    for budget in found:
        out.print(budget_lines(budget))
