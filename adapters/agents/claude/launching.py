"""The caller's options, tightened by the compiled policy, as the SDK takes them."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from proctor.policies.policy import Approval
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports import Launch

from .options import HOOK_MARGIN_S

MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""The SDK's own bound is a megabyte, and one image that the model reads is more."""
_OWN_PERMISSIONS: Final = ("can_use_tool", "permission_mode", "permission_prompt_tool_name")


def check_options(own: Mapping[str, Any]) -> None:
    """Raise UsageError for options the SDK does not know."""
    known = {field.name for field in dataclasses.fields(ClaudeAgentOptions)}
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise UsageError(f"`{name}` is not an option of ClaudeAgentOptions{hint}")


def permits(own: Mapping[str, Any]) -> bool:
    """Whether an allowed call needs no permission of the client's own: unless the caller set some up."""
    return all(own.get(name) is None for name in _OWN_PERMISSIONS)


def agent_options(
    own: Mapping[str, Any],
    launch: Launch,
    *,
    hook: Any,
    mark: Mapping[str, str],
    stderr: Callable[[str], None],
) -> ClaudeAgentOptions:
    """The options of one run.

    Args:
        own: the caller's options.
        launch: the run, with the compiled policy.
        hook: asked before each call.
        mark: environment variables that mark the client's processes.
        stderr: gets each line the client writes there.
    """
    compiled = dict(launch.options.options)
    timeout = compiled.pop("hook_timeout_s", Approval().timeout_s + HOOK_MARGIN_S)
    hooks = dict(own.get("hooks") or {})
    gate = HookMatcher(hooks=[hook], timeout=timeout, on_failure="block")
    hooks["PreToolUse"] = [gate, *hooks.get("PreToolUse", ())]
    env = {
        **own.get("env", {}),
        **compiled.pop("env", {}),
        **mark,
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    }
    merged = {**own, **compiled, "hooks": hooks, "env": env, "include_partial_messages": True}
    if merged.get("max_buffer_size") is None:
        merged["max_buffer_size"] = MAX_RECORD_BYTES
    merged["stderr"] = _both(stderr, own.get("stderr"))
    if launch.resume is not None:
        merged.update(resume=launch.resume, fork_session=launch.fork, continue_conversation=False)
        merged.pop("session_id", None)
    return ClaudeAgentOptions(**merged)


def _both(ours: Callable[[str], None], theirs: Callable[[str], None] | None) -> Callable[[str], None]:
    def write(line: str) -> None:
        ours(line)
        if theirs is not None:
            theirs(line)

    return write
