"""The handle of a run that was started."""

from __future__ import annotations

from typing import Any

import msgspec
from anyio.lowlevel import checkpoint

from proctor.policies.rules.nets.shorthand import NetLine
from proctor.policies.rules.nets.written import Net
from proctor.policies.stack.ids import net_name
from proctor.policies.stream.events import NetJoined, NetLeft

from ..arguments import check_text
from ..machine.boundary.inputs import CancelAsked
from ..machine.boundary.result import RunResult
from ..ports.adapters import ApprovalRequest
from ..run.actor import RunActor


class RunHandle:
    """A started run, in the hands of its caller."""

    __slots__ = ("_actor", "run_id", "session_id")

    def __init__(self, actor: RunActor, *, run_id: str, session_id: str) -> None:
        self._actor = actor
        self.run_id = run_id
        self.session_id = session_id

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._actor.finished.is_set()

    @property
    def released(self) -> bool:
        """False if the agent did not end and was left behind; an event loop that closes will wait for it."""
        return self._actor.released

    async def cancel(self, *, reason: str = "user", by: str = "") -> None:
        """Order the run to end; `by` names the person who ordered it, if any. `wait` returns how it ended."""
        check_text(reason=reason, by=by)
        self._actor.cancel(CancelAsked(now_ms=self._actor.now_ms(), reason=reason, person=by))
        await checkpoint()

    async def cancel_for_approval(self, request: ApprovalRequest, *, by: str = "") -> None:
        """Order the run to end so that this call can be approved first; `by` is the person who ordered it, if any."""
        check_text(by=by)
        why, now_ms = "waiting for approval", self._actor.now_ms()
        self._actor.cancel(CancelAsked(now_ms=now_ms, reason=why, by="approval", approval=request, person=by))
        await checkpoint()

    def add_net(self, net: str | NetLine | Net, **attached: Any) -> None:
        """Judge this run by one more net from now on; a net that was removed before resumes its state.

        `validate`, `on_result` and `mapper` may be attached. The net is recorded as `net_joined`; what the attached
        callables do is not recorded. Raises ValueError for anything that is not a net, and if a net of that name
        is active.
        """
        self._actor.nets.add_net(net, **attached)
        written: Any = net if isinstance(net, str) else msgspec.to_builtins(net)
        given = tuple(sorted(name for name, function in attached.items() if function is not None))
        self._actor.record_net(NetJoined(name=net_name(net), net=written, attached=given))

    def remove_net(self, name: str) -> None:
        """Judge this run without a net from now on; it keeps its state. Raises KeyError if no net has the name."""
        self._actor.nets.remove_net(name)
        self._actor.record_net(NetLeft(name=name))

    def status(self) -> str:
        """The state of the run's nets and the tools that each allows now, in words suitable for a prompt."""
        return self._actor.nets.status()

    def resolve(self, tool: str, input: dict[str, Any] | None = None) -> dict[str, str]:
        """What each of the run's nets would answer now to a call: `free`, `abstain`, `gated` or `blocked`, by its id.

        Raises ValueError for anything that is not a tool's name and an input.
        """
        return dict(self._actor.nets.resolve(tool, input))

    async def wait_finished(self) -> None:
        """Wait until the run is over, however it ended."""
        await self._actor.finished.wait()

    async def wait(self) -> RunResult:
        """The result, once the run is over.

        Raises PolicyViolationError if a policy cancelled it, StoreError if it could not be recorded, else the
        provider's own error, with the policy report as its `policy`. Each carries the result so far as its
        `partial`.
        """
        await self._actor.finished.wait()
        return self._actor.result()
