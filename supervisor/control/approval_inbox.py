"""Approvals through the store: pending requests, and answers from any process."""

from datetime import UTC, datetime
from typing import Any

import anyio
from msgspec.structs import replace

from ..arguments import check_seconds, check_store, checked_answer
from ..errors import ApprovalError, StoreError, UsageError
from ..machine.event_factory import answered
from ..ports.store import POLL_S, ApprovalStore, Store, wait_again
from ..ports.stored_types import NOT_OVER, ApprovalAnswer, ApprovalRequest, RunInfo, StoredApproval
from ..redaction import Redactor
from ..run.tasks import calls_store
from ..store.invariants import how_closed

TAKEN_UP_S = 5.0
"""How many seconds an answer waits for the run's owner to act on it."""
_PAGE = 500
_NOT_GIVEN = ("granted", "by", "tell_model", "expired")
"""Fields of an answer that callers do not pass in `fields`."""


@calls_store
async def pending(store: ApprovalStore) -> list[ApprovalRequest]:
    """The pending approval requests, oldest first.

    Requests for calls that have already run because they could not be held are not among them.
    """
    check_store(store)
    found: list[ApprovalRequest] = []
    after = 0
    while page := await store.approvals(after=after, limit=_PAGE):
        found.extend(approval.request for approval in page)
        after = page[-1].number
    return found


def requested_at(request: ApprovalRequest) -> datetime:
    return request.requested_at or datetime.min.replace(tzinfo=UTC)


def grant_of(by: str, **fields: Any) -> ApprovalAnswer:
    """An approval. Raises UsageError for a field that `ApprovalAnswer` does not have."""
    takes = [name for name in ApprovalAnswer.__struct_fields__ if name not in _NOT_GIVEN]
    for name in fields:
        if name not in takes:
            raise UsageError(f"`{name}` is not known here; known are {', '.join(f'`{one}`' for one in takes)}")
    return ApprovalAnswer(granted=True, by=by, **fields)


async def answer(
    store: Store,
    approval_id: str,
    given: ApprovalAnswer,
    redactor: Redactor | None = None,
    *,
    wait_s: float = TAKEN_UP_S,
) -> StoredApproval:
    """Answer an approval request of a run in any process. The first answer counts.

    If the run is not over, its owner acts on the answer: this waits until that is recorded, and the returned
    approval says whether it is. If the run is over, the answer is recorded, and a grant holds once, for the
    next run of the session.

    Args:
        store: where the approval is.
        approval_id: the approval.
        given: the answer.
        redactor: removes secrets from the answer; by default the usual patterns.
        wait_s: seconds to wait for the owner.

    Raises:
        ApprovalError: the answer was rejected; its `kind` says why.
    """
    check_seconds(wait_s=wait_s)
    return await wait_recorded(store, await record_answer(store, approval_id, given, redactor), wait_s=wait_s)


@calls_store
async def record_answer(
    store: Store, approval_id: str, given: ApprovalAnswer, redactor: Redactor | None = None
) -> StoredApproval:
    """Record an answer, if it is the first, and notify the owner of the run. Raises ApprovalError."""
    check_store(store)
    given = checked_answer(given)
    approval = await store.approval(approval_id)
    if approval is None:
        raise ApprovalError(f"there is no approval `{approval_id}`", kind="unknown")
    given = replace(given, expired=False)  # only the owner of the run says that the time is up
    given = (redactor or Redactor()).redact(given, approval.request.session_id)
    run = await store.run(approval.request.run_id)
    goes_on = run is not None and run.status in NOT_OVER
    if run is not None and approval.state == "requested" and goes_on:
        _check_owned(run, approval)
    now = datetime.now(UTC)
    expires = approval.request.expires_at
    if approval.state == "requested" and goes_on and expires is not None and expires < now:
        # The owner says so at that moment, unless its process stands still.
        what = f"approval `{approval_id}` is closed: expired at {expires:%Y-%m-%d %H:%M:%S} UTC"
        raise ApprovalError(what, kind="expired", approval=approval)
    event: Any = None
    if not goes_on:
        record: Any = answered(approval.request, given)
        event = replace(record, session_id=approval.request.session_id, at=now)
    try:
        return await store.answer(approval_id, given, at=now, event=event)
    except StoreError as error:
        raise await _refused(store, approval_id, error) from error


@calls_store
async def wait_recorded(store: Store, approval: StoredApproval, *, wait_s: float = TAKEN_UP_S) -> StoredApproval:
    """Wait until the owner of the run has acted on a recorded answer, also while the store cannot be read: the answer
    counts. Raises ApprovalError if the owner closed the approval otherwise, or is gone.
    """
    id, state = approval.request.approval_id, approval.state
    token = 0
    with anyio.move_on_after(wait_s):
        while not approval.recorded:
            try:
                token = await wait_again(store, token)
                run = await store.run(approval.request.run_id)
                approval = await store.approval(id) or approval
            except StoreError:
                await anyio.sleep(POLL_S)
                continue
            if not approval.recorded and run is not None:
                _check_owned(run, approval)
    if approval.state != state:
        raise _closed_error(approval)
    return approval


def _check_owned(run: RunInfo, approval: StoredApproval) -> None:
    """Raises ApprovalError if nobody would act on an answer."""
    name = f"approval `{approval.request.approval_id}`"
    if run.asks_itself:
        raise ApprovalError(
            f"{name} can only be answered in the client, which asks its user itself",
            kind="asks_itself",
            approval=approval,
        )
    if run.owner is None or run.owner.gone:
        whose = "nobody owns its run" if run.owner is None else f"{run.owner}, which asked, is gone"
        raise ApprovalError(
            f"{name} cannot be answered: {whose}; a run that resumes its session asks again",
            kind="owner_gone",
            approval=approval,
        )


async def _refused(store: ApprovalStore, approval_id: str, error: StoreError) -> Exception:
    """The error that says why the store rejected an answer."""
    try:
        approval = await store.approval(approval_id)
    except StoreError:
        return StoreError(f"{error}; whether the answer counts is not known: look again", kind=error.kind)
    match error.kind:
        case "answered" if approval is not None:
            return _closed_error(approval)
        case "other_input" | "not_allowed":
            return ApprovalError(str(error), kind=error.kind, approval=approval)
    return error


def _closed_error(approval: StoredApproval) -> ApprovalError:
    kind = approval.state if approval.state in ("expired", "withdrawn") else "answered"
    name = f"approval `{approval.request.approval_id}`"
    return ApprovalError(f"{name} is closed: {how_closed(approval)}", kind=kind, approval=approval)
