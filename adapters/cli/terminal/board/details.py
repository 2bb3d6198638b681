"""One row in full: what is approved is what is read here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proctor.adapters.kit.values.printable import encoded, printable

from ..asking import who_asks
from .rows import about, bar

if TYPE_CHECKING:
    from proctor.policies.monitor.usage.limits import LimitUse
    from proctor.supervisor import RunInfo, StoredApproval


def approval_details(approval: StoredApproval) -> Iterator[str]:
    """The whole call, and why a person is asked."""
    request = approval.request
    yield request.approval_id
    yield f"call     {printable(request.call.name)}"
    for name, value in request.call.input.items():
        yield f"  {printable(name)}: {encoded(value)}"
    for rule, why in who_asks(request):
        yield f"asked by {rule}"
        yield f"why      {why}"
    if request.approvers is not None:
        yield f"may say  {', '.join(printable(name) for name in request.approvers) or 'nobody'}"
    if request.expires_at:
        yield f"expires  {request.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def run_details(run: RunInfo, limits: tuple[LimitUse, ...]) -> Iterator[str]:
    """A run, its limits, and what there is to type for more."""
    yield f"{run.status} {run.run_id}"
    yield f"session  {run.session_id}"
    if run.spec.get("prompt"):
        yield f"prompt   {encoded(run.spec['prompt'])}"
    if run.labels:
        yield f"labels   {', '.join(printable(f'{name}={value}') for name, value in run.labels.items())}"
    if run.started_at is not None:
        yield f"began    {run.started_at:%Y-%m-%d %H:%M:%S} UTC"
    if run.owner is not None:
        yield f"owner    {printable(str(run.owner))}"
    yield f"so far   {', '.join(about(run))}"
    yield from (f"         {bar(use)}" for use in limits)
    yield ""
    yield f"proctor tail --follow --run {run.run_id}"
    yield f"proctor explain {run.run_id}"
