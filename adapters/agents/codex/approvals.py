"""The client's questions before it acts: read as calls, proposed to the gate, and answered.

A request that matches no announced call is denied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import anyio
import msgspec

from proctor.policies.events.calls import ToolCall, same_input
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer

from ...kit.gate import CallGate, EventStream
from ...kit.jsonrpc import METHOD_NOT_FOUND, RpcError
from .items import CodexItem, leaves, tool_input, tool_name
from .live_rollout import Rollouts
from .sandbox import Bounds
from .session_log import call_input, call_name
from .translation import CodexCall, CodexTranslation

ACCEPT: Final = {"decision": "accept"}
DECLINE: Final = {"decision": "decline"}
CANCEL: Final = {"decision": "cancel"}
NO_PERMISSIONS: Final[dict[str, Any]] = {"permissions": {}, "scope": "turn"}
"""The answer to a request for more permissions: none."""


class CodexProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the client holds. `escalated`: whether it would run outside the sandbox; None if unknown."""

    id: str
    name: str
    input: dict[str, Any]
    escalated: bool | None = False


def command_proposal(params: dict[str, Any], arguments: dict[str, Any] | None) -> CodexProposal | None:
    """A command that the client wants to run, with the model's `arguments` as far as they are known; None if the
    request is about something else.
    """
    # input for a running command, network hosts and parts of scripts are asked for with features that are off
    if params.get("kind", "command") != "command" or params.get("approvalId") is not None:
        return None
    if params.get("networkApprovalContext") is not None or not isinstance(params.get("command"), str):
        return None
    escalated = None if arguments is None else arguments.get("sandbox_permissions", "use_default") != "use_default"
    if params.get("additionalPermissions") is not None:
        escalated = True
    about = {"escalated": escalated is not False, "reason": params.get("reason")}
    return CodexProposal(
        id=str(params.get("itemId")),
        name="shell",
        input={
            **tool_input({**params, "type": "commandExecution"}),
            **{name: value for name, value in about.items() if value},
        },
        escalated=escalated,
    )


def patch_proposal(item: CodexItem | None, *, escalated: bool) -> CodexProposal | None:
    """A file change that the client wants to make, from the item it announced."""
    if item is None or item.get("type") != "fileChange":
        return None
    more = {"escalated": True} if escalated else {}
    return CodexProposal(
        id=str(item["id"]), name=tool_name(item), input={**tool_input(item), **more}, escalated=escalated
    )


def mcp_proposal(params: dict[str, Any], announced: Iterable[CodexItem]) -> CodexProposal | None:
    """An MCP server's tool that the client wants to call; None for a question of the server itself.

    The request names server and arguments but neither tool nor call: these are those of a call that was `announced`
    and not asked about yet.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or meta.get("codex_approval_kind") != "mcp_tool_call":
        return None
    message = str(params.get("message"))
    for item in announced:
        if (
            item.get("type") == "mcpToolCall"
            and item.get("server") == params.get("serverName")
            and (item.get("arguments") or {}) == (meta.get("tool_params") or {})
            and f'"{item.get("tool")}"' in message
        ):
            return CodexProposal(id=str(item["id"]), name=tool_name(item), input=tool_input(item))
    return None


ONE_ID: Final = "another call has the same id"
OUTSIDE: Final = "it would leave the sandbox, or the client did not say that it would not"
_WITHHELD: Final = GateAnswer(allowed=False)


class CodexCalls:
    """The calls of a run: proposed to the gate as the client asks about them, reported as its records have them."""

    def __init__(
        self, gate: CallGate, stream: EventStream, translation: CodexTranslation, rollouts: Rollouts, bounds: Bounds
    ) -> None:
        self._gate = gate
        self._stream = stream
        self._translation = translation
        self._rollouts = rollouts
        self._bounds = bounds
        self._shared: set[str] = set()
        self._change = anyio.Event()

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises RpcError for an unknown one."""
        thread = str(params.get("threadId") or self._translation.threads.own)
        match method:
            case "item/commandExecution/requestApproval":
                return self._decided(await self._propose(await self._command(params, thread), thread), thread)
            case "item/fileChange/requestApproval":
                return self._decided(await self._propose(self._patch(params), thread), thread)
            case "mcpServer/elicitation/request":
                proposal = mcp_proposal(params, self._translation.announced(thread))
                allowed = (await self._propose(proposal, thread)).allowed
                return {"action": "accept", "content": {}} if allowed else {"action": "decline"}
            case "item/permissions/requestApproval":
                return NO_PERMISSIONS
        raise RpcError(METHOD_NOT_FOUND, f"`{method}` is not answered here")

    async def attempts(self) -> None:
        """Evaluate calls of tools that the client was started without, which only its records show."""
        for thread in self._rollouts.threads():
            rollout = await self._rollouts.of(thread)
            await rollout.read()
            for call_id, item in rollout.pop_unsupported().items():
                call = self._translation.call_of(thread, call_id, call_name(item), call_input(item))
                await self._gate.attempted(call)

    def ids(self) -> list[str]:
        """The ids of the running calls, without held and denied ones."""
        return [call.id for call in self._translation.calls if call.runs]

    async def catch_up(self, thread: str) -> None:
        """Report what the client has recorded of a thread and not reported, so that a call is evaluated on that."""
        rollout = await self._rollouts.of(thread)
        await rollout.read()
        outputs, run = rollout.pop_outputs(), self.ids()
        ended = {call_id: outputs[call_id] for call_id in run if call_id in outputs}
        self._stream.send_nowait(*self._translation.recorded(thread, rollout.usage, ended))

    async def report_recorded(self) -> None:
        """Report the outcomes in all the client's records that were read before."""
        if self.ids():
            for thread in self._rollouts.threads():
                await self.catch_up(thread)

    def changed(self) -> None:
        """Note that the client reported something."""
        self._change.set()

    async def drain(self) -> None:
        """Wait until none runs."""
        while self.ids():
            self._change = anyio.Event()
            await self._change.wait()

    def end(self) -> None:
        """Report the calls that still run as ended with the run."""
        for call in self._translation.calls:
            if call.runs:
                call.running, call.name = False, tool_name(call.item)
                self._stream.send_nowait(
                    call.ended({"message": "ended with the run, its outcome unknown"}, failed=True)
                )

    async def _command(self, params: dict[str, Any], thread: str) -> CodexProposal | None:
        written: dict[str, Any] | None = {}
        if self._bounds.sandboxed:
            written = await (await self._rollouts.of(thread)).arguments(str(params.get("itemId")))
        return command_proposal(params, written)

    def _patch(self, params: dict[str, Any]) -> CodexProposal | None:
        call = self._translation.calls.get(str(params.get("itemId")))
        item = call.item if call is not None and call.running else None
        outside = item is not None and (self._bounds.folder is None or leaves(item, str(self._bounds.folder)))
        escalated = (self._bounds.sandboxed and outside) or params.get("grantRoot") is not None
        return patch_proposal(item, escalated=escalated)

    def _decided(self, answer: GateAnswer, thread: str) -> dict[str, Any]:
        if answer.allowed:
            return ACCEPT
        # `cancel` ends the turn of the thread that asks, which for a subagent is not the turn of the run
        return CANCEL if answer.stop and self._translation.threads.is_own(thread) else DECLINE

    async def _propose(self, proposal: CodexProposal | None, thread: str) -> GateAnswer:
        if proposal is None:
            return _WITHHELD
        self._translation.calls.request(proposal.id).proposed = True
        await self.catch_up(thread)
        if self._translation.threads.is_own(thread):
            self._stream.send_nowait(*self._translation.response_begins())
        proposed = self._translation.call_of(thread, proposal.id, proposal.name, proposal.input)
        call = self._translation.calls.request(proposal.id)
        if self._clashes(call, proposed):
            return _WITHHELD
        call.asked_for = proposed.input
        answer = await self._gate.propose(proposed)
        if answer.allowed and await self._is_shared(proposed.id, thread):
            answer = self._gate.reject(proposed, ONE_ID)
        if answer.allowed and proposal.escalated is not False and self._bounds.confined:
            answer = self._gate.reject(proposed, OUTSIDE)
        call = self._translation.calls.request(proposal.id)  # it may have ended meanwhile, and another begun
        call.allowed, call.over = call.allowed or answer.allowed, call.over or not answer.allowed
        call.refused = not answer.allowed
        return answer

    def _clashes(self, call: CodexCall, proposed: ToolCall) -> bool:
        """Whether another call of this id is open, so that the client may mistake the answer to one for the other.

        Then the second call is denied, and the first unless it was already answered. If that one was allowed, with
        another input, either may be running, so the run ends.
        """
        if call.asked_for is None:
            return False
        self._shared.add(call.id)
        if call.allowed and not same_input(call.asked_for, proposed.input):
            message = f"codex asked about call `{call.id}` for something else while it ran; it may run either"
            self._stream.close(ProviderError(message, details={"code": "call_id_reused", "tool_call_id": call.id}))
        return True

    async def _is_shared(self, call_id: str, thread: str) -> bool:
        """Whether two open calls have this id, by the client's questions and records."""
        await self.catch_up(thread)
        return call_id in self._shared or call_id in (await self._rollouts.of(thread)).shared
