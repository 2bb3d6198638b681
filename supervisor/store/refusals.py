"""What every store says when it refuses a claim, an append or an answer."""

from __future__ import annotations

from ..errors import StoreError
from ..ports.facts import ApprovalAnswer, Owner, StoredApproval
from .approvals import objection, same_input


def fenced(run_id: str, owner: Owner | None) -> StoreError:
    """An append to a run that another epoch has claimed."""
    whose = f"is {owner}'s" if owner is not None else "is nobody's"
    return StoreError(f"run `{run_id}` {whose}, not yours: nothing more is recorded of it from here", kind="fenced")


def no_owner(epoch: int) -> StoreError:
    """An epoch that the store gave to nobody, or whose owner has left."""
    return StoreError(f"no owner has epoch {epoch}; register first", kind="fenced")


def no_run(run_id: str) -> StoreError:
    """A run that was never registered."""
    return StoreError(f"there is no run `{run_id}`; create it first", kind="no_run")


def run_over(run_id: str, status: str) -> StoreError:
    """A run that has ended."""
    return StoreError(f"run `{run_id}` is over: it is {status}", kind="run_over")


def started(run_id: str) -> StoreError:
    """A run that went on already when somebody wanted to start it."""
    return StoreError(
        f"run `{run_id}` was started before and its owner is gone: `proctor reap` ends it", kind="started"
    )


def claimed(run_id: str, owner: Owner) -> StoreError:
    """A run with an owner that is there."""
    return StoreError(f"run `{run_id}` has an owner that is alive: {owner}", kind="claimed")


def session_busy(session_id: str, run_id: str, owner: Owner) -> StoreError:
    """A session with another run that is not over."""
    whose = "its owner is gone: `proctor reap` ends it" if owner.gone else f"it is {owner}'s"
    return StoreError(
        f"session `{session_id}` already has a run that is not over: `{run_id}`, and {whose}", kind="session_busy"
    )


def no_approval(approval_id: str) -> StoreError:
    """An approval that nobody asked for."""
    return StoreError(f"there is no approval `{approval_id}`", kind="no_approval")


def check_answerable(approval: StoredApproval, given: ApprovalAnswer) -> None:
    """Raises StoreError for an approval that takes no answer any more, or not this one: to another input, by somebody
    who may not answer, for more than a yes may cover.
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
    by = f" by `{approval.answer.by}`" if approval.answer is not None else ""
    at = f" at {approval.answered_at:%Y-%m-%d %H:%M:%S} UTC" if approval.answered_at is not None else ""
    return f"{approval.state}{by}{at}"
