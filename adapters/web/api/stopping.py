"""Ends of runs, one or many, and no new starts until that is lifted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from proctor.supervisor import Block, UsageError

from ..operations import ApiRequest, Operation
from ..views import BlockView, Cancelled, Ended, Stopped, SwitchView

Reason = Annotated[str, msgspec.Meta(max_length=2_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=30)]


class CancelOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why; recorded with the end."""

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
    """What is stopped: one of `session`, `tenant`, `label` (NAME=VALUE), or `everything`. `end_runs`: those that go
    on end, and are waited for `wait_s` seconds; `block_starts`: none starts until that is lifted.
    """

    end_runs: bool = True
    block_starts: bool = True
    wait_s: Seconds = 10


class LiftOrder(_Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which block is lifted: the one of this scope; with `everything` every one."""


async def _cancel(request: ApiRequest) -> Cancelled:
    run = await request.records.run(request.path["run_id"])
    reason = request.body.reason or f"ended by {request.who.name}"
    await request.records.cancel(run, reason=reason, who=request.who)
    return Cancelled(run_id=run.run_id)


async def _switch(request: ApiRequest) -> SwitchView:
    return SwitchView(blocks=tuple(map(_block, await request.records.switch.blocks())))


async def _stop(request: ApiRequest) -> Stopped:
    order: StopOrder = request.body
    switch, by = request.records.switch, request.who.name
    reason = order.reason or f"stopped by {by}"
    named: dict[str, Any] = order.named()
    outcomes: tuple[Ended, ...] = ()
    if order.end_runs:
        found = await switch.kill(by=by, reason=reason, block_starts=order.block_starts, wait_s=order.wait_s, **named)
        outcomes = tuple(
            Ended(run_id=each.run_id, session_id=each.session_id, status=each.status, ended=each.ended)
            for each in found
        )
    elif order.block_starts:
        await switch.block_starts(by=by, reason=reason, **named)
    return Stopped(outcomes=outcomes, blocks=(await _switch(request)).blocks)


async def _lift(request: ApiRequest) -> SwitchView:
    order: LiftOrder = request.body
    await request.records.switch.lift(by=request.who.name, reason=order.reason, **order.named())
    return await _switch(request)


def _block(block: Block) -> BlockView:
    return BlockView(scope=block.scope, value=block.value, by=block.by, reason=block.reason, at=block.at)


OPERATIONS = (
    Operation(
        "POST",
        "/api/runs/{run_id}/cancel",
        "cancel",
        "End a run in order, whatever process it is in.",
        _cancel,
        Cancelled,
        role="stop",
        body=CancelOrder,
        conflicts=True,
        status=202,
    ),
    Operation("GET", "/api/switch", "switch", "What blocks starts now.", _switch, SwitchView),
    Operation(
        "POST",
        "/api/switch",
        "stop",
        "End runs on every process, and let none start until that is lifted.",
        _stop,
        Stopped,
        role="stop",
        body=StopOrder,
    ),
    Operation(
        "POST", "/api/switch/lift", "lift", "Let runs start again.", _lift, SwitchView, role="stop", body=LiftOrder
    ),
)
