"""What every store admits to a run's record, and the errors for a rejected claim, append or answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeGuard

import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.errors import Violation
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.policies.policy import SCOPES

from ..errors import StoreError
from ..ports.store import all_commands
from ..ports.stored_types import (
    APPROVAL_WORDS,
    NOBODY_IN_TIME,
    NOT_OVER,
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalState,
    Cancel,
    Owner,
    RunInfo,
    StoredApproval,
)
from .records import run_over

if TYPE_CHECKING:
    from ..ports.store import CommandQueue, RunRegistry, Store


SHOWN_AS_RECORDED = {*ApprovalRequest.__struct_fields__} & {*ev.ToolApprovalRequested.__struct_fields__} - {
    "input_digest",
    "violations",
}
"""The fields that a request and its record have under one name."""


def state_after(event: ev.ApprovalEvent) -> ApprovalState:
    """The state of an approval after an event."""
    match event:
        case ev.ToolApprovalGranted():
            return "granted"
        case ev.ToolApprovalDenied():
            return "denied"
        case ev.ToolApprovalExpired():
            return "withdrawn" if event.withdrawn else "expired"
    return "requested"


def asks(event: ev.ApprovalEvent) -> TypeGuard[ev.ToolApprovalRequested]:
    """Whether an event asks for an approval that can be answered."""
    return isinstance(event, ev.ToolApprovalRequested) and bool(event.input_digest)


def closed(approval: StoredApproval, event: ev.ApprovalEvent) -> StoredApproval:
    """The approval after an event that closes it; an answer that was taken before is kept if the event repeats it, or
    withdraws the request.
    """
    state, answer = state_after(event), approval.answer
    if event.by is None:
        answer = answer if state == "withdrawn" and answer != NOBODY_IN_TIME else None
    elif state != approval.state:
        answer = ApprovalAnswer(granted=state == "granted", by=event.by, reason=event.reason)
    return replace(approval, state=state, answer=answer, answered_at=event.at, recorded=True)


def outlives(approval: StoredApproval, end: ev.Event) -> bool:
    """Whether a pending approval stays pending after this end of its run: it does if the run ended to request it."""
    return approval.request.ran or (isinstance(end, ev.RunCancelled) and not approval.request.held)


def objection(request: ApprovalRequest, given: ApprovalAnswer) -> str | None:
    """Why an answer does not count, by who gives it or how much it would cover; None if it counts."""
    if given == NOBODY_IN_TIME:
        return None
    allowed = request.approvers
    groups = {f"@{group.removeprefix('@')}" for group in given.groups}
    named = given.by in (allowed or ()) and not given.by.startswith("@")  # which is a group
    if allowed is not None and not named and groups.isdisjoint(allowed):
        return f"`{given.by}` may not answer; these may: {', '.join(allowed) or 'nobody'}"
    if request.started_by == "":
        return "who started the run may not answer it, and is not known: give its context a `user`"
    if request.started_by is not None and request.started_by == given.by:
        return f"`{given.by}` started the run; somebody else must answer"
    if given.granted and SCOPES.index(given.scope) > SCOPES.index(request.scope):
        return f"an approval can cover at most `{request.scope}` here, not `{given.scope}`"
    return None


def same_input(request: ApprovalRequest, digest: str | None) -> bool:
    """Whether an answer is for the input that was shown; one without a digest is."""
    return digest is None or digest == request.input_digest


def shown(event: ev.ToolApprovalRequested, call: ToolCall | None = None) -> ApprovalRequest:
    """The request as an approver sees it; `call` replaces the event's own, if more of it is known."""
    return ApprovalRequest(
        **{name: getattr(event, name) for name in SHOWN_AS_RECORDED},
        call=call or ToolCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input),
        input_digest=event.input_digest or input_digest(event.tool_input),
        violations=violations_of(event),
        requested_at=event.at,
    )


def violations_of(event: ev.ToolApprovalRequested) -> tuple[Violation, ...]:
    """The violations that ask."""
    try:
        return msgspec.convert(event.violations, tuple[Violation, ...])
    except msgspec.ValidationError:  # written by another version: the request says what it is about all the same
        return ()


def fenced(run_id: str, owner: Owner | None) -> StoreError:
    """The error of an append to a run that another epoch has claimed."""
    whose = f"is {owner}'s" if owner is not None else "is nobody's"
    return StoreError(f"run `{run_id}` {whose}, not yours: nothing more is recorded of it from here", kind="fenced")


def no_owner(epoch: int) -> StoreError:
    """The error for an epoch without an owner: never given, released, or its lease is over."""
    return StoreError(f"no owner with a lease has epoch {epoch}; renew it, or register again", kind="fenced")


def check_claim(run: RunInfo, epoch: int, *, lost: bool) -> None:
    """Raises StoreError if a run, as it is shown, cannot be claimed by that owner: to be started or, if `lost`, to be
    ended.
    """
    owner = run.owner
    if run.status not in NOT_OVER:
        raise run_over(run.run_id, run.status)
    if owner is not None and not owner.gone and not (owner.epoch == epoch and run.status == "created"):
        raise StoreError(f"run `{run.run_id}` has an owner that is alive: {owner}", kind="claimed")
    if run.status != "created" and not lost:
        message = f"run `{run.run_id}` was started before and its owner is gone: `proctor reap` ends it"
        raise StoreError(message, kind="started")


def check_new(run: RunInfo, *, is_stored: bool) -> None:
    """Raises StoreError for a run without ids, or whose id is taken."""
    if not run.run_id or not run.session_id:
        raise StoreError("a run needs a run_id and a session_id", kind="bad_record")
    if is_stored:
        raise StoreError(f"run `{run.run_id}` exists already; choose another id", kind="run_exists")


def no_run(run_id: str) -> StoreError:
    return StoreError(f"there is no run `{run_id}`; create it first", kind="no_run")


def session_busy(session_id: str, run_id: str, owner: Owner) -> StoreError:
    """The error for a session with another run that is not over."""
    whose = "its owner is gone: `proctor reap` ends it" if owner.gone else f"it is {owner}'s"
    return StoreError(
        f"session `{session_id}` already has a run that is not over: `{run_id}`, and {whose}", kind="session_busy"
    )


def no_approval(approval_id: str) -> StoreError:
    return StoreError(f"there is no approval `{approval_id}`", kind="no_approval")


def check_answerable(approval: StoredApproval, given: ApprovalAnswer) -> None:
    """Raises StoreError if the approval is closed, or the answer is for another input, by somebody who may not
    answer, or for more than a grant may cover.
    """
    name = f"approval `{approval.request.approval_id}`"
    if approval.state != "requested":
        raise StoreError(f"{name} is closed: {how_closed(approval)}", kind="answered")
    if not same_input(approval.request, given.input_digest):
        raise StoreError(f"{name} was requested with another input than the one answered", kind="other_input")
    if (why := objection(approval.request, given)) is not None:
        raise StoreError(f"{name} takes no such answer: {why}", kind="not_allowed")


def how_closed(approval: StoredApproval) -> str:
    """How an approval was closed: by whom and when."""
    given = approval.answer
    at = f" at {approval.answered_at:%Y-%m-%d %H:%M:%S} UTC" if approval.answered_at is not None else ""
    if approval.state == "withdrawn" and given is not None:
        decided = APPROVAL_WORDS["granted" if given.granted else "denied"]
        return f"withdrawn{at}, before the run took up that `{given.by}` had {decided} it"
    by = f" by `{given.by}`" if given is not None else ""
    return f"{APPROVAL_WORDS[approval.state]}{by}{at}"


FLEET = "fleet"
"""The field of a run's spec for the workers of a fleet."""
BEGUN_ELSEWHERE = "begun_elsewhere"
"""The field of an imported run's spec that no worker starts, as it had begun, or ended, before it was exported."""
AGAIN = "again"
"""The field of a run's spec for its retries if it is lost: how many (`times`), and the agent's prompt for one that
continues a session (`prompt`).
"""


def next_of(run: RunInfo) -> RunInfo | None:
    """The run that retries a lost one; None if its spec asks for no retry, or no more."""
    again = run.spec.get(AGAIN, {})
    if again.get("times", 0) < 1:
        return None
    count = again.get("count", 1) + 1
    begun = {"prompt": again["prompt"]} if run.started_seq and again.get("prompt") else {}
    counted = {**again, "times": again["times"] - 1, "count": count}
    first = run.run_id if count == 2 else run.run_id.rpartition(".")[0]
    spec = {name: value for name, value in run.spec.items() if name != BEGUN_ELSEWHERE}
    return RunInfo(
        run_id=f"{first}.{count}",
        session_id=run.session_id,
        provider=run.provider,
        spec={**spec, **begun, AGAIN: counted},
        created_at=datetime.now(UTC),
    )


async def latest(store: Store, run: RunInfo) -> RunInfo:
    """The last retry of a run; the run itself without one. Raises StoreError."""
    while (following := await _stored_next(store, run)) is not None:
        run = following
    return run


async def create_next(store: Store, run: RunInfo) -> None:
    """Create a lost run's retry, once, unless the run is to be cancelled. Raises StoreError."""
    following = next_of(run)
    if following is None or await cancel_for(store, run):
        return
    try:
        created = await store.create_run(following)
    except StoreError as error:
        if error.kind != "run_exists":
            raise
        stored = await _stored_next(store, run)
        if stored is None:
            return  # another run has the name
        created = stored
    command = await cancel_for(store, run)
    if command is not None and command.number <= created.after:  # it came too early to concern the new run
        await store.send_command(
            Cancel(scope="run", value=created.run_id, by=command.by, reason=command.reason, at=command.at)
        )


async def _stored_next(store: RunRegistry, run: RunInfo) -> RunInfo | None:
    following = next_of(run)
    stored = None if following is None else await store.run(following.run_id)
    if following is None or stored is None or stored.session_id != run.session_id:
        return None
    return stored if stored.spec.get(AGAIN) == following.spec[AGAIN] else None


async def cancel_for(store: CommandQueue, run: RunInfo) -> Cancel | None:
    """The command that cancels a run, if one was given since it was created."""
    for command in await all_commands(store, after=run.after):
        if isinstance(command, Cancel) and command.covers(
            run_id=run.run_id, session_id=run.session_id, tenant=run.tenant, labels=run.labels
        ):
            return command
    return None
