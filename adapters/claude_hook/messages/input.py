"""What the client tells a hook on its standard input."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.values.json_values import json_words

GATING = "PreToolUse"
SESSION_END = "SessionEnd"
EVENTS = (
    "UserPromptSubmit",
    GATING,
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Stop",
    SESSION_END,
    "ConfigChange",
)
"""The hooks that are needed; a prompt that is not seen begins its run with its first call."""
CAN_STOP = (GATING, "PostToolUse", "PostToolUseFailure", "PostToolBatch")
"""Those whose answer may end the response."""


class BatchCall(msgspec.Struct, frozen=True):
    """One call of a model response that is over."""

    tool_use_id: str
    tool_name: str = ""


class HookInput(msgspec.Struct, frozen=True, kw_only=True):
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


_decoder = msgspec.json.Decoder(HookInput)


def read_input(data: bytes) -> HookInput:
    """Decode a hook's input. Raises EventError for anything else."""
    try:
        data.decode()  # all of it is text, also what is not looked at
        hook_input = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"standard input is not a hook of Claude Code: {json_words(error)}") from None
    if not hook_input.session_id:
        raise EventError("the hook names no session")
    if hook_input.hook_event_name.endswith("ToolUse") and not (hook_input.tool_use_id and hook_input.tool_name):
        raise EventError("the hook names no call")
    return hook_input
