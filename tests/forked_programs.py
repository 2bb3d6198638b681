"""Test programs as forks of a server process that has already imported their modules.

`proctor` runs so too: a test starts a small program that passes its arguments, folder, variables and streams to the
server, forwards its signals, and exits as the command does. Such a command is no descendant of the process that
starts it, and has no terminal of its own.
"""

import atexit
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Self

from proctor.supervisor.testing.fakes import PATIENCE_S

SERVER: Final = """
import atexit, contextlib, gc, importlib, marshal, os, pkgutil, runpy, select, signal, socket, sys, threading
import traceback

def imported(name):
    room, with_all_in_it, _ = name.partition(".*")
    module = importlib.import_module(room)
    for each in pkgutil.walk_packages(module.__path__, f"{room}.") if with_all_in_it else ():
        if not each.name.startswith("proctor.supervisor.testing"):
            importlib.import_module(each.name)

def play(program, words, folder, env, streams):
    os.setsid()
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
    os.closerange(3, 1 << 16)
    for n, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(n, "w" if n else "r", 1 if n == 2 else -1, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [program, *words]
    if program == "proctor":
        runpy.run_module(program, run_name="__main__")
    else:
        sys.path.insert(0, os.path.dirname(program))
        runpy.run_path(program, run_name="__main__")

def played(*given):  # without the end of a Python, which takes apart all that was read in
    code = 0
    try:
        play(*given)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)

place, *modules = sys.argv[1:]
for name in modules:
    with contextlib.suppress(ImportError):  # an extra that is not installed
        imported(name)
gc.freeze()
listener = socket.socket(socket.AF_UNIX)
listener.bind(place)
listener.listen(64)
print("ready", flush=True)
clients, ends = {}, {}
while 0 not in (ready := select.select([0, listener, *clients, *ends], [], [])[0]):  # else whoever started it is gone
    for each in ready:
        if each is listener:
            client, _ = listener.accept()
            length, streams, _, _ = socket.recv_fds(client, 4, 3)
            given = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
            if not given:
                continue
            child = os.fork()
            if not child:
                played(*marshal.loads(given), streams)
            for fd in streams:
                os.close(fd)
            clients[client] = child
            ends[os.pidfd_open(child)] = child, client
            with contextlib.suppress(OSError):
                client.send(child.to_bytes(4, "big"))
        elif each in ends:
            child, client = ends.pop(each)
            os.close(each)
            clients.pop(client, None)
            status = os.waitpid(child, 0)[1]
            with contextlib.suppress(OSError):
                client.send(status.to_bytes(4, "big"))
            client.close()
        elif each in clients:
            sent = b""
            with contextlib.suppress(ConnectionResetError):  # which comes where it was told what it has not read
                sent = each.recv(1)
            os.kill(clients[each], sent[0] if sent else signal.SIGKILL)  # its client was killed
            if not sent:
                del clients[each]
"""
CLIENT: Final = """\
#!{python} -SE
import _signal, _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({place!r})
given = marshal.dumps(("proctor", sys.argv[1:], os.getcwd(), dict(os.environ)))
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in range(3))
server.sendmsg([len(given).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(given)
for each in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    _signal.signal(each, lambda number, _: server.send(bytes([number])))
server.recv(4)  # its pid
code = os.waitstatus_to_exitcode(int.from_bytes(server.recv(4), "big"))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
PROGRAMS: Final = (
    *("anyio._backends._asyncio", "trio", "claude_agent_sdk", "proctor.adapters.agents.claude.session"),
    *("proctor.adapters.fleet", "proctor.adapters.stores.sqlite", "proctor.adapters.stores.postgres"),
    *("proctor.supervisor.api.supervisor", "proctor.supervisor.testing"),
)
COMMANDS: Final = (
    *("anyio._backends._asyncio", "rich.table", "proctor.adapters.cli.*", "proctor.adapters.evaluate.*"),
    *("proctor.adapters.kit.*", "proctor.adapters.operations.*", "proctor.policies.*", "proctor.supervisor.*"),
    *("proctor.adapters.agents.scripted", "proctor.adapters.agents.shell", "proctor.adapters.stores.sqlite"),
)


class Forked:
    """A running program, with the pipes and the exit code of a Popen; it is no child of this process."""

    def __init__(
        self, program: Path, words: Sequence[str], *, cwd: str | os.PathLike[str], env: Mapping[str, str]
    ) -> None:
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(in_write, "w"), os.fdopen(out_read)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_server(*PROGRAMS))
        given = marshal.dumps((str(program), list(words), os.fspath(cwd), dict(env)))
        socket.send_fds(self._server, [len(given).to_bytes(4, "big")], [in_read, out_write, 2])
        self._server.sendall(given)
        for fd in (in_read, out_write):
            os.close(fd)
        self.pid = int.from_bytes(self._server.recv(4), "big")

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing if it has ended."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def has_ended(self, timeout_s: float = 0) -> bool:
        """Whether it ends within this time."""
        return self.stdout.closed or bool(select.select([self._server], [], [], timeout_s)[0])

    def wait(self) -> None:
        """Return once it has ended."""
        assert self.has_ended(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.wait()
        self._server.close()
        self.stdout.close()
        with suppress(BrokenPipeError):  # unread output
            self.stdin.close()


@cache
def warm_proctor(*modules: str) -> str:
    """The program to start instead of `proctor`; its server imports these modules too."""
    place = _server(*COMMANDS, *modules)
    program = Path(place).with_name("proctor")
    program.write_text(CLIENT.format(python=sys.executable, place=place))
    program.chmod(0o755)
    return str(program)


@cache
def _server(*modules: str) -> str:
    """The socket of a server that has imported these; it lives as long as this process."""
    folder = tempfile.mkdtemp(prefix="warm-")
    place = f"{folder}/socket"
    command = [sys.executable, "-c", SERVER, place, *modules]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
    )  # in no test's folder, as processes there are ended
    assert server.stdin is not None
    assert server.stdout is not None
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.wait, PATIENCE_S)
    atexit.register(server.communicate)  # closes its input, so that it exits
    assert server.stdout.readline() == b"ready\n"
    return place
