"""The caller's options, tightened by the compiled policy, as the SDK takes them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from proctor.policies.policy import Approval
from proctor.policies.reading.suggestions import did_you_mean
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import Launch

from ...kit.processes.guarded import guarded_program
from .hooks import Hooks
from .options import HOOK_MARGIN_S, brings_hooks

MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""The SDK's own bound is a megabyte, and one image that the model reads is more."""
_OWN_PERMISSIONS: Final = ("can_use_tool", "permission_mode", "permission_prompt_tool_name")


def check_options(own: Mapping[str, Any]) -> None:
    """Raise UsageError for options the SDK does not know."""
    options_there = {field.name for field in dataclasses.fields(ClaudeAgentOptions)}
    for name in own:
        if name not in options_there:
            hint = did_you_mean(name, options_there)
            raise UsageError(f"`{name}` is not an option of ClaudeAgentOptions{hint and f'; {hint}'}")


@contextmanager
def below_guardian(own: Mapping[str, Any], mark: str) -> Iterator[dict[str, Any]]:
    """The caller's options, with a client below a guardian: what it starts cannot leave its tree (Linux)."""
    client = own.get("cli_path") or _bundled_client()
    if client is None:
        yield dict(own)  # the SDK looks for one elsewhere
        return
    with guarded_program(str(client), mark) as program:
        yield {**own, "cli_path": program}


def _bundled_client() -> str | None:
    path = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else shutil.which("claude")


def decision(own: Mapping[str, Any]) -> str | None:
    """What the client is told about an allowed call; see `Hooks`.

    The caller's own permissions go before. Where settings bring hooks, the client is to ask once more after them.
    """
    if any(own.get(name) is not None for name in _OWN_PERMISSIONS):
        return None
    return "ask" if brings_hooks(own) else "allow"


def agent_options(
    own: Mapping[str, Any],
    launch: Launch,
    *,
    hooks: Hooks,
    mark: Mapping[str, str],
    stderr: Callable[[str], None],
) -> ClaudeAgentOptions:
    """The options of one run.

    Args:
        own: the caller's options.
        launch: the run, with the compiled policy.
        hooks: called before and after each call.
        mark: environment variables that mark the client's processes.
        stderr: gets each line the client writes there.
    """
    compiled = dict(launch.options.options)
    timeout = compiled.pop("hook_timeout_s", Approval().timeout_s + HOOK_MARGIN_S)
    matchers = dict(own.get("hooks") or {})
    ours: dict[str, Any] = {
        "PreToolUse": hooks.before,
        "PostToolUse": hooks.after,
        "PostToolUseFailure": hooks.after,
    }
    for moment, hook in ours.items():
        matcher = HookMatcher(hooks=[hook], timeout=timeout, on_failure="block")
        matchers[moment] = [matcher, *matchers.get(moment, ())]
    env = {
        **own.get("env", {}),
        **compiled.pop("env", {}),
        **mark,
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    }
    merged = {**own, **compiled, "hooks": matchers, "env": env, "include_partial_messages": True}
    if decision(own) == "ask":
        merged["can_use_tool"] = hooks.permitted
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
