"""Approvals by way of the store: what waits for a person, and an answer from any process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from proctor.policies.stream.events import (
    ApprovalEvent,
    ToolApprovalDenied,
    ToolApprovalGranted,
    ToolApprovalRequested,
)

from ..errors import UsageError
from ..machine.approval_events import answered, same_input, shown
from ..ports import ApprovalAnswer, ApprovalRequest, Mail, RunInfo, Store
from ..redaction import Redactor
from ..store.paging import all_runs

_MAY_WAIT = ("running", "cancelled")
"""A run that completes or fails closes what it has asked; one that is cancelled may have been ended to ask."""


def run_of(approval_id: str) -> str:
    """The run an approval was asked by."""
    return approval_id.rpartition(".")[0]


async def pending(store: Store) -> list[ApprovalRequest]:
    """The approvals nobody has answered, oldest first.

    Signals that a call which could not be held has run already are not among them.
    """
    newest_first = [run.session_id async for run in all_runs(store) if run.status in _MAY_WAIT]
    sessions = dict.fromkeys(reversed(newest_first))
    found: list[ApprovalRequest] = []
    for session_id in sessions:
        waiting: dict[str, ApprovalRequest] = {}
        async for event in store.read(session_id):
            if isinstance(event, ToolApprovalRequested) and event.input_digest and not event.ran:
                waiting[event.approval_id] = shown(event)
            elif isinstance(event, ApprovalEvent):
                waiting.pop(event.approval_id, None)
        found.extend(waiting.values())
    return sorted(found, key=requested_at)


def requested_at(request: ApprovalRequest) -> datetime:
    """When an approval was asked for."""
    return request.requested_at or datetime.min.replace(tzinfo=UTC)


async def answer(store: Store, approval_id: str, given: ApprovalAnswer, redactor: Redactor | None = None) -> None:
    """Answer an approval of a run of any process.

    While the run goes on, its owner answers the held call, or records the answer for a call that ran.
    Where the run is over the answer is recorded, and a grant holds for the next run of the session, once. Raises
    UsageError when there is nothing to answer.
    """
    run = await store.run(run_of(approval_id))
    if run is None:
        raise UsageError(f"there is no approval `{approval_id}`")
    given = (redactor or Redactor()).redact(given, run.session_id)
    request = await _open_request(store, run, approval_id)
    check_digest(request, given)
    if (request.held or request.ran) and run.status == "running":
        body = {"approval_id": approval_id, "by": given.by, "reason": given.reason, "tell_model": given.tell_model}
        body["input_digest"] = request.input_digest
        kind: Any = "approve" if given.granted else "deny"
        await store.post(Mail(kind=kind, run_id=run.run_id, body=body, at=datetime.now(UTC)))
        return
    event = answered(request, given)
    stamped: Any = msgspec.structs.replace(event, session_id=run.session_id, at=datetime.now(UTC))
    await store.append([stamped])


def check_digest(request: ApprovalRequest, given: ApprovalAnswer) -> None:
    """Raises UsageError for an answer to another input than the one asked about."""
    if not same_input(request, given.input_digest):
        raise UsageError(f"approval `{request.approval_id}` was asked for another input than the one answered")


async def _open_request(store: Store, run: RunInfo, approval_id: str) -> ApprovalRequest:
    request: ToolApprovalRequested | None = None
    closed: ApprovalEvent | None = None
    async for event in store.read(run.session_id):
        if isinstance(event, ApprovalEvent) and event.approval_id == approval_id:
            if isinstance(event, ToolApprovalRequested):
                request = event
            else:
                closed = event
    if request is None or not request.input_digest:
        raise UsageError(f"there is no approval `{approval_id}` that can be answered")
    if closed is not None:
        raise UsageError(f"approval `{approval_id}` is closed: {_how(closed)}")
    return shown(request)


def _how(event: ApprovalEvent) -> str:
    if isinstance(event, ToolApprovalGranted):
        return f"granted by `{event.by}`"
    if isinstance(event, ToolApprovalDenied):
        return f"denied by `{event.by}`"
    return "expired"
