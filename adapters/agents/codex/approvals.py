"""What the client asks before it acts, read as tool calls; and the client's words for our answers.

A request that cannot be matched with what the client said it would do is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from proctor.supervisor.ports import GateAnswer

from .items import Item, tool_input, tool_name

COMMAND: Final = "item/commandExecution/requestApproval"
FILE_CHANGE: Final = "item/fileChange/requestApproval"
ELICITATION: Final = "mcpServer/elicitation/request"
PERMISSIONS: Final = "item/permissions/requestApproval"

ACCEPT: Final = {"decision": "accept"}
DECLINE: Final = {"decision": "decline"}
CANCEL: Final = {"decision": "cancel"}
NO_PERMISSIONS: Final[dict[str, Any]] = {"permissions": {}, "scope": "turn"}
"""The answer to a request for more permissions: none."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A call the client holds. `escalated`: it would run outside the sandbox; None: nobody knows."""

    id: str
    name: str
    input: dict[str, Any]
    escalated: bool | None = False


def command_proposal(params: dict[str, Any], arguments: dict[str, Any] | None) -> Proposal | None:
    """A command the client wants to run, or None for a kind of request that is not one.

    Args:
        params: the client's request.
        arguments: what the model wrote, where the client passed it on.
    """
    # input for a running command, network hosts and parts of scripts are asked for with features that are off
    if params.get("kind", "command") != "command" or params.get("approvalId") is not None:
        return None
    if params.get("networkApprovalContext") is not None or not isinstance(params.get("command"), str):
        return None
    escalated = None if arguments is None else arguments.get("sandbox_permissions", "use_default") != "use_default"
    if params.get("additionalPermissions") is not None:
        escalated = True
    known = {"escalated": escalated, "reason": params.get("reason")}
    return Proposal(
        id=str(params.get("itemId")),
        name="shell",
        input={
            **tool_input({**params, "type": "commandExecution"}),
            **{name: value for name, value in known.items() if value},
        },
        escalated=escalated,
    )


def patch_proposal(item: Item | None, *, escalated: bool) -> Proposal | None:
    """A file change the client wants to make, from the item it announced."""
    if item is None or item.get("type") != "fileChange":
        return None
    more = {"escalated": True} if escalated else {}
    return Proposal(id=str(item["id"]), name=tool_name(item), input={**tool_input(item), **more}, escalated=escalated)


def mcp_proposal(params: dict[str, Any], announced: Iterable[Item]) -> Proposal | None:
    """An MCP server's tool the client wants to call, or None for a question of the server itself.

    Args:
        params: the client's request, which names server and arguments but neither tool nor call.
        announced: the calls the client announced and has not asked about yet.
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
            return Proposal(id=str(item["id"]), name=tool_name(item), input=tool_input(item))
    return None


def decision(answer: GateAnswer, *, may_cancel: bool) -> dict[str, Any]:
    """The answer for a command or a file change.

    Args:
        answer: the gate's.
        may_cancel: a refusal that stops the run may end the turn of the thread that asked.
    """
    if answer.allowed:
        return ACCEPT
    return CANCEL if answer.stop and may_cancel else DECLINE


def elicitation_decision(answer: GateAnswer) -> dict[str, Any]:
    """The answer for an MCP server's tool."""
    return {"action": "accept", "content": {}} if answer.allowed else {"action": "decline"}
