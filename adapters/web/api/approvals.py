"""Calls that wait for a person."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import structs

from proctor.policies.policy import SCOPES, ApprovalScope
from proctor.supervisor.control.approvals import answer as take
from proctor.supervisor.ports.adapters import ApprovalAnswer, ApprovalRequest

from ..call_shown import call_shown
from ..operations import ApiRequest, operation
from ..queries import WebRecords
from ..views import Answered, ApprovalList, ApprovalView
from .runs import Limit

_ONE = "/api/approvals/{approval_id}"
Words = Annotated[str, msgspec.Meta(max_length=10_000)]


class ApprovalQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many approvals; the oldest come first."""

    limit: Limit = 100


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a call that waits.

    `input_digest` is the digest of the input that was shown: a grant holds for this input only. `reason` is for
    the record; `tell_model` is what the model is told about a denied call. `scope` is what a grant covers: this call
    (`once`), or also later ones of the `run` or the `session` that the same rules ask about, if the policy says so.
    """

    answer: Literal["grant", "deny"]
    input_digest: str
    reason: Words | None = None
    tell_model: Words | None = None
    scope: ApprovalScope = "once"


@operation("GET", "/api/approvals", ApprovalList, query=ApprovalQuery)
async def approvals(request: ApiRequest) -> ApprovalList:
    """The calls that wait for a person, oldest first."""
    waiting = await request.records.waiting()
    shown = [await _view(request.records, held) for held in waiting[: request.query.limit]]
    return ApprovalList(approvals=tuple(shown), total=len(waiting))


@operation("GET", _ONE, ApprovalView)
async def approval(request: ApiRequest) -> ApprovalView:
    """One approval, with its current state."""
    found = await request.records.approval(request.path["approval_id"])
    given = found.answer
    return structs.replace(
        await _view(request.records, found.request),
        state=found.state,
        answered_by=given.by if given else None,
        answered_at=found.answered_at,
        answer_reason=given.reason if given else None,
    )


@operation("POST", f"{_ONE}/answer", Answered, role="answer", body=Answer, conflicts=True)
async def answer(request: ApiRequest) -> Answered:
    """Grant or deny a call that waits, in the name of the token's holder."""
    approval_id, body = request.path["approval_id"], request.body
    given = ApprovalAnswer(
        granted=body.answer == "grant",
        by=request.who.name,
        reason=body.reason,
        input_digest=body.input_digest,
        tell_model=body.tell_model,
        groups=request.who.groups,
        scope=body.scope,
    )
    await take(request.records.store, approval_id, given)
    return Answered(approval_id=approval_id, answer=body.answer, by=request.who.name)


async def _view(records: WebRecords, request: ApprovalRequest) -> ApprovalView:
    run = await records.run(request.run_id)
    return ApprovalView(
        approval_id=request.approval_id,
        run_id=request.run_id,
        session_id=request.session_id,
        tool_name=request.call.name,
        tool_call_id=request.call.id,
        tool_input=request.call.input,
        input_digest=request.input_digest,
        shown=call_shown(request.call, await records.tools_of(request.run_id)),
        policy=request.policy_name,
        kind=request.violation_kind,
        reason=request.reason,
        violations=request.violations,
        requested_at=request.requested_at,
        expires_at=request.expires_at,
        held=request.held,
        approvers=request.approvers,
        started_by=request.started_by,
        scopes=SCOPES[: SCOPES.index(request.scope) + 1],
        prompt=str(run.spec.get("prompt", "")),
        provider=run.provider,
    )
