"""AmpAdapter: the Amp client as an agent to supervise."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import ProviderUnavailableError, UsageError

from ...kit.client_process import start_client
from ...kit.client_tools import AMP_TOOLS, meant, offering
from ...kit.launch_options import denied, options_for
from ...kit.process_tree import end_remains, home_of, shell_of
from ...kit.tasks import helpers
from .session import AmpSession, open_gate_socket
from .translation import their_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Any, Final

    from proctor.policies.policy import Policy
    from proctor.supervisor.ports.adapter import Launch, LaunchOptions

    from .session import GateSocket


COMPILES: Final = ("deny",)


OURS: Final = ("amp.permissions", "amp.dangerouslyAllowAll")
"""Settings that hold the gate; the caller's own say in them may only refuse."""


_SPELLABLE = re.compile(r"[A-Za-z0-9_-]+\*?")
"""A name, or the beginning of names, that the client reads as it stands."""


def compile_options(policy: Policy) -> LaunchOptions:
    """The options a policy can be turned into: `rejected`, the client's patterns of tools that never run."""
    rejected: dict[str, None] = {}
    expressed: set[str] = set()
    for entry, names in denied(policy):
        if all(map(_SPELLABLE.fullmatch, names)):
            own_names = [
                theirs for name in names for tool in (name, *meant(AMP_TOOLS, name)) for theirs in their_names(tool)
            ]
            rejected.update(dict.fromkeys(own_names))
            expressed.add(f"deny {entry}")
    return options_for(policy, {"rejected": tuple(rejected)}, expressed)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for settings of the caller's that would let something round the gate."""
    if settings.get("amp.dangerouslyAllowAll"):
        raise UsageError("setting `amp.dangerouslyAllowAll` would let every call round the gate")
    rules = settings.get("amp.permissions", ())
    for n, rule in enumerate(rules if isinstance(rules, Sequence) and not isinstance(rules, str) else (None,)):
        if not isinstance(rule, Mapping) or rule.get("action") != "reject":
            raise UsageError(f"setting `amp.permissions[{n}]` may only reject; policies say what is allowed")


def settings_for(settings: Mapping[str, Any], rejected: Iterable[str], delegate: str) -> dict[str, Any]:
    """The client's settings for one run.

    Args:
        settings: the caller's own.
        rejected: patterns of tools the client refuses by itself.
        delegate: the program it asks about everything else.
    """
    rules = [*settings.get("amp.permissions", ())]
    rules += [{"tool": pattern, "action": "reject"} for pattern in rejected]
    rules.append({"tool": "*", "action": "delegate", "to": delegate})
    return {**settings, "amp.permissions": rules, "amp.dangerouslyAllowAll": False}


INSTALL: Final = "npm install -g @sourcegraph/amp"


class AmpAdapter:
    """Runs prompts with the `amp` client, its calls held by its own permission rules.

    The rules hold for calls the client itself makes, not for what Amp's servers do: `gate` is `some`.

    Args:
        mode: the client's agent mode (`low`, `medium`, `high`, ...); its own choice if not given.
        settings: the client's settings by their names; its permissions may only reject. The user's own
            settings file is not read.
        amp_path: the client's executable; AMP_CLI_PATH, or else `amp` on PATH.
        cwd: the folder to work in; the current one if not given.
        env: the client's whole environment; this process's if not given.
        arguments: more arguments of the client.

    Raises:
        UsageError: settings that would let something round the gate.
    """

    end_remains = staticmethod(end_remains)

    name = "amp"

    def __init__(
        self,
        *,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
        amp_path: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        check_settings(settings or {})
        self._mode = mode
        self._settings = dict(settings or {})
        self._path = amp_path
        self._cwd = Path(cwd) if cwd is not None else None
        self._env = dict(env) if env is not None else None
        self._arguments = list(arguments)

    @property
    def capabilities(self) -> Capabilities:
        """The client's capabilities; it reports tokens and no cost."""
        return Capabilities(
            gate="some",
            usage="per_turn",
            cancel_kills_children=True,
            resume=True,
            compiles=COMPILES,
            workspace=str(self._folder()),
            home=home_of(self._environment()),
            shell=shell_of(self._environment()),
            **offering(AMP_TOOLS, None),
        )

    async def prepare(self) -> None:
        """Check the client, the folder, and that there is something to sign in with.

        Raises ProviderUnavailableError.
        """
        self._executable()
        if not self._folder().is_dir():
            raise ProviderUnavailableError(f"there is no working directory at `{self._folder()}`; check `cwd`")
        if not self._can_sign_in():
            raise ProviderUnavailableError("amp has nothing to sign in with; set AMP_API_KEY or run `amp login`")

    def compile(self, policy: Policy) -> LaunchOptions:
        """The policy as permission rules of the client."""
        return compile_options(policy)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[AmpSession]:
        """Start the client with the prompt. Raises ProviderUnavailableError, UnknownSessionError, UsageError."""
        if launch.fork:
            raise UsageError("`amp` cannot fork a thread")
        rejected = launch.options.options.get("rejected", ())
        session = AmpSession(launch, rejected)
        async with open_gate_socket(session.ask) as gate_socket:
            command = self._command(launch, self._settings_file(gate_socket, rejected))
            async with (
                start_client(
                    self.name,
                    command,
                    cwd=self._folder(),
                    env=self._environment(),
                    mark=launch.mark,
                    leaves=False,
                    advice=f"install it with `{INSTALL}`",
                ) as client,
                helpers() as tasks,
            ):
                session.attach(client)
                tasks.start_soon(client.read_stderr)
                tasks.start_soon(client.end_orphans)
                tasks.start_soon(session.listen)
                tasks.start_soon(client.say, session.prompt)
                if launch.resume is not None:
                    await session.taken_up(launch.resume)
                yield session

    def _settings_file(self, gate_socket: GateSocket, rejected: Sequence[str]) -> Path:
        settings = settings_for(self._settings, rejected, str(gate_socket.program))
        return gate_socket.write("settings.json", msgspec.json.encode(settings))

    def _command(self, launch: Launch, settings: Path) -> list[str]:
        if launch.resume is None:
            thread = ["--executor", "local", *(("--mode", self._mode) if self._mode else ())]
        else:
            thread = ["threads", "continue", launch.resume]
        streaming = ["--execute", "--stream-json", "--settings-file", str(settings)]
        return [self._executable(), *thread, *streaming, *self._arguments]

    def _executable(self) -> str:
        env = self._environment()
        wanted = str(self._path or env.get("AMP_CLI_PATH") or "amp")
        found = shutil.which(wanted, path=env.get("PATH"))
        if found is None:
            raise ProviderUnavailableError(f"there is no program `{wanted}`; install amp with `{INSTALL}`")
        return os.path.abspath(found)

    def _can_sign_in(self) -> bool:
        env = self._environment()
        data = env.get("XDG_DATA_HOME") or os.path.join(env.get("HOME", ""), ".local", "share")
        return bool(env.get("AMP_API_KEY")) or os.path.exists(os.path.join(data, "amp", "secrets.json"))

    def _folder(self) -> Path:
        return (self._cwd or Path.cwd()).resolve()

    def _environment(self) -> Mapping[str, str]:
        return os.environ if self._env is None else self._env
