"""`approvals`, `approve` and `deny`: pending approvals and answers to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from proctor.policies.events import TERMINAL, ApprovalEvent, Event, ToolApprovalRequested
from proctor.supervisor.ports.stored_types import APPROVAL_WORDS, ApprovalAnswer
from proctor.supervisor.store.invariants import state_after

from ..options import (
    by_option,
    group_option,
    is_there_as_named,
    json_option,
    limit_option,
    operated,
    operating,
    run_async,
    store_option,
)
from ..output import approval_details, console, echo, echo_json, echo_rows, note, output_parameter, written_to
from ..persons import acting, check_person

if TYPE_CHECKING:
    from proctor.policies.policy import ApprovalScope
    from proctor.supervisor.ports.stored_types import ApprovalState

    from ...operations.service import OperatorService
    from ...operations.views import ApprovalList, ApprovalView


reason_option = click.option("--reason", metavar="TEXT", help="The reason, as recorded; the model doesn't see it.")


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option(
    "--digest", metavar="SHA256", help="Answer only if the input still has this digest (see `approvals --json`)."
)
@click.option(
    "--scope",
    type=click.Choice(["once", "run", "session"]),
    default="once",
    show_default=True,
    help="Also approve later calls of this tool that the same rules ask about, if the policy allows it.",
)
@click.option(
    "--like", is_flag=True, help="With --scope run or session: only later calls like this one, as `approvals` shows."
)
@group_option
@store_option
@json_option
def approve(
    approval_id: str,
    by: str | None,
    reason: str | None,
    digest: str | None,
    scope: ApprovalScope,
    like: bool,
    groups: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Approve a waiting call: it runs with exactly the input that was shown.

    \b
    proctor approve run_d133f9c0.1 --by ana
    """  # noqa: D301 - click's mark for lines that are kept as they are
    given = ApprovalAnswer(granted=True, by=by or "", reason=reason, input_digest=digest, groups=groups, scope=scope)
    _answer(approval_id, given, like=like, store=store, as_json=as_json)


@click.command()
@click.argument("approval_id", metavar="ID")
@by_option
@reason_option
@click.option("--tell", metavar="TEXT", help="The text for the model. [default: the rule's, else that you declined]")
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
    """Deny a waiting call; the run continues without it.

    \b
    proctor deny run_d133f9c0.1 --tell "Refunds are made on Mondays."
    """  # noqa: D301 - click's mark for lines that are kept as they are
    given = ApprovalAnswer(granted=False, by=by or "", reason=reason, tell_model=tell, groups=groups)
    _answer(approval_id, given, store=store, as_json=as_json)


def _answer(approval_id: str, given: ApprovalAnswer, *, like: bool = False, store: str | None, as_json: bool) -> None:
    holder = check_person("approve" if given.granted else "deny", store, "answer")
    who, why = acting(given.by, holder, given.reason)
    given = replace(given, by=who, reason=why)
    try:
        answered = operated(lambda service: service.answer(approval_id, given, like=like), store)
    except KeyboardInterrupt:  # while the run was to take up what counts already
        stored = operated(lambda service: service.approval(approval_id), store)
        if stored.state != "requested":
            note(f"`{stored.approval_id}` stays {stored.outcome}, as {stored.answered_by} answered")
        raise
    late = "" if answered.taken_up else "; the run has not received it yet"
    echo_rows([(answered, f"{answered.outcome} by {answered.by}{late}")], as_json=as_json)


@click.command()
@limit_option(100, "requests")
@click.option("--watch", "-w", is_flag=True, help="Show new requests and their answers, until Ctrl-C.")
@store_option
@output_parameter
@json_option
def approvals(limit: int, watch: bool, store: str | None, output: str | None, as_json: bool) -> None:
    """List pending approval requests, oldest first, with the whole input of each call."""
    if watch and output not in (None, "-"):
        raise click.UsageError("`-o` writes a file as a whole, and `--watch` has no end; use `>`")
    with written_to(output):
        _listed(limit, watch, store, as_json)


def _listed(limit: int, watch: bool, store: str | None, as_json: bool) -> None:
    inbox = _Inbox(as_json=as_json)

    async def listed() -> None:
        async with operating(store, must_exist=not watch) as service:
            cursor = str(await service.store.place())
            inbox.show(await service.approvals(limit))
            if watch:
                await inbox.follow(service, cursor)

    try:
        if watch or is_there_as_named(store):
            run_async(listed)
    except KeyboardInterrupt:
        sys.stdout.flush()
    if not (inbox.seen or as_json):
        note("no approval is pending")


class _Inbox:
    """Prints requests, and how those that it has printed are closed."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._open: dict[str, str] = {}
        self._console = console()
        self.seen = False

    def show(self, found: ApprovalList) -> None:
        for approval in found.approvals:
            self._prompt(approval)
        if found.total > len(found.approvals):
            note("more are pending; `--limit` shows them")

    async def follow(self, service: OperatorService, cursor: str) -> None:
        if not self.seen and not self._as_json:
            note("no approval is pending yet")
        async with service.subscribe(after=cursor) as events:
            async for event in events:
                await self._handle(event, service)

    async def _handle(self, event: Event, service: OperatorService) -> None:
        if isinstance(event, ToolApprovalRequested):
            if event.input_digest and not event.ran and event.approval_id not in self._open:
                self._prompt(await service.requested(event))
        elif isinstance(event, ApprovalEvent):
            if self._open.pop(event.approval_id, None) is not None:
                self._close(event.approval_id, state_after(event), event.by)
        elif isinstance(event, TERMINAL):
            for approval_id in [one for one, run_id in self._open.items() if run_id == event.run_id]:
                stored = await service.store.approval(approval_id)
                state, given = (stored.state, stored.answer) if stored else ("withdrawn", None)
                if state != "requested":
                    del self._open[approval_id]
                    self._close(approval_id, state, given.by if given and state != "withdrawn" else None)

    def _prompt(self, request: ApprovalView) -> None:
        self.seen = True
        self._open[request.approval_id] = request.run_id
        if self._as_json:
            echo_json(request)
        else:
            self._console.print(request.approval_id, style="bold", soft_wrap=True)
            for line in approval_details(request):
                self._console.print(f"  {line}")
            sys.stdout.flush()

    def _close(self, approval_id: str, state: ApprovalState, by: str | None) -> None:
        if self._as_json:
            closed: dict[str, Any] = {"approval_id": approval_id, "state": state, "by": by}
            echo_json(closed)
        else:
            echo(f"{approval_id}: {APPROVAL_WORDS[state]}{f' by {by}' if by else ''}")
            sys.stdout.flush()
