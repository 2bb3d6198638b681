"""ClaudeAdapter: runs of Claude Code."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy
from proctor.supervisor.errors import ProviderUnavailableError, UsageError, install_of
from proctor.supervisor.ports.adapter import Launch, LaunchOptions, Provider

from ...kit.client_process import Workspace
from ...kit.client_tools import CLAUDE_TOOLS as TOOLS
from ...kit.client_tools import tool_capabilities
from ...kit.process_tree import end_orphans
from ...kit.provider import helpers
from .launch import COMPILES, below_guardian, bypasses, can_sign_in, check_options, compile_options, with_defaults
from .translation import at_the_gate


class ClaudeAdapter:
    """Runs prompts with Claude Code, every tool call gated, subagents' included.

    Args:
        options: ClaudeAgentOptions, or a mapping of its arguments; the policy only tightens them.
        model: the model to use.
        tools: the built-in tools to offer; None offers all.
        cwd: where the client works.
        env: environment variables on top of this process's.

    Unless the caller sets a permission mode or callback, calls that the gate allows need no further permission. By
    default no settings of the workspace or the user are loaded, and a prompt is not expanded; `gate` is `some` if the
    caller changes that (see `ungated`).
    """

    end_orphans = staticmethod(end_orphans)

    name = "claude"

    def __init__(
        self,
        options: Any = None,
        *,
        model: str | None = None,
        tools: Sequence[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        own = _as_mapping(options)
        given = {"model": model, "tools": None if tools is None else list(tools), "cwd": cwd}
        named = {name: value for name, value in given.items() if value is not None}
        if twice := sorted(named.keys() & own.keys()):
            raise UsageError(f"`{twice[0]}` is given twice: by itself and in `options`; give it once")
        own.update(named)
        if env is not None:
            own["env"] = {**own.get("env", {}), **env}
        self._own = with_defaults(own)

    @property
    def ungated(self) -> list[str]:
        """Effects that can happen without asking the gate, in words."""
        return bypasses(self._own)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(self._own.get("cwd"), {**os.environ, **self._own.get("env", {})})

    @property
    def capabilities(self) -> Capabilities:
        """The client's capabilities; `tools` are known before launch if the caller named them."""
        tools = self._own.get("tools")
        named = isinstance(tools, (list, tuple)) and not self._own.get("mcp_servers")
        return Capabilities(
            gate="some" if self.ungated else "all",
            rewrite=True,
            deny_ends_turn=False,
            usage="per_turn",
            reports_cost=True,
            cancel_kills_children=True,
            resume=True,
            narrow=False,
            compiles=COMPILES,
            model=self._own.get("model"),
            **self._workspace.described(),
            **tool_capabilities(TOOLS, [at_the_gate(name) for name in tools or ()] if named else None),
        )

    async def prepare(self) -> None:
        """Check the SDK, the options, the working directory and the credentials.

        Raises ProviderUnavailableError, and UsageError for invalid options.
        """
        try:
            import claude_agent_sdk  # noqa: F401
        except ImportError as error:
            raise ProviderUnavailableError(
                f"the Claude Code client is not installed; {install_of('claude')}"
            ) from error
        check_options(self._own)
        self._workspace.check_folder()
        client = self._own.get("cli_path")
        if client is not None and not await anyio.Path(client).exists():
            raise ProviderUnavailableError(f"there is no Claude Code client at `{client}`; check `cli_path`")
        if not can_sign_in(self._workspace.environment):
            raise ProviderUnavailableError(
                "Claude Code is not logged in; set ANTHROPIC_API_KEY, or run `claude` once and log in"
            )

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy into the client's launch options."""
        return compile_options(policy, self._own)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Start the client and send the prompt; leaving ends it and every process it started."""
        await self.prepare()
        from .session import ClaudeSession

        with below_guardian(self._own, launch.mark) as own:
            session = ClaudeSession(own, launch)
            async with helpers() as tasks:
                await tasks.start(session.run)
                yield session
            if (killed := session.guardian_killed()) is not None:
                raise killed


def _as_mapping(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if isinstance(options, Mapping):
        return dict(options)
    if not dataclasses.is_dataclass(options) or isinstance(options, type):
        raise UsageError(f"`options` is a value of type `{type(options).__name__}`, not `ClaudeAgentOptions`")
    defaults = type(options)()
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: value for name, value in given.items() if value != getattr(defaults, name)}
