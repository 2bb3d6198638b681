"""`proctor` as a process that need not read the program in: `from warm_proctor import warm_proctor`.

A server that has read it in forks for each command. What a test starts is a small program that hands its words,
folder, variables and streams to the server, passes on the signals that it gets, and ends as the command does. The
command is no descendant of it, and has no terminal of its own.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from proctor.supervisor.testing.fakes import PATIENCE_S

CLIENT: Final = """\
#!{python} -SE
import _signal, _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({place!r})
given = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in range(3))
server.sendmsg([len(given).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(given)
for each in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    _signal.signal(each, lambda number, _: server.send(bytes([number])))
code = os.waitstatus_to_exitcode(int.from_bytes(server.recv(4), "big"))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""

SERVER: Final = """
import gc, importlib, marshal, os, pkgutil, select, signal, socket, sys
import anyio._backends._asyncio, rich.table
import proctor.adapters.agents.scripted, proctor.adapters.agents.shell, proctor.adapters.stores.sqlite
from proctor.adapters.cli import main
from proctor.adapters.cli.app import COMMANDS, app

def command(words, folder, env, streams):
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
        os.close(fd)
    for n, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, open(n, "w" if n else "r", 1 if n == 2 else -1, closefd=False))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["proctor", *words]
    main(words)

def served(client):
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(client, 4, 3)
    data = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    child = os.fork()
    if not child:
        client.close()
        return command(*marshal.loads(data), streams)
    for fd in streams:
        os.close(fd)
    ended = os.pidfd_open(child)
    while ended not in (ready := select.select([ended, client], [], [])[0]):
        sent = client.recv(1)
        os.kill(child, sent[0] if sent else signal.SIGKILL)  # its client was killed
        if not sent:
            break
    status = os.waitpid(child, 0)[1]
    client.send(status.to_bytes(4, "big"))
    os._exit(0)

for name in COMMANDS:
    app.get_command(None, name)
for room in ("adapters.evaluate", "adapters.kit", "adapters.operations", "policies", "supervisor", *sys.argv[2:]):
    folder = importlib.import_module(f"proctor.{room}")
    for module in pkgutil.walk_packages(folder.__path__, f"proctor.{room}."):
        if not module.name.startswith("proctor.supervisor.testing"):
            importlib.import_module(module.name)
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(64)
print("ready", flush=True)
while listener in select.select([listener, sys.stdin], [], [])[0]:  # else whoever started it is gone
    client, _ = listener.accept()
    if not os.fork():
        listener.close()
        served(client)
        break
    client.close()
"""


@cache
def warm_proctor(*rooms: str) -> str:
    """The program to start in place of `proctor`; its server lasts as long as this process, and has these rooms read
    in, too.
    """
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    program, place = folder / "proctor", str(folder / "socket")
    program.write_text(CLIENT.format(python=sys.executable, place=place))
    program.chmod(0o755)
    command = [sys.executable, "-c", SERVER, place, *rooms]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
    )  # in no test's folder: what is left there is ended
    assert server.stdin is not None
    assert server.stdout is not None
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.wait, PATIENCE_S)
    atexit.register(server.communicate)  # which closes its input, so that it ends
    assert server.stdout.readline() == b"ready\n"
    return str(program)
