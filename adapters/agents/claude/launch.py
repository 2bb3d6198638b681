"""The caller's options for the SDK, tightened by the compiled policy."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proctor.policies.policy import Allow, Approval, Policy
from proctor.policies.reading.schema import did_you_mean
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapter import Launch, LaunchOptions

from ...kit.launch_options import allow_lists, denied, options_for, run_limits
from ...kit.process_tree import NOT_FOR_RUNS, guarded_program
from .translation import KNOWN, at_the_gate, is_spellable, resolve

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

    from .hooks import Hooks


COMPILES: Final = ("allow", "deny", "max_cost_usd", "max_output_tokens", "max_turns")
MAX_OUTPUT: Final = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
"""The variable for the most tokens of a response, which the client caps at the model's maximum."""
USUAL_OUTPUT: Final = 32_000
"""The client's own value; a higher one would raise it."""
HOOK_MARGIN_S: Final = 60.0
LONGEST_HOOK_S: Final = 2_000_000.0
"""The client's timers count milliseconds in 32 bits."""
UNTRUSTED: Final[Mapping[str, Any]] = {"setting_sources": [], "verbatim_prompts": True}
"""Our defaults: neither the workspace nor a prompt's text configures the client."""
_BRING_HOOKS: Final = {
    "setting_sources": "the settings of the workspace or the user",
    "settings": "the settings given with `settings`",
    "plugins": "plugins",
}
_SETTINGS_FLAGS: Final = frozenset(("agents", "plugin-dir", "plugin-url", "setting-sources", "settings"))
_NO_HOOKS_FLAG: Final = "bare"
KEPT_EMPTY: Final = dict.fromkeys(("CLAUDE_CODE_PLUGIN_DIRS", "CLAUDE_CODE_SIMPLE", *NOT_FOR_RUNS), "")
"""Variables that would bring the client plugins, keep it from asking our hooks, or let it answer for a person: the
SDK takes none away.
"""
NO_SKILL_SHELL: Final = '{"disableSkillShellExecution": true}'


def with_defaults(own: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's options over `UNTRUSTED`; if settings are loaded, commands inside skills are not run."""
    merged = {**UNTRUSTED, **{name: value for name, value in own.items() if value is not None}}
    if merged["setting_sources"] and "settings" not in merged:
        merged["settings"] = NO_SKILL_SHELL
    return merged


def bypasses(own: Mapping[str, Any]) -> list[str]:
    """Options that let something bypass the gate, in words."""
    found = [f"{what} bring hooks, helpers and servers, whose commands run without asking" for what in _loaded(own)]
    if not own.get("verbatim_prompts"):
        found.append("files that a prompt names with `@` are read, and its `/commands` run, without asking")
    return found


def _loaded(own: Mapping[str, Any]) -> list[str]:
    found = [
        what
        for name, what in _BRING_HOOKS.items()
        if own.get(name) and not (name == "settings" and own[name] == NO_SKILL_SHELL)
    ]
    flags = sorted(_SETTINGS_FLAGS & _flags(own))
    return [*found, *(f"settings given with `--{flag}`" for flag in flags)]


def _flags(own: Mapping[str, Any]) -> set[str]:
    return {str(flag).partition("=")[0] for flag in own.get("extra_args") or ()}


def compile_options(policy: Policy, own: Mapping[str, Any]) -> LaunchOptions:
    """Tighten the caller's own options by the merged policy."""
    compiled = _Compiled(own)
    for entry, names in denied(policy):
        compiled.deny(entry, names)
    for rule, names in allow_lists(policy):
        compiled.allow(rule, names)
    lowest, held = run_limits(policy)
    compiled.expressed |= {name for name, most in lowest.items() if compiled.limit(name, most)} & held
    timeout = (policy.approval or Approval()).timeout_s + HOOK_MARGIN_S
    compiled.options["hook_timeout_s"] = min(timeout, LONGEST_HOOK_S)
    return options_for(policy, compiled.options, compiled.expressed)


class _Compiled:
    def __init__(self, own: Mapping[str, Any]) -> None:
        self.own = own
        tools = own.get("tools")
        self.own_tools: list[str] | None = list(tools) if isinstance(tools, (list, tuple)) else None
        self.options: dict[str, Any] = {}
        self.expressed: set[str] = set()

    def deny(self, entry: str, names: Iterable[str]) -> None:
        """Remove the known tools that an entry stands for."""
        held = [self._disallow(name) for name in names]
        self.expressed.update({f"deny {entry}"} if all(held) else ())

    def _disallow(self, pattern: str) -> bool:
        """Remove tools; returns whether these are all that the pattern means."""
        names = resolve(pattern, self.own_tools or ())
        taken = names or ((pattern,) if is_spellable(pattern) else ())
        if taken:
            listed = self.options.setdefault("disallowed_tools", list(self.own.get("disallowed_tools", ())))
            listed.extend(name for name in taken if name not in listed)
        return bool(names)

    def allow(self, rule: Allow, patterns: Iterable[str]) -> None:
        """Narrow the set of built-in tools; the gate decides on those of MCP servers."""
        base = self.options.get("tools", self.own_tools)
        admitted = {name for pattern in patterns for name in resolve(pattern, base or ())}
        if base is not None:
            self.options["tools"] = [name for name in base if {name, at_the_gate(name)} & admitted]
        elif not admitted >= KNOWN:
            unknown = {pattern for pattern in patterns if is_spellable(pattern) and not resolve(pattern)}
            self.options["tools"] = sorted(admitted | unknown)
        if not self.own.get("mcp_servers"):
            self.expressed.update(f"allow {item}" for item in rule.tools if isinstance(item, str))

    def limit(self, name: str, maximum: float) -> bool:
        if name == "max_turns" and maximum >= 1:
            self.options["max_turns"] = _lower(int(maximum), self.own.get("max_turns"))
        elif name == "max_cost_usd":
            self.options["max_budget_usd"] = _lower(maximum, self.own.get("max_budget_usd"))
        elif name == "max_output_tokens":
            return self._cap_output(maximum)
        elif name == "max_total_tokens":
            self._cap_output(maximum)  # no response may be longer; what is read counts too, and is the gate's
            return False
        else:
            return False
        return True

    def _cap_output(self, maximum: float) -> bool:
        """Lower the cap of a response's tokens to `maximum`; returns whether the option expresses it."""
        given = {**os.environ, **(self.own.get("env") or {}), **self.options.get("env", {})}.get(MAX_OUTPUT, "")
        own = int(given) if given.isdecimal() else 0
        if maximum < 1 or (not own and maximum > USUAL_OUTPUT):
            return False
        self.options["env"] = {MAX_OUTPUT: str(min(int(maximum), own or USUAL_OUTPUT))}
        return True


def _lower(ours: Any, theirs: Any) -> Any:
    return ours if theirs is None else min(ours, theirs)


MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""The SDK's own bound is a megabyte, which one image can exceed."""
_OWN_PERMISSIONS: Final = ("can_use_tool", "permission_mode", "permission_prompt_tool_name")


def check_options(own: Mapping[str, Any]) -> None:
    """Raises UsageError for options that the SDK does not know, or with which the client would not ask the gate."""
    from claude_agent_sdk import ClaudeAgentOptions

    options_there = {field.name for field in dataclasses.fields(ClaudeAgentOptions)}
    for name in own:
        if name not in options_there:
            hint = did_you_mean(name, options_there)
            raise UsageError(f"`{name}` is not an option of ClaudeAgentOptions{hint and f'; {hint}'}")
    if _NO_HOOKS_FLAG in _flags(own):
        raise UsageError(f"`--{_NO_HOOKS_FLAG}` in `extra_args` would let every call bypass the gate; leave it out")


@contextmanager
def below_guardian(own: Mapping[str, Any], mark: str) -> Iterator[dict[str, Any]]:
    """The caller's options with the client below a guardian, so that nothing it starts can leave its tree (Linux)."""
    client = own.get("cli_path") or _bundled_client()
    if client is None:
        yield dict(own)  # the SDK looks for one elsewhere
        return
    with guarded_program(str(client), mark) as program:
        yield {**own, "cli_path": program}


def _bundled_client() -> str | None:
    import claude_agent_sdk

    path = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else shutil.which("claude")


def decision(own: Mapping[str, Any]) -> str | None:
    """The `decision` of `Hooks`: None if the caller's own permissions decide, `ask` if hooks may answer beside ours,
    so that the client asks again after them.
    """
    if any(own.get(name) is not None for name in _OWN_PERMISSIONS):
        return None
    return "ask" if _loaded(own) or (own.get("hooks") or {}).get("PreToolUse") else "allow"


def agent_options(
    own: Mapping[str, Any], launch: Launch, *, hooks: Hooks, mark: Mapping[str, str], stderr: Callable[[str], None]
) -> ClaudeAgentOptions:
    """The options of one run: the caller's `own`, tightened by the compiled policy of `launch`. The variables of
    `mark` mark the client's processes.
    """
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

    compiled = dict(launch.options.options)
    timeout = compiled.pop("hook_timeout_s", Approval().timeout_s + HOOK_MARGIN_S)
    matchers = dict(own.get("hooks") or {})
    ours: dict[str, Any] = {"PreToolUse": hooks.before, "PostToolUse": hooks.after, "PostToolUseFailure": hooks.after}
    for moment, hook in ours.items():
        matcher = HookMatcher(hooks=[hook], timeout=timeout, on_failure="block")
        matchers[moment] = [matcher, *matchers.get(moment, ())]
    env = {
        **own.get("env", {}),
        **compiled.pop("env", {}),
        **KEPT_EMPTY,
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


_VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)


def can_sign_in(env: Mapping[str, str]) -> bool:
    """Whether the client may find credentials in an environment.

    Settings may name a helper that fetches a key, and macOS keeps logins in its keychain; if either is possible, the
    answer is yes.
    """
    if any(env.get(name) for name in _VARIABLES) or sys.platform == "darwin":
        return True
    home = env.get("CLAUDE_CONFIG_DIR") or str(Path(env.get("HOME") or Path.home()) / ".claude")
    return any((Path(home) / name).exists() for name in (".credentials.json", "settings.json"))
