"""Ending one run or many, and blocking new starts until the block is lifted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from proctor.supervisor import UsageError

from ..operations import ApiRequest, operation
from ..views import BlockView, Cancelled, Ended, Stopped, SwitchView

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
