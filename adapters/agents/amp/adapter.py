"""AmpAdapter: how the Amp client is started, and one run of it: a prompt, the gate's answers, its cancel steps."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
import msgspec

from proctor.policies.events import ToolCallDenied, ToolCallRequested
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy
from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.ports.adapter import CancelStep, GateAnswer, Launch, LaunchOptions

from ...kit.client_process import ClientProcess, Workspace, start_client
from ...kit.client_tools import AMP_TOOLS, tool_capabilities, tools_matching
from ...kit.jsonrpc import MAX_LINE_BYTES, ByteLines, EndlessLineError
from ...kit.launch_options import denied, options_for
from ...kit.process_tree import ProcessTree, end_orphans
from ...kit.provider import ClientSession, helpers
from ...kit.values import whole_characters
from . import delegate
from .translation import AmpTranslation, their_names

COMPILES: Final = ("deny",)
_SPELLABLE = re.compile(r"[A-Za-z0-9_-]+\*?")
"""A name, or the beginning of names, that the client reads literally."""


def compile_options(policy: Policy) -> LaunchOptions:
    """A policy as options: `rejected`, the client's patterns of tools that never run."""
    rejected: dict[str, None] = {}
    expressed: set[str] = set()
    for entry, names in denied(policy):
        if all(map(_SPELLABLE.fullmatch, names)):
            tools = [tool for name in names for tool in (name, *tools_matching(AMP_TOOLS, name))]
            rejected.update(dict.fromkeys(theirs for tool in tools for theirs in their_names(tool)))
            expressed.add(f"deny {entry}")
    return options_for(policy, {"rejected": tuple(rejected)}, expressed)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises UsageError for settings of the caller that would let something bypass the gate."""
    if settings.get("amp.dangerouslyAllowAll"):
        raise UsageError("setting `amp.dangerouslyAllowAll` would let every call bypass the gate")
    rules = settings.get("amp.permissions", ())
    for n, rule in enumerate(rules if isinstance(rules, Sequence) and not isinstance(rules, str) else (None,)):
        if not isinstance(rule, Mapping) or rule.get("action") != "reject":
            raise UsageError(f"setting `amp.permissions[{n}]` may only reject; policies say what is allowed")


_ELSEWHERE: Final = frozenset(("--executor", "--orb-execute", "--settings-file", "-ox"))


def check_arguments(arguments: Sequence[str]) -> None:
    """Raises UsageError for arguments of the caller that would replace our settings, or run the tools elsewhere."""
    for argument in arguments:
        if argument.partition("=")[0] in _ELSEWHERE:
            raise UsageError(f"argument `{argument}` would let every call bypass the gate; `settings` are an option")


def settings_for(settings: Mapping[str, Any], rejected: Iterable[str], delegate: str) -> dict[str, Any]:
    """The client's settings for one run: the caller's own, with the tools that the client denies by itself, and the
    program (`delegate`) that it asks about everything else.
    """
    rules = [*settings.get("amp.permissions", ())]
    rules += [{"tool": pattern, "action": "reject"} for pattern in rejected]
    rules.append({"tool": "*", "action": "delegate", "to": delegate})
    return {**settings, "amp.permissions": rules, "amp.dangerouslyAllowAll": False}


INSTALL: Final = "npm install -g @sourcegraph/amp"


class AmpAdapter:
    """Runs prompts with the `amp` client, its calls held by its own permission rules.

    The rules apply to calls of the client itself, not to what Amp's servers do, so `gate` is `some`.

    Args:
        mode: the client's agent mode (`low`, `medium`, `high`, ...); its own choice if not given.
        settings: the client's settings by their names; its permissions may only reject. The user's own
            settings file is not read.
        amp_path: the client's executable; AMP_CLI_PATH, or else `amp` on PATH.
        cwd: the folder to work in; the current one if not given.
        env: the client's whole environment; this process's if not given.
        arguments: more arguments of the client.

    Raises:
        UsageError: settings or arguments that would let something bypass the gate.
    """

    end_orphans = staticmethod(end_orphans)

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
        check_arguments(arguments)
        self._mode = mode
        self._settings = dict(settings or {})
        self._path = amp_path
        self._workspace = Workspace(cwd, env)
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
            **self._workspace.described(),
            **tool_capabilities(AMP_TOOLS, None),
        )

    async def prepare(self) -> None:
        """Check the client, the folder, and that there is something to sign in with.

        Raises ProviderUnavailableError.
        """
        self._executable()
        self._workspace.check_folder()
        env = self._workspace.environment
        data = Path(env.get("XDG_DATA_HOME") or Path(env.get("HOME", ""), ".local", "share"))
        if not env.get("AMP_API_KEY") and not (data / "amp" / "secrets.json").exists():
            raise ProviderUnavailableError("amp is not logged in; set AMP_API_KEY, or run `amp login`")

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
        async with open_gate_socket(session.propose) as gate_socket:
            command = self._command(launch, self._settings_file(gate_socket, rejected))
            async with (
                start_client(
                    self.name,
                    command,
                    cwd=self._workspace.folder,
                    env=self._workspace.environment,
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
                tasks.start_soon(client.write_input, session.prompt)
                if launch.resume is not None:
                    await session.wait_resumed(launch.resume)
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
        wanted = str(self._path or self._workspace.environment.get("AMP_CLI_PATH") or "amp")
        return self._workspace.program(wanted, f"install amp with `{INSTALL}`")


_decoder = msgspec.json.Decoder(dict[str, Any])


class AmpSession(ClientSession):
    """A Provider: one prompt given to one thread; the client refuses the tools in `rejected` by itself."""

    client_name = "amp"
    close_s = None
    terminate_s = 3.0

    def __init__(self, launch: Launch, rejected: Iterable[str]) -> None:
        super().__init__(launch)
        self._translation = AmpTranslation(rejected)
        self._client: ClientProcess
        self._begun = anyio.Event()
        self._silent = True

    def attach(self, client: ClientProcess) -> None:
        self._client = client

    @property
    def tree(self) -> ProcessTree:
        return self._client.tree

    async def wait_resumed(self, thread: str) -> None:
        """Wait for the client's first output, or its end. Raises UnknownSessionError if it has no such thread."""
        await self._begun.wait()
        if self._silent and f"{thread} does not exist" in await self._client.stderr_tail():
            raise UnknownSessionError(f"amp has no thread `{thread}`", details=self._exit_error().details)

    def cancel_steps(self) -> Sequence[CancelStep]:
        """Terminate, kill: the client has no interrupt of its own."""
        terminate, kill = super().cancel_steps()
        return [CancelStep(name=terminate.name, act=self._closing_by(terminate), bound_s=terminate.bound_s), kill]

    async def listen(self) -> None:
        """Read the client's output until it ends; then the stream of events ends."""
        try:
            async for line in ByteLines(self._client.stdout, max_bytes=MAX_LINE_BYTES):
                await self._handle_line(line)
        except EndlessLineError:
            self._mark_active()
            self._stream.close(self._client.exit_error("amp wrote a line without end"))
            return
        await self._client.wait_exit()
        self._begun.set()
        self._stream.close(None if self._translation.done or self._closing else self._exit_error())

    async def propose(self, tool: str, tool_input: Any) -> GateAnswer:
        """Answer the delegate about one call, after all earlier output of the client was evaluated."""
        self._mark_active()
        await self._client.stdout.wait_until_handled()
        self._stream.send_nowait(*self._translation.turns.begin())
        call = self._translation.proposed(tool, tool_input)
        answer = await self._gate.propose(call.as_tool_call())
        call.allowed, call.refused, call.denial = answer.allowed, not answer.allowed, answer.tell_model or ""
        return answer

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        self._mark_active()
        try:
            record = _decoder.decode(whole_characters(line))
        except NOT_JSON:
            self.report_bad_line(line, "record")
            return
        judged: set[str] = set()
        for event in self._translation.events(record):
            if isinstance(event, ToolCallRequested) and await self._attempted(event.tool_call_id):
                judged.add(event.tool_call_id)
            elif not (isinstance(event, ToolCallDenied) and event.tool_call_id in judged):
                await self._gate.report([event])

    async def _attempted(self, call_id: str) -> bool:
        """Whether the policy also denies a call that the client denied by a rule of ours."""
        call = self._translation.calls.get(call_id)
        return call is not None and await self._gate.attempted(call.as_tool_call())

    def _mark_active(self) -> None:
        self._silent = False
        self._begun.set()

    def _exit_error(self) -> ProviderError:
        return self._client.exit_error(f"amp ended without a result, exit code {self._client.exit_code}")

    def _closing_by(self, step: CancelStep) -> Any:
        async def act() -> dict[str, Any] | None:
            self._closing = True
            self._gate.stop()
            return await step.act()

        return act

    async def end(self) -> None:
        self._closing = True
        await super().end()


Propose: TypeAlias = Callable[[str, Any], Awaitable[GateAnswer]]
"""Answers for a tool's name, as the client has it, and its input."""
QUESTION_S: Final = 10.0
"""Seconds a delegate may take to send its question."""
_MAX_BYTES: Final = 64 * 1024 * 1024
_SOCKET_PATH: Final = 100
"""How many bytes the path of a socket may have; systems allow little more."""
_WRAPPER: Final = """#!/bin/sh
{command} || {{ cat >/dev/null; exit 2; }}
"""


class _Question(msgspec.Struct):
    token: str
    tool: str
    input: Any = None


_questions = msgspec.json.Decoder(_Question)


class GateSocket:
    """The files that the client's questions need: `program`, the delegate it runs, and `folder` for its settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "delegate"
        self.token = secrets.token_hex(32)
        _write(folder / "token", self.token, 0o600)
        # isolated: the delegate starts in a folder the agent writes, and must not import from it
        command = shlex.join([sys.executable, "-I", str(Path(delegate.__file__).resolve()), str(folder)])
        _write(self.program, _WRAPPER.format(command=command), 0o700)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file for the client; returns its path."""
        path = self.folder / name
        _write(path, content.decode(), 0o600)
        return path


@asynccontextmanager
async def open_gate_socket(propose: Propose) -> AsyncIterator[GateSocket]:
    """Answer delegates until the body is left; a call whose question cannot be answered is denied."""
    folder = _folder()
    try:
        gate_socket = GateSocket(folder)
        async with await anyio.create_unix_listener(folder / "socket", mode=0o600) as listener, helpers() as tasks:
            tasks.start_soon(listener.serve, _answering(gate_socket.token, propose))
            yield gate_socket
    finally:
        rmtree(folder, ignore_errors=True)


def _answering(token: str, propose: Propose) -> Callable[[anyio.abc.SocketStream], Awaitable[None]]:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            question = await _read(stream)
            if question is None or not hmac.compare_digest(question.token, token):
                return
            try:
                answered = await propose(question.tool, question.input)
            except Exception:  # no answer is no permission: the delegate refuses when we hang up
                return
            reply = {"allowed": answered.allowed, "tell_model": answered.tell_model}
            try:
                await stream.send(msgspec.json.encode(reply) + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    return answer


async def _read(stream: anyio.abc.SocketStream) -> _Question | None:
    line = b""
    with anyio.move_on_after(QUESTION_S):
        try:
            while not line.endswith(b"\n") and len(line) <= _MAX_BYTES:
                line += await stream.receive()
            return _questions.decode(line)
        except (anyio.EndOfStream, anyio.BrokenResourceError, *NOT_JSON):
            return None
    return None


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="proctor-"))
    if len(os.fsencode(folder / "socket")) > _SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="proctor-", dir="/tmp"))
    return folder


def _write(path: Path, text: str, mode: int) -> None:
    path.touch(mode=mode)
    path.write_text(text)
