"""What a person does: answer calls that wait, cancel runs, stop all of them, see that the server works."""

from typing import Annotated, Literal

import anyio
import msgspec
from starlette.responses import Response

from proctor.policies.policy import ApprovalScope
from proctor.policies.values.foreign_code import error_text
from proctor.supervisor import UsageError
from proctor.supervisor.control.kill_switch import Scope, scope_of
from proctor.supervisor.errors import StoreError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.store import Store
from proctor.supervisor.ports.stored_types import ApprovalAnswer

from ..operations import views
from .api_runs import Limit
from .auth import HEALTH, refused
from .endpoints import ApiRequest, operation

_ONE = "/api/approvals/{approval_id}"
Words = Annotated[str, msgspec.Meta(max_length=10_000)]


class ApprovalQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many approvals to list, oldest first."""

    limit: Limit = 100


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a pending call.

    `input_digest` is the digest of the input that was shown: a grant covers this input only. `reason` is for the
    record; `tell_model` is the text for the model if the call is denied. `scope` is the coverage of a grant: this
    call (`once`), or also later ones of the `run` or the `session` that the same rules ask about, if the policy
    allows it; with `like`, only those that the approval's `like` admits.
    """

    answer: Literal["grant", "deny"]
    input_digest: str
    reason: Words | None = None
    tell_model: Words | None = None
    scope: ApprovalScope = "once"
    like: bool = False


@operation("GET", "/api/approvals", views.ApprovalList, query=ApprovalQuery)
async def approvals(request: ApiRequest) -> views.ApprovalList:
    """The calls that wait for a person, oldest first."""
    return await request.service.approvals(request.query.limit)


@operation("GET", "/api/runs/{run_id}/approvals", views.ApprovalList, query=ApprovalQuery)
async def run_approvals(request: ApiRequest) -> views.ApprovalList:
    """The calls of a run that wait for a person, oldest first."""
    run = await request.service.run_named(request.path["run_id"])
    return await request.service.approvals(request.query.limit, run_id=run.run_id)


@operation("GET", _ONE, views.ApprovalView)
async def approval(request: ApiRequest) -> views.ApprovalView:
    """One approval, with its current state."""
    return await request.service.approval(request.path["approval_id"])


@operation("POST", f"{_ONE}/answer", views.Answered, role="answer", body=Answer, conflicts=True)
async def answer(request: ApiRequest) -> views.Answered:
    """Grant or deny a call that waits, in the name of the token's holder."""
    body: Answer = request.body
    given = ApprovalAnswer(
        granted=body.answer == "grant",
        by=request.who.name,
        reason=body.reason,
        input_digest=body.input_digest,
        tell_model=body.tell_model,
        groups=request.who.groups,
        scope=body.scope,
    )
    return await request.service.answer(request.path["approval_id"], given, like=body.like)


Reason = Annotated[str, msgspec.Meta(max_length=2_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=30)]


class CancelCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason, which is recorded with the run's end."""

    reason: Reason = ""


class _ScopedCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Name | None = None
    tenant: Name | None = None
    label: Name | None = None
    everything: bool = False
    reason: Reason = ""

    def scope(self) -> Scope:
        """The named target. Raises UsageError unless exactly one is given."""
        if [self.session, self.tenant, self.label].count(None) + (not self.everything) != 3:
            raise UsageError('name one of `session`, `tenant`, `label` (NAME=VALUE), or say `"everything": true`')
        return scope_of(session_id=self.session, tenant=self.tenant, label=self.label, everything=self.everything)


class StopCommand(_ScopedCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs to stop, by one of `session`, `tenant`, `label` (NAME=VALUE), or `everything`. `end_runs`: end current
    runs, and wait up to `wait_s` seconds for them; `block_starts`: reject new ones until that is lifted.
    """

    end_runs: bool = True
    block_starts: bool = True
    wait_s: Seconds = 10


class ScopeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scope: a `session`, a `tenant`, a `label` (NAME=VALUE); without any, all runs."""

    session: Name | None = None
    tenant: Name | None = None
    label: Annotated[str, msgspec.Meta(pattern="^[^=]+=")] | None = None


class LiftCommand(_ScopedCommand, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block to lift: the one of this scope, or with `everything` all of them."""


@operation(
    "POST", "/api/runs/{run_id}/cancel", views.Cancelled, role="stop", body=CancelCommand, conflicts=True, status=202
)
async def cancel(request: ApiRequest) -> views.Cancelled:
    """Cancel a run, in whichever process it is."""
    reason = request.body.reason or f"ended by {request.who.name}"
    run = await request.service.cancel(request.path["run_id"], by=request.who.name, reason=reason)
    return views.Cancelled(run_id=run.run_id)


@operation("GET", "/api/switch", views.SwitchView)
async def switch(request: ApiRequest) -> views.SwitchView:
    """The blocks that refuse starts now."""
    return views.SwitchView(blocks=await request.service.blocks())


@operation("GET", "/api/switch/affected", views.Affected, query=ScopeQuery)
async def affected(request: ApiRequest) -> views.Affected:
    """How many runs a command of this scope would cancel; without a scope, how many of all."""
    query: ScopeQuery = request.query
    named = {"session_id": query.session, "tenant": query.tenant, "label": query.label}
    return await request.service.affected(scope_of(**named, everything=not any(named.values())))


@operation("POST", "/api/switch", views.Stopped, role="stop", body=StopCommand)
async def stop(request: ApiRequest) -> views.Stopped:
    """End runs in every process, and refuse new ones until that is lifted."""
    command: StopCommand = request.body
    by = request.who.name
    return await request.service.stop(
        command.scope(),
        by=by,
        reason=command.reason or f"stopped by {by}",
        end_runs=command.end_runs,
        block_starts=command.block_starts,
        wait_s=command.wait_s,
    )


@operation("POST", "/api/switch/lift", views.Lifted, role="stop", body=LiftCommand)
async def lift(request: ApiRequest) -> views.Lifted:
    """Let runs start again."""
    command: LiftCommand = request.body
    return await request.service.lift(command.scope(), by=request.who.name, reason=command.reason)


@operation("GET", "/api/board", views.Board)
async def board(request: ApiRequest) -> views.Board:
    """Active runs with their limits, waiting calls and freezes: what `proctor watch` shows."""
    return await request.service.board()


KEPT_S = 1.0
"""How many seconds a result is cached, so that requests without a token cost the store little."""
PATIENCE_S = 5.0
"""How many seconds the store may take to answer."""


class StoreHealth:
    """The health of a server's store, checked on request, with one query at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checking = anyio.Lock()
        self._found = True
        self._until = float("-inf")

    async def good(self) -> bool:
        """Whether the store could be read, now or within the last second."""
        async with self._checking:
            if anyio.current_time() >= self._until:
                self._found = await self._poll()
                self._until = anyio.current_time() + KEPT_S
            return self._found

    async def _poll(self) -> bool:
        why = f"no answer within {PATIENCE_S:g} s"
        with anyio.move_on_after(PATIENCE_S):
            try:
                await self._store.runs(limit=1)
            except StoreError as error:
                why = error_text(error)
            else:
                return True
        if self._found:
            logger().warning("web.store_unreachable", error=why)
        return False


@operation("GET", HEALTH, views.Healthy, role=None)
async def health(request: ApiRequest) -> views.Healthy | Response:
    """Whether the store can be read."""
    store: StoreHealth = request.http.app.state.health
    if await store.good():
        return views.Healthy()
    return refused(503, "store_unreachable", "the store cannot be read now; the server's log says why")
