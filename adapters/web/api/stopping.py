"""Ends of runs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..operations import Asked, Operation
from ..views import Cancelled

Reason = Annotated[str, msgspec.Meta(max_length=2_000)]


class Cancel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why; recorded with the end."""

    reason: Reason = ""


async def _cancel(asked: Asked) -> Cancelled:
    run = await asked.records.run(asked.path["run_id"])
    reason = asked.body.reason or f"ended by {asked.who.name}"
    await asked.records.cancel(run, reason=reason, who=asked.who)
    return Cancelled(run_id=run.run_id)


OPERATIONS = (
    Operation(
        "POST",
        "/api/runs/{run_id}/cancel",
        "cancel",
        "End a run in order, whatever process it is in.",
        _cancel,
        Cancelled,
        role="stop",
        body=Cancel,
        conflicts=True,
        status=202,
    ),
)
