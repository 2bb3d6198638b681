"""Claude Code: its events, the fields of its input, its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...kit.client_tools import CLAUDE_TOOLS
from ..messages import STOPPED, BatchCall, HookAnswer, HookClient, HookInput, Kind, complete, decoded
from .claude_log import UsageLog

EVENTS: Final[Mapping[str, Kind]] = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PostToolUse": "completed",
    "PostToolUseFailure": "failed",
    "PostToolBatch": "batch",
    "Stop": "stop",
    "SessionEnd": "session_end",
    "ConfigChange": "settings",
}
"""A prompt that is not seen begins its run with its first call."""


class _Input(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's input; fields this does not name are the client's own business."""

    session_id: str
    hook_event_name: str
    prompt_id: str = ""
    agent_id: str | None = None
    permission_mode: str = ""
    cwd: str = ""
    transcript_path: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""
    tool_response: Any = None
    error: Any = None
    tool_calls: tuple[BatchCall, ...] = ()
    last_assistant_message: str | None = None
    reason: str = ""
    source: str = ""


def read(data: bytes) -> HookInput:
    """What a hook says. Raises EventError for anything else."""
    given = msgspec.structs.asdict(decoded(data, _Input, CLAUDE.title))
    event, source = given.pop("hook_event_name"), given.pop("source")
    return complete(HookInput(kind=EVENTS.get(event), event=event, own_settings=source == "policy_settings", **given))


def output(answer: HookAnswer, given: HookInput) -> dict[str, Any]:
    """The hook's output; empty when there is nothing to say."""
    fields: dict[str, Any] = {}
    if answer.notes:
        fields["systemMessage"] = "\n".join(answer.notes)
    if answer.stop:
        fields |= {"continue": False, "stopReason": STOPPED}
    if (answer.verdict != "allow" or answer.reason) and given.kind == "call":
        fields["hookSpecificOutput"] = {
            "hookEventName": given.event,
            "permissionDecision": answer.verdict,
            "permissionDecisionReason": answer.reason,
        }
    elif answer.verdict == "deny" and given.kind in ("prompt", "settings"):
        fields |= {"decision": "block", "reason": answer.reason}
    return fields


CLAUDE: Final = HookClient(
    name="claude",
    title="Claude Code",
    by="claude-code",
    tools=CLAUDE_TOOLS,
    events=EVENTS,
    read=read,
    output=output,
    usage=UsageLog,
)
