"""A waiting call, a run, a block as lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from proctor.adapters.kit.values.printable import encoded, printable

from ...moments import amount, counted, dollars, took

if TYPE_CHECKING:
    from proctor.policies.monitor.usage.limits import LimitUse
    from proctor.supervisor import RunInfo, StoredApproval

    from .board import Board

_BAR = 10
_INPUT = 60
"""So much of a call's input is on its row; its details have all of it."""


def heading(board: Board) -> str:
    """How much goes on."""
    count = f"{len(board.runs)} or more" if board.more else str(len(board.runs))
    return f"{count} going on, {len(board.approvals)} waiting for a person"


def approval_lines(approval: StoredApproval) -> Iterator[Text]:
    """A call that waits."""
    request = approval.request
    yield Text(f"waits    {request.approval_id}", "yellow")
    shown = encoded(request.call.input)
    yield Text(
        f"         {printable(request.call.name)} {shown if len(shown) < _INPUT else shown[: _INPUT - 1] + '…'}"
    )


def run_lines(run: RunInfo, limits: tuple[LimitUse, ...]) -> Iterator[Text]:
    """A run that goes on, with a bar for each of its limits."""
    yield Text(f"{run.status:<8} {run.run_id}", "red" if run.status == "lost" else "green")
    yield Text(f"         {'  '.join(about(run))}")
    for use in limits:
        yield Text(f"         {bar(use)}", "red" if use.exceeded else "")


def about(run: RunInfo) -> Iterator[str]:
    """Whose it is, how long it takes, what it did and used."""
    yield printable(run.provider) or "no agent yet"
    if run.tenant:
        yield printable(run.tenant)
    if run.started_at is not None:
        yield took(max(0, round((datetime.now(UTC) - run.started_at).total_seconds() * 1000)))
    yield counted(run.calls, "call")
    if run.violations:
        yield counted(run.violations, "violation")
    if run.usage.total_tokens:
        yield f"{amount(run.usage.total_tokens)} tokens"
    if run.usage.cost_usd:
        yield dollars(run.usage.cost_usd)


def bar(use: LimitUse) -> str:
    """How much of a limit is used, in words and as a bar of characters."""
    part = min(use.used / use.max, 1.0) if use.max else 1.0
    return f"[{'#' * round(part * _BAR):<{_BAR}}] {use.limit}: {use.used:g} of {use.max:g}"
