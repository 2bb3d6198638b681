"""GitHub Copilot CLI: its events, the fields of its input, its answers, as its documentation has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...kit.client_tools import HOOKED
from ..messages import ClientSettings, HookAnswer, HookClient, HookInput, Kind, as_object, decoded, hook_input

EVENTS: Final[Mapping[str, Kind]] = {
    "UserPromptSubmit": "prompt",
    "PreToolUse": "call",
    "PostToolUse": "completed",
    "PostToolUseFailure": "failed",
    "Stop": "stop",
    "SessionEnd": "session_end",
}
"""Under these names its input names the event; under its own (`preToolUse`) it does not."""
_TIMEOUT_S: Final = 120


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    result_type: str = ""
    text_result_for_llm: Any = None


_NAMES: Final = {"event": "hook_event_name"}
"""The client's names of fields that `HookInput` names otherwise."""


class _Input(msgspec.Struct, frozen=True, kw_only=True, rename=_NAMES):
    """One hook's input; fields this does not name are the client's own business."""

    session_id: str
    event: str
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: Any = None
    tool_result: _Result = _Result()
    error: Any = None
    reason: str = ""


def read(data: bytes) -> HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message: _Input = decoded(data, _Input, COPILOT)
    kind, result = EVENTS.get(message.event), message.tool_result
    if kind == "completed" and result.result_type not in ("", "success"):
        kind = "failed"
    return hook_input(
        COPILOT,
        message,
        kind=kind,
        tool_input=as_object(message.tool_input),
        tool_response=result.text_result_for_llm,
        error=message.error or result.text_result_for_llm,
    )


def output(answer: HookAnswer, given: HookInput) -> dict[str, Any]:
    """The hook's output; only that of a call is heard."""
    if given.kind == "call" and (answer.verdict != "allow" or answer.reason):
        return {"permissionDecision": answer.verdict, "permissionDecisionReason": answer.reason}
    return {}


def _entry(event: str, line: str, environment: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "command", "bash": line, "timeoutSec": _TIMEOUT_S}


COPILOT: Final = HookClient(
    name="copilot",
    title="Copilot CLI",
    by="copilot",
    tools=HOOKED["copilot"],
    events=EVENTS,
    read=read,
    output=output,
    settings=ClientSettings(
        project=".github/hooks/proctor.json",
        user=".copilot/hooks/proctor.json",
        entry=_entry,
        beside=lambda environment: {"version": 1},
        overriding=(".github/copilot/settings.local.json", ".github/copilot/settings.json"),
        off=("disableAllHooks",),
    ),
    asks=True,
    opens="call",
    fails_open=(
        "calls run if their hook fails or is too slow",
        "prompts are never denied",
        "a folder's settings can switch hooks off (`disableAllHooks`)",
        "its documentation names hooks of a repository only, so `--user` may have no effect",
    ),
)
