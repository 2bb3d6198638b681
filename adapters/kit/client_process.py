"""Starts a client as a process on three pipes, and ends it with everything that it started."""

import os
import shutil
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from fcntl import ioctl
from pathlib import Path
from subprocess import PIPE
from termios import FIONREAD
from typing import Any, Final

import anyio

from proctor.policies.errors import os_words
from proctor.supervisor.arguments import check_path
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError

from .guardian import SIGNALLED
from .jsonrpc import BROKEN, Peer, RpcClosedError, RpcError, RpcHandler
from .process_tree import (
    GUARDS,
    ProcessTree,
    bash_for_commands,
    guarded,
    guardian_killed,
    home_of,
    marked_environment,
    shell_of,
)

_CHUNK: Final = 64 * 1024


class OutputPipe(anyio.abc.ByteReceiveStream):
    """The read end of a pipe, for one task; `write_end` is for the process.

    It reads nothing ahead, so that `wait_until_handled` can tell what is left in the pipe.
    """

    def __init__(self) -> None:
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        self._received = 0
        self._handled = 0
        self._open = True
        self._returned = anyio.Event()

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """The next bytes; a call means that the bytes before were handled."""
        self._handled = self._received
        self._wake()
        await anyio.lowlevel.checkpoint()
        while self._open:
            try:
                chunk = os.read(self._fd, min(max_bytes, _CHUNK))
            except BlockingIOError:
                await anyio.wait_readable(self._fd)
                continue
            if not chunk:
                await self.aclose()
                raise anyio.EndOfStream
            self._received += len(chunk)
            return chunk
        raise anyio.ClosedResourceError

    async def wait_until_handled(self) -> None:
        """Return when everything written until now was handled, or nothing can be read any more."""
        wanted = self._received + self._pending()
        while self._open and self._handled < wanted:
            await self._returned.wait()

    async def aclose(self) -> None:
        """Read no more."""
        if self._open:
            self._open = False
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._wake()

    def let_go(self) -> None:
        """Close our copy of the write end, after the process has its own or failed to start."""
        os.close(self.write_end)

    def _wake(self) -> None:
        self._returned.set()
        self._returned = anyio.Event()

    def _pending(self) -> int:
        if not self._open:
            return 0
        pending: int = struct.unpack("i", ioctl(self._fd, FIONREAD, b"\0" * 4))[0]
        return pending


class Workspace:
    """A client's folder and whole environment, by default those of this process."""

    def __init__(self, cwd: str | os.PathLike[str] | None, env: Mapping[str, str] | None) -> None:
        if cwd is not None:
            check_path(cwd=cwd)
        if env is not None and not isinstance(env, Mapping):
            raise UsageError(f"`env` is a value of type `{type(env).__name__}`, not a mapping to text")
        self._cwd = Path(cwd or os.curdir)
        self._env = None if env is None else dict(env)

    @property
    def folder(self) -> Path:
        """The folder, absolute."""
        return self._cwd.resolve()

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ if self._env is None else self._env

    def described(self) -> dict[str, Any]:
        """Its fields of `Capabilities`."""
        env = self.environment
        return {"workspace": str(self.folder), "home": home_of(env), "shell": shell_of(env)}

    def program(self, name: str, advice: str) -> str:
        """The path of a program that the client's PATH has. Raises ProviderUnavailableError."""
        found = shutil.which(name, path=self.environment.get("PATH"))
        if found is None:
            raise ProviderUnavailableError(f"there is no program `{name}`; {advice}")
        return os.path.abspath(found)

    def check_folder(self) -> None:
        """Raises ProviderUnavailableError if the folder does not exist."""
        if not self.folder.is_dir():
            raise ProviderUnavailableError(f"there is no working directory at `{self.folder}`; check `cwd`")


LEAVE_S: Final = 1.0
"""Seconds a client has to exit by itself, after its last output or the end of its input."""
_STDERR_LINES: Final = 20
_STDERR_LINE_BYTES: Final = 4096


class ClientProcess:
    """A running client; `tree` has all its processes, for the cancel steps.

    Args:
        process: the client, with two pipes.
        output: the third, its standard output.
        name: how messages call it.
        tree: its processes.
        leaves: whether it ends by itself once its input is closed.
    """

    def __init__(
        self, process: anyio.abc.Process, output: OutputPipe, *, name: str, tree: ProcessTree, leaves: bool
    ) -> None:
        assert process.stdin is not None
        assert process.stderr is not None
        self.name = name
        self.tree = tree
        self.stdin = process.stdin
        self.stdout = output
        self._errors = process.stderr
        self._process = process
        self._leaves = leaves
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_ended = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        code = self._process.returncode
        return SIGNALLED - code if GUARDS and code is not None and code > SIGNALLED else code

    async def write_input(self, text: str) -> None:
        """Write all its input, and close it."""
        try:
            await self.stdin.send(text.encode())
            await self.close_input()
        except BROKEN:
            return

    async def read_stderr(self, on_line: Callable[[str], None] = lambda line: None) -> None:
        """Read its standard error, so that it never blocks, and keep the end of it; `on_line` gets each line."""
        rest = b""
        while True:
            try:
                chunk = await self._errors.receive()
            except BROKEN:
                self._stderr_ended.set()
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._stderr.append(line[-_STDERR_LINE_BYTES:].decode("utf-8", "replace"))
                on_line(self._stderr[-1])
            rest = rest[-_STDERR_LINE_BYTES:]

    async def wait_exit(self) -> None:
        """Wait briefly until it has ended."""
        with anyio.move_on_after(LEAVE_S):
            await self._process.wait()

    async def stderr_tail(self) -> str:
        """The end of its standard error; waits briefly until all of it is read. For a process that has ended."""
        with anyio.move_on_after(LEAVE_S):
            await self._stderr_ended.wait()
        return "\n".join(self._stderr)

    async def end_orphans(self) -> None:
        """Kill the orphans of an ended client, as one that holds its output would keep the stream open."""
        await self._process.wait()
        await self.tree.kill()

    def exit_error(self, message: str) -> ProviderError:
        """The error for a client that has ended, with the end of its standard error."""
        words = "\n".join(self._stderr)
        return self.guardian_killed() or ProviderError(
            message, details={"exit_code": self.exit_code, "stderr": words}
        )

    async def close_input(self) -> None:
        """Close its input, so that a well-behaved client ends by itself."""
        await self.stdin.aclose()

    def guardian_killed(self) -> ProviderError | None:
        """The error for a client whose guardian was killed, but not by us."""
        return guardian_killed(self._process.returncode)

    async def end(self) -> None:
        """End it and everything it started, in bounded time."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.tree.snapshot)
            if self._leaves and self.exit_code is None:
                with anyio.move_on_after(LEAVE_S):
                    await self.close_input()
                    await self._process.wait()
            await self.tree.kill()
            await self.stdout.aclose()
            await self._process.aclose()


@asynccontextmanager
async def start_client(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    call_id: str | None = None,
    leaves: bool = True,
    advice: str = "",
) -> AsyncIterator[ClientProcess]:
    """Start a client, marked with its run; leaving ends it, see `ClientProcess`.

    Args:
        name: how messages call it.
        command: the program and its arguments.
        cwd: the folder it works in.
        env: its whole environment, but for the mark.
        mark: `Launch.mark` of the run it belongs to.
        call_id: tells it from other clients of the run; without it, leaving ends all processes of the run.
        leaves: whether it ends by itself once its input is closed.
        advice: what to do when it cannot be started.

    Raises:
        ProviderUnavailableError: it cannot be started.
        ProviderError: what it started has killed its guardian.
    """
    output = OutputPipe()
    try:
        process = await anyio.open_process(
            guarded(command, cwd=cwd, env=env, mark=mark),
            stdin=PIPE,
            stdout=output.write_end,
            stderr=PIPE,
            cwd=cwd,
            env={**marked_environment(mark, env, call_id=call_id), **bash_for_commands(env)},
            start_new_session=True,
        )
    except BaseException as error:
        await output.aclose()
        if not isinstance(error, OSError):
            raise
        more = f"; {advice}" if advice else ""
        reason = f"`{error.filename}`: {os_words(error)}"
        raise ProviderUnavailableError(f"{name} cannot be started: {reason}{more}") from error
    finally:
        output.let_go()
    tree = ProcessTree(process.pid, mark=mark, call_id=call_id)
    client = ClientProcess(process, output, name=name, tree=tree, leaves=leaves)
    try:
        yield client
    finally:
        await client.end()
    if (killed := client.guardian_killed()) is not None:
        raise killed


class RpcClient:
    """The JSON-RPC connection to a client; `peer` is our end, which reads nothing before `peer.run`.

    Args:
        process: the client.
        handler: handles what it sends.
        tagged: whether messages carry `"jsonrpc": "2.0"`.
    """

    def __init__(self, process: ClientProcess, handler: RpcHandler, *, tagged: bool = True) -> None:
        self.process = process
        self.peer = Peer(process.stdout, process.stdin, handler, tagged=tagged)

    async def request(self, method: str, params: dict[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Send a request and return its result. Raises ProviderError if the client rejects it, has ended, or does not
        answer.
        """
        name = self.process.name
        try:
            with anyio.fail_after(timeout_s):
                result = await self.peer.request(method, params)
        except RpcError as error:
            raise self.refusal(method, error) from error
        except RpcClosedError as error:
            await self.process.wait_exit()
            code = self.process.exit_code
            raise self.process.exit_error(f"{name} ended before it answered `{method}`, exit code {code}") from error
        except TimeoutError as error:
            raise self.process.exit_error(f"{name} did not answer `{method}` within {timeout_s:g} s") from error
        return result if isinstance(result, dict) else {}

    def refusal(self, method: str, error: RpcError) -> ProviderError:
        """The error for a rejected request; `said` in its details is the client's whole answer."""
        more = error.data.get("details") if isinstance(error.data, dict) else error.data
        answer = f"{error.message}: {more}" if more else error.message
        details = {"method": method, "code": error.code, "data": error.data, "said": answer}
        return ProviderError(f"{self.process.name} refused `{method}`: {answer}", details=details)
