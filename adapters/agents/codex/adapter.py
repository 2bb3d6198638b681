"""CodexAdapter: the Codex client as an agent to supervise."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, Literal

import anyio

from proctor.policies.events.run_context import PORTABLE, Capabilities
from proctor.policies.policy import Policy
from proctor.policies.values.globs import is_plain, matcher
from proctor.supervisor.errors import ProviderError, UsageError
from proctor.supervisor.ports.adapter import Launch, LaunchOptions

from ...kit.client_process import Workspace
from ...kit.client_tools import CODEX_TOOLS, tool_capabilities, tools_matching
from ...kit.launch_options import allow_lists, denied, options_for
from ...kit.process_tree import end_orphans
from ...kit.provider import helpers
from . import connection as settings
from . import sandbox as sandboxing
from .connection import check_client, connect, find_client
from .items import SHELL, SPAWN_AGENT, VIEW_IMAGE, WEB_SEARCH
from .sandbox import APPROVALS, SANDBOXES, Bounds, check_terms, holds
from .session import CodexSession

COMPILES: Final = ("deny",)
_REMOVED: Final[dict[str, dict[str, dict[str, Any]]]] = {
    SHELL: {"features": {"shell_tool": False}},
    SPAWN_AGENT: {"features": {"multi_agent": False, "multi_agent_v2": False}},
    VIEW_IMAGE: {"features": {"view_image": False}},
    WEB_SEARCH: {"config": {"web_search": "disabled"}},
}
"""The options that remove each tool."""
WITH_SHELL: Final = {"write_stdin": SHELL}
"""Tools that the client offers together with the shell."""


def compile_options(policy: Policy) -> LaunchOptions:
    """A policy as options: `features`, `config`, and `denied` MCP tools."""
    gone: set[str] = set()
    done: set[str] = set()
    servers: list[str] = []
    for entry, patterns in denied(policy):
        named = matcher(patterns)
        gone |= {name for name in _REMOVED if any(map(named, _names(name)))}
        held = [_REMOVED.keys() >= _denied_tools(each) or _is_one_server_or_tool(each) for each in patterns]
        done |= {f"deny {entry}"} if all(held) else set()
        servers += [pattern for pattern in patterns if _is_one_server_or_tool(pattern)]
    for _, patterns in allow_lists(policy):
        admits = matcher(patterns)
        gone |= {name for name in _REMOVED if not any(map(admits, _names(name)))}
    options: dict[str, Any] = {"features": {}, "config": {}, "denied": servers}
    for name in sorted(gone):
        for part, changes in _REMOVED[name].items():
            options[part].update(changes)
    return options_for(policy, options, done)


def _names(name: str) -> tuple[str, ...]:
    return (name, *(act for each in CODEX_TOOLS if each.name == name for act in each.acts))


def _denied_tools(pattern: str) -> set[str]:
    """The tools that a portable name means; any other name means itself."""
    if pattern.casefold() not in PORTABLE or any(pattern.casefold() in each.acts_where for each in CODEX_TOOLS):
        return {pattern.casefold()}
    return {WITH_SHELL.get(name, name) for name in tools_matching(CODEX_TOOLS, pattern)}


def _is_one_server_or_tool(pattern: str) -> bool:
    """`mcp__server__tool`, or `mcp__server__*`."""
    mark, _, name = pattern.partition("__")
    server, _, tool = name.partition("__")
    return mark.casefold() == "mcp" and bool(server and tool) and is_plain(name.removesuffix("*"))


class CodexAdapter:
    """Runs prompts with the `codex app-server` of the `openai-codex` package.

    The client asks about every command, file change and MCP call; what it would do without asking is switched off.
    `gate` is `some` if its own settings let something bypass the gate (see `ungated`).

    Args:
        model: the model to use; the client's own choice if not given.
        sandbox: `workspace-write` confines commands to `cwd` without network, `read-only` to reading;
            `danger-full-access` does not.
        allow_escalation: with `workspace-write`, let the gate allow calls outside the sandbox; if the sandbox stops
            an allowed command, the client then runs it again without the sandbox.
        config: more of the client's configuration, by dotted key (`model_provider`, `mcp_servers`, ...).
        features: the client's features to turn on or off.
        codex_path: the client's executable; that of the `openai-codex` package, or else on PATH.
        cwd: the folder to work in; the current one if not given.
        env: the client's whole environment; this process's if not given.
        trust_workspace: let the folder's own `.codex` configure the client; its servers and programs run ungated.

    Raises:
        UsageError: a sandbox that the client cannot enforce, or configuration that it cannot be given.
    """

    end_orphans = staticmethod(end_orphans)

    name = "codex"

    def __init__(
        self,
        *,
        model: str | None = None,
        sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "workspace-write",
        allow_escalation: bool = False,
        config: Mapping[str, Any] | None = None,
        features: Mapping[str, bool] | None = None,
        codex_path: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        trust_workspace: bool = False,
    ) -> None:
        if sandbox not in SANDBOXES:
            raise UsageError(f"sandbox `{sandbox}` is not one of {', '.join(SANDBOXES)}")
        if sandbox == "read-only" and not holds(sandbox, escalation=allow_escalation):
            raise UsageError("sandbox `read-only` is not held on Windows, nor with `allow_escalation`")
        self._model = model
        self._sandbox = sandbox
        self._allow_escalation = allow_escalation
        self._config = dict(config or {})
        self._features = dict(features or {})
        self._path = codex_path
        self._workspace = Workspace(cwd, env)
        self._trusts = trust_workspace
        settings.arguments(self._config, self._features)
        self.ungated = self._bypasses()
        """Effects that can happen without asking the gate, in words, as of the newest `prepare` or start."""

    @property
    def capabilities(self) -> Capabilities:
        """The client's capabilities; `gate` is `all` unless the client's settings let something bypass it."""
        return Capabilities(
            gate="some" if self.ungated else "all",
            usage="per_turn",
            cancel_kills_children=True,
            resume=True,
            compiles=COMPILES,
            model=self._model,
            **self._workspace.described(),
            **tool_capabilities(CODEX_TOOLS, None),
        )

    async def prepare(self) -> None:
        """Start the client and check that it is logged in. Raises ProviderUnavailableError."""
        self.ungated = await anyio.to_thread.run_sync(self._bypasses)
        await check_client(
            self._command(LaunchOptions()), cwd=self._workspace.folder, env=self._workspace.environment
        )

    def compile(self, policy: Policy) -> LaunchOptions:
        """The policy as options of the client."""
        return compile_options(policy)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[CodexSession]:
        """Start the client with the prompt. Raises ProviderError, ProviderUnavailableError."""
        await self._check_bypasses()
        bounds = Bounds(
            sandboxed=self._sandbox != "danger-full-access",
            confined=not self._allow_escalation,
            folder=None if self._sandbox == "read-only" else self._workspace.folder,
        )
        session = CodexSession(launch, bounds=bounds)
        async with (
            sandboxing.swept(self._workspace.folder, self._workspace.environment),
            self._opened(launch, session),
        ):
            yield session

    @asynccontextmanager
    async def _opened(self, launch: Launch, session: CodexSession) -> AsyncIterator[None]:
        sandboxed = self._sandbox != "danger-full-access"
        direct = (
            sandboxing.without_scripts(self._client(), self._workspace.environment) if sandboxed else nullcontext()
        )
        async with (
            direct as config,
            connect(
                self._command(launch.options, config),
                cwd=self._workspace.folder,
                env=self._workspace.environment,
                mark=launch.mark,
                handler=session,
            ) as connection,
            helpers() as tasks,
        ):
            tasks.start_soon(connection.process.read_stderr)
            session.attach(connection, tasks)
            tasks.start_soon(session.listen)
            await connection.greet()
            read = await connection.request("config/read", {"cwd": str(self._workspace.folder)})
            answer = await session.open_thread(*self._thread(launch, read.get("config") or {}))
            on = [name for name, wanted in self._features.items() if wanted]
            held = holds(self._sandbox, escalation=self._allow_escalation)
            await check_terms(connection, answer, sandbox=self._sandbox, held=held, turned_on=on)
            await session.start_turn()
            yield

    def _thread(self, launch: Launch, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        denied = launch.options.options.get("denied", ())
        sandbox, permissions = sandboxing.sandbox_settings(
            self._sandbox, escalation=self._allow_escalation, settings=config.get("sandbox_workspace_write") or {}
        )
        thread: dict[str, Any] = {
            **APPROVALS,
            **sandbox,
            "cwd": str(self._workspace.folder),
            "config": {**settings.gated_servers(config.get("mcp_servers") or {}, denied), **permissions},
        }
        if self._model is not None:
            thread["model"] = self._model
        if launch.resume is None:
            return "thread/start", thread
        thread |= {"threadId": launch.resume, "excludeTurns": True}
        return ("thread/fork" if launch.fork else "thread/resume"), thread

    def _client(self) -> str:
        return str(self._path or find_client())

    def _command(self, options: LaunchOptions, more: Mapping[str, Any] | None = None) -> list[str]:
        trust = {} if self._trusts else settings.untrusted(self._workspace.folder)
        config = {**(more or {}), **self._config, **trust, **options.options.get("config", {})}
        features = {**self._features, **options.options.get("features", {})}
        return [self._client(), *settings.arguments(config, features)]

    async def _check_bypasses(self) -> None:
        """Raises ProviderError if the settings let more bypass the gate than when the run was planned."""
        before, self.ungated = self.ungated, await anyio.to_thread.run_sync(self._bypasses)
        if new := [why for why in self.ungated if why not in before]:
            raise ProviderError(
                f"the settings of codex have changed: {'; '.join(new)}; start the run again to use them",
                details={"code": "settings_changed", "ungated": new},
            )

    def _bypasses(self) -> list[str]:
        trusted = self._workspace.folder if self._trusts else None
        return settings.bypasses(self._workspace.environment, trusted, self._config, self._features)
