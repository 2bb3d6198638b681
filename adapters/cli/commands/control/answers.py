"""`approve` and `deny`: answers to the calls that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...common import json_option, run_async, store_option
from ...terminal.output import say, say_json

if TYPE_CHECKING:
    pass

by_option = click.option("--by", metavar="WHO", help="Who answers. [default: your login name]")
group_option = click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Your group, if the policy names groups."
)
reason_option = click.option("--reason", metavar="TEXT", help="Why; recorded with the answer.")


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option("--digest", metavar="SHA256", help="Only if the call still has this input (see `approvals --json`).")
@click.option(
    "--scope",
    type=click.Choice(["once", "run", "session"]),
    default="once",
    show_default=True,
    help="Also later calls of this tool that the same rules ask about, where the policy allows it.",
)
@group_option
@store_option
@json_option
def approve(
    approval_id: str,
    by: str | None,
    reason: str | None,
    digest: str | None,
    scope: str,
    groups: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Let a waiting call run, with exactly the input that is shown."""
    given = {"granted": True, "by": by, "reason": reason, "input_digest": digest, "groups": groups, "scope": scope}
    _answer(approval_id, given, store=store, as_json=as_json)


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option("--tell", metavar="TEXT", help="What the model is told. [default: the rule's, else that you declined]")
@group_option
@store_option
@json_option
def deny(
    approval_id: str,
    by: str | None,
    reason: str | None,
    tell: str | None,
    groups: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Refuse a waiting call; the run goes on without it."""
    given = {"granted": False, "by": by, "reason": reason, "tell_model": tell, "groups": groups}
    _answer(approval_id, given, store=store, as_json=as_json)


def _answer(approval_id: str, fields: dict[str, Any], *, store: str | None, as_json: bool) -> None:
    from proctor.adapters.kit.values.login_name import login_name

    from ...own_tree import check_person

    word = "approve" if fields["granted"] else "deny"
    holder = check_person(word, store, "answer")
    from proctor.supervisor.control.approvals import answer
    from proctor.supervisor.ports.adapters import ApprovalAnswer, StoredApproval

    from ...run_lookup import approval_named
    from ...store_place import opened

    given = ApprovalAnswer(**{**fields, "by": fields["by"] or holder or login_name()})

    async def answered() -> StoredApproval:
        async with opened(store, must_exist=True) as opened_store:
            return await answer(opened_store, await approval_named(opened_store, approval_id), given)

    approval = run_async(answered)
    outcome = {"approve": "approved", "deny": "denied"}[word]
    if as_json:
        taken_up = approval.recorded
        say_json(
            {
                "approval_id": approval_id,
                "answer": outcome,
                "by": given.by,
                "reason": given.reason,
                "taken_up": taken_up,
            }
        )
    else:
        say(f"{outcome} by {given.by}" + ("" if approval.recorded else "; the run has not taken it up yet"))
