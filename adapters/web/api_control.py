"""Calls that wait for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import msgspec
from msgspec import structs

from proctor.policies.policy import SCOPES, ApprovalScope
from proctor.supervisor import UsageError
from proctor.supervisor.control.approval_inbox import answer as take
from proctor.supervisor.errors import StoreError
from proctor.supervisor.log import failure, logger
from proctor.supervisor.ports.stored_types import ApprovalAnswer

from ..operations.call_view import call_shown
from ..operations.views import (
    Answered,
    ApprovalList,
    ApprovalView,
    BlockView,
    Cancelled,
    Ended,
    Healthy,
    Stopped,
    SwitchView,
)
from .api_runs import Limit
from .auth import HEALTH, refused
from .endpoints import operation

if TYPE_CHECKING:
    from typing import Any

    from starlette.responses import Response

    from proctor.supervisor.ports.store import Store
    from proctor.supervisor.ports.stored_types import ApprovalRequest

    from ..operations.service import WebRecords
    from .endpoints import ApiRequest


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


Reason = Annotated[str, msgspec.Meta(max_length=2_000)]


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


Seconds = Annotated[float, msgspec.Meta(ge=0, le=30)]


class CancelOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, recorded with the end."""

    reason: Reason = ""


class _Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Name | None = None
    tenant: Name | None = None
    label: Name | None = None
    everything: bool = False
    reason: Reason = ""

    def named(self) -> dict[str, Any]:
        """The scope as the kill switch takes it. Raises UsageError unless exactly one is named."""
        given = (self.session, self.tenant, self.label, self.everything or None)
        if sum(one is not None for one in given) != 1:
            raise UsageError('name one of `session`, `tenant`, `label` (NAME=VALUE), or say `"everything": true`')
        return {
            "session_id": self.session,
            "tenant": self.tenant,
            "label": self.label,
            "everything": self.everything,
        }


class StopOrder(_Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stopped: one of `session`, `tenant`, `label` (NAME=VALUE), or `everything`. `end_runs`: end current
    runs, and wait up to `wait_s` seconds for them; `block_starts`: refuse new ones until that is lifted.
    """

    end_runs: bool = True
    block_starts: bool = True
    wait_s: Seconds = 10


class LiftOrder(_Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which block is lifted: the one of this scope, or with `everything` all of them."""


@operation("POST", "/api/runs/{run_id}/cancel", Cancelled, role="stop", body=CancelOrder, conflicts=True, status=202)
async def cancel(request: ApiRequest) -> Cancelled:
    """End a run in order, in whichever process it is."""
    run = await request.records.run(request.path["run_id"])
    reason = request.body.reason or f"ended by {request.who.name}"
    await request.records.cancel(run, reason=reason, who=request.who)
    return Cancelled(run_id=run.run_id)


@operation("GET", "/api/switch", SwitchView)
async def switch(request: ApiRequest) -> SwitchView:
    """The blocks that refuse starts now."""
    return await _blocks(request)


@operation("POST", "/api/switch", Stopped, role="stop", body=StopOrder)
async def stop(request: ApiRequest) -> Stopped:
    """End runs in every process, and refuse new ones until that is lifted."""
    order: StopOrder = request.body
    kill_switch, by = request.records.switch, request.who.name
    reason = order.reason or f"stopped by {by}"
    named: dict[str, Any] = order.named()
    outcomes: tuple[Ended, ...] = ()
    if order.end_runs:
        found = await kill_switch.kill(
            by=by, reason=reason, block_starts=order.block_starts, wait_s=order.wait_s, **named
        )
        outcomes = msgspec.convert(found, tuple[Ended, ...], from_attributes=True)
    elif order.block_starts:
        await kill_switch.block_starts(by=by, reason=reason, **named)
    return Stopped(outcomes=outcomes, blocks=(await _blocks(request)).blocks)


@operation("POST", "/api/switch/lift", SwitchView, role="stop", body=LiftOrder)
async def lift(request: ApiRequest) -> SwitchView:
    """Let runs start again."""
    order: LiftOrder = request.body
    await request.records.switch.lift(by=request.who.name, reason=order.reason, **order.named())
    return await _blocks(request)


async def _blocks(request: ApiRequest) -> SwitchView:
    found = await request.records.switch.blocks()
    return SwitchView(blocks=msgspec.convert(found, tuple[BlockView, ...], from_attributes=True))


KEPT_S = 1.0
"""Seconds for which a finding is given out again: whoever may ask without a token costs the store little."""


PATIENCE_S = 5.0
"""Seconds in which the store answers."""


class StoreHealth:
    """The health of a server's store, checked on request, with one query at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking = anyio.Lock()
        self._found = True
        self._until = float("-inf")

    async def good(self) -> bool:
        """Whether the store could be read, now or within the last second."""
        async with self._looking:
            if anyio.current_time() >= self._until:
                self._found = await self._look()
                self._until = anyio.current_time() + KEPT_S
            return self._found

    async def _look(self) -> bool:
        try:
            with anyio.fail_after(PATIENCE_S):
                await self._store.runs(limit=1)
        except (StoreError, TimeoutError) as error:
            if self._found:
                logger().warning("web.store_unreachable", **failure(error))
            return False
        return True


@operation("GET", HEALTH, Healthy, role=None)
async def health(request: ApiRequest) -> Healthy | Response:
    """Whether the store can be read."""
    store: StoreHealth = request.http.app.state.health
    if await store.good():
        return Healthy()
    return refused(503, "store_unreachable", "the store cannot be read now; the server's log says why")
