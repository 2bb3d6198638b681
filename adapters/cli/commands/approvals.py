"""`approve` and `deny`: answers to the calls that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..common import json_option, run_async, store_option
from ..terminal.output import say, say_json

if TYPE_CHECKING:
    pass

by_option = click.option("--by", metavar="WHO", help="Who answers. [default: your login name]")
reason_option = click.option("--reason", metavar="TEXT", help="Why; recorded with the answer.")


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option("--digest", metavar="SHA256", help="Only if the call still has this input (see `approvals --json`).")
@store_option
@json_option
def approve(
    approval_id: str, by: str | None, reason: str | None, digest: str | None, store: str | None, as_json: bool
) -> None:
    """Let a waiting call run, once, with the input it was asked with."""
    _answer(approval_id, granted=True, by=by, reason=reason, digest=digest, store=store, as_json=as_json)


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option("--tell", metavar="TEXT", help="The words to the model. [default: the rule's, else that you declined]")
@store_option
@json_option
def deny(
    approval_id: str, by: str | None, reason: str | None, tell: str | None, store: str | None, as_json: bool
) -> None:
    """Refuse a waiting call; the run goes on without it."""
    _answer(approval_id, granted=False, by=by, reason=reason, tell=tell, store=store, as_json=as_json)


def _answer(
    approval_id: str,
    *,
    granted: bool,
    by: str | None,
    reason: str | None,
    digest: str | None = None,
    tell: str | None = None,
    store: str | None,
    as_json: bool,
) -> None:
    import getpass

    from ..own_tree import check_outside_runs

    check_outside_runs("approve" if granted else "deny")
    from proctor.supervisor.control.approvals import answer
    from proctor.supervisor.ports import ApprovalAnswer

    from ..places import opened
    from ..stored import approval_named

    who = by or getpass.getuser()
    given = ApprovalAnswer(granted=granted, by=who, reason=reason, input_digest=digest, tell_model=tell)

    async def answered() -> None:
        async with opened(store, must_exist=True) as opened_store:
            await answer(opened_store, await approval_named(opened_store, approval_id), given)

    run_async(answered)
    word = "approved" if granted else "denied"
    if as_json:
        say_json({"approval_id": approval_id, "answer": word, "by": given.by, "reason": reason})
    else:
        say(f"{word} by {given.by}")
