"""The client on this machine: its executable, the start of its process, and the connection to it.

Clients that share a home start one after another: the first one creates its databases there before it answers, and
another one that finds them half made fails. So each start holds a lock on the folder until the client has answered,
for all threads and processes of the machine; the lock ends with its process.
"""

import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError, install_of

from ...kit.client_process import ClientProcess, RpcClient, start_client
from ...kit.jsonrpc import RpcHandler
from ...kit.provider import helpers

UNASKED: Final = {
    "apps": "connected apps act without asking",
    "goals": "goals start turns by themselves",
    "hooks": "hooks may answer the client's questions in the supervisor's place",
    "image_generation": "images are generated without asking",
    "multi_agent": "agents are started without asking",
    "multi_agent_v2": "agents are started without asking",
    "unified_exec_tty": "text is written to a command's terminal without asking",
    "view_image": "files are read as images without asking",
}
"""Features that are off unless the caller turns them on, as each lets something happen ungated."""
QUIET: Final = ("plugins", "tool_suggest", "skill_mcp_dependency_install")
"""Features that are off unless the caller turns them on, as they use the network by themselves."""
_COMMENT = re.compile(r"#.*")
_STATED_RULE = re.compile(r"""decision\s*=\s*["'](?:prompt|forbidden)["']""")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def arguments(config: Mapping[str, Any], features: Mapping[str, bool]) -> list[str]:
    """The client's command line for a configuration, without the program's name. Raises UsageError."""
    settings: dict[str, Any] = {
        "web_search": "disabled",
        # the files of a login shell would run before each command that was evaluated
        "allow_login_shell": False,
        "sandbox_workspace_write.network_access": False,
        **{f"features.{name}": False for name in (*UNASKED, *QUIET)},
        **{f"features.{name}": on for name, on in features.items()},
        **config,
        # some models have agents whatever the features are
        "agents.enabled": bool(features.get("multi_agent") or features.get("multi_agent_v2")),
    }
    flags = [word for key, value in settings.items() for word in ("-c", f"{key}={toml(value, key)}")]
    return [*flags, "app-server"]


def untrusted(folder: Path) -> dict[str, Any]:
    """Configuration that keeps the client from the settings of a folder and those above it.

    By default the client trusts the folder it works in, permanently, and reads its `.codex`.
    """
    places = {str(place): {"trust_level": "untrusted"} for place in (folder, *folder.parents)}
    return {"projects": places}


def toml(value: Any, where: str) -> str:
    """A value in the syntax of the client's command line. Raises UsageError for one that it cannot express."""
    if isinstance(value, bool) or (isinstance(value, (int, float)) and value == value):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {toml(v, f'{where}.{k}')}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(toml(item, where) for item in value) + "]"
    raise UsageError(f"config `{where}`: the client's configuration cannot hold `{value!r}`")


def gated_servers(servers: Mapping[str, Any], denied: Sequence[str]) -> dict[str, Any]:
    """Configuration of a thread that makes each of the client's MCP `servers` ask before each call, and drops the
    tools that are `denied`: `mcp__server__tool` or `mcp__server__*`.
    """
    config: dict[str, Any] = {}
    for name, server in servers.items():
        prefix = f"mcp__{name}__".casefold()
        fields = server if isinstance(server, dict) else {}
        own = [pattern for pattern in denied if pattern.casefold().startswith(prefix)]
        dropped = [pattern[len(prefix) :] for pattern in own if not pattern.endswith("*")]
        base = f"mcp_servers.{name}"
        config[f"{base}.default_tools_approval_mode"] = "prompt"
        if tools := fields.get("tools"):
            config[f"{base}.tools"] = {tool: {**_prompting(tools[tool])} for tool in tools}
        if len(dropped) < len(own):
            config[f"{base}.enabled"] = False
        if dropped:
            config[f"{base}.disabled_tools"] = [*(fields.get("disabled_tools") or ()), *dropped]
    return config


def bypasses(
    env: Mapping[str, str], trusted: Path | None, config: Mapping[str, Any], features: Mapping[str, bool]
) -> list[str]:
    """Settings that let something bypass the gate, in words: the caller's (`config`, `features`), those in the
    client's home, and those of a `trusted` folder and the folders above it.
    """
    found = [why for name, why in UNASKED.items() if features.get(name)]
    if config.get("web_search", "disabled") != "disabled":
        found.append("the provider searches the web without asking")
    above = (trusted, *trusted.parents) if trusted is not None else ()
    if trusted is not None:
        found.append(f"the settings in `.codex` of `{trusted}` bring servers and programs that run without asking")
    folders = [home(env), Path("/etc/codex"), *(place / ".codex" for place in above)]
    for folder in dict.fromkeys(folders):
        found.extend(f"`{path}` lets commands run without asking" for path in _permitting_rules(folder))
    if any(key.startswith("mcp_servers") for key in config) or any(map(_has_servers, folders)):
        found.append("resources of MCP servers are read without asking")
    return list(dict.fromkeys(found))


def home(env: Mapping[str, str]) -> Path:
    """The client's own folder."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME", "~")).expanduser() / ".codex")


def _key(name: str) -> str:
    return name if _PLAIN_KEY.match(name) else json.dumps(name)


def _prompting(tool: Any) -> dict[str, Any]:
    return {**(tool if isinstance(tool, dict) else {}), "approval_mode": "prompt"}


def _permitting_rules(folder: Path) -> Iterator[Path]:
    for path in sorted((folder / "rules").glob("*.rules")):
        try:
            text = _COMMENT.sub("", path.read_text(errors="replace"))
        except OSError:
            yield path
            continue
        if text.count("prefix_rule") > len(_STATED_RULE.findall(text)):  # a rule permits unless it says else
            yield path


def _has_servers(folder: Path) -> bool:
    try:
        return bool(tomllib.loads((folder / "config.toml").read_text()).get("mcp_servers"))
    except (OSError, ValueError, RecursionError):
        return False


_PAUSE_S: Final = 0.01


class HeldLock:
    """A lock of a file or a folder, held until it is released."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def release(self) -> None:
        """Let the next one have it; only the first call counts."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


async def hold(path: Path) -> HeldLock:
    """Wait for the lock of a file or a folder; nothing is locked where there is none."""
    try:
        file: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        file = None
    held = HeldLock(file)
    try:
        while file is not None and not _lock(file):  # noqa: ASYNC110 - other processes set no event of ours
            await anyio.sleep(_PAUSE_S)
    except BaseException:
        held.release()
        raise
    return held


async def turn_to_start(env: Mapping[str, str]) -> HeldLock:
    """Wait until no other client of ours is starting in this environment's home."""
    folder = Path(env["CODEX_SQLITE_HOME"]) if env.get("CODEX_SQLITE_HOME") else home(env)
    if not env.get("CODEX_HOME"):  # as the client itself would
        with suppress(OSError):  # which the client says itself
            folder.mkdir(parents=True, exist_ok=True)
    return await hold(folder)


def _lock(file: int) -> bool:
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where a client that meets another says so itself
        return True
    return True


ANSWER_S: Final = 30.0
"""Seconds the client may take to answer."""
INSTALL: Final = install_of("codex")
_CLIENT: Final = {"name": "proctor", "title": "proctor", "version": "0"}


class CodexConnection(RpcClient):
    """A running client."""

    def __init__(self, process: ClientProcess, handler: RpcHandler, starting: HeldLock, program: str) -> None:
        super().__init__(process, handler, tagged=False)
        self._starting = starting
        self._program = program

    async def request(
        self, method: str, params: dict[str, Any], *, timeout_s: float | None = ANSWER_S
    ) -> dict[str, Any]:
        return await super().request(method, params, timeout_s=timeout_s)

    async def greet(self) -> None:
        """Initialize the connection. Raises ProviderUnavailableError if the client cannot sign in."""
        await self.request("initialize", {"clientInfo": _CLIENT, "capabilities": {"experimentalApi": True}})
        self._starting.release()
        await self.peer.notify("initialized")
        account = await self.request("account/read", {})
        if account.get("requiresOpenaiAuth") and account.get("account") is None:
            raise ProviderUnavailableError(
                f"codex is not logged in; run `{shlex.quote(self._program)} login`, or set `model_provider` in the "
                "adapter's `config`"
            )


@asynccontextmanager
async def connect(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], mark: str, handler: RpcHandler
) -> AsyncIterator[CodexConnection]:
    """Start the client; leaving ends it. Raises ProviderUnavailableError when it cannot be started.

    Nothing is read before the caller runs `connection.peer.run`.
    """
    starting = await turn_to_start(env)
    try:
        async with start_client("codex", command, cwd=cwd, env=env, mark=mark, advice=INSTALL) as process:
            yield CodexConnection(process, handler, starting, command[0])
    finally:
        starting.release()


def find_client() -> str:
    """The executable of the package, or else that on PATH. Raises ProviderUnavailableError."""
    try:
        return str(import_module("codex_cli_bin").bundled_codex_path())
    except (ImportError, FileNotFoundError):
        found = shutil.which("codex")
    if found is None:
        raise ProviderUnavailableError(f"codex is not installed; {INSTALL}")
    return found


async def check_client(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
    """Start the client and check that it is logged in. Raises ProviderUnavailableError."""
    async with (
        connect(command, cwd=cwd, env=env, mark=f"prepare-{uuid4().hex}", handler=RpcHandler()) as connection,
        helpers() as tasks,
    ):
        tasks.start_soon(connection.process.read_stderr)
        tasks.start_soon(connection.peer.run)
        try:
            await connection.greet()
        except ProviderUnavailableError:
            raise
        except ProviderError as error:
            raise ProviderUnavailableError(
                f"codex does not work: {error}; {INSTALL}", details=error.details
            ) from error
