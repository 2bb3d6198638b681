"""The hook daemon: hooks come to a private socket and are answered one at a time.

`daemon_client` starts it: `python -I -m proctor.adapters.hooks.daemon FOLDER OPTIONS...`.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from proctor.policies.errors import EventError

from ..kit.display_text import escape_control_lines
from .clients import CLIENTS
from .daemon_client import ALARM_S, END, HELD, SOCKET, peer_of
from .decider import HookDecider, HookOptions
from .messages import HOOK_HELD_S, QUESTION_S, HookAnswer, HookInput
from .origin import Origin, is_socket, origin_of
from .over_http import LOCK, HookServer, read_endpoint

T = TypeVar("T")
IDLE_S = 900.0
"""Seconds without a hook after which it ends; the next hook starts another."""
LOOK_S = 2.0
"""How often it looks whether it is still needed, and whether its clients are there."""
ASK_S = 0.25
"""How often it looks whether somebody has answered a call that waits."""
_BELOW_S = 60.0
"""So many seconds a subagent's question waits for an answer from elsewhere; only then its client asks its person."""
_LOCAL_PEERPID = (0, 2)
DECIDE_S = ALARM_S - 5.0
"""Seconds after which a hook without a decision is denied; fewer than the hook itself waits."""
READ_S = 20.0
"""Seconds a hook has to send its input."""
PROBE = b'{"proctor": "probe"}'
"""Input of no client, by which `proctor hook status` sees whether hooks are answered."""


def serve(folder: Path, decider: HookDecider) -> None:
    """Answer hooks in `folder`, unless another process does; returns when this process is no longer needed.

    The folder is the caller's own, with mode 0700.
    """
    os.chdir(folder)
    os.umask(0o077)
    with Path(LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        listener = _listening()
        daemon = _Daemon(listener, decider)
        try:
            daemon.run()
        finally:
            daemon.close()
            decider.close()
            with contextlib.suppress(OSError):
                os.unlink(SOCKET)  # before the lock goes: another may put its own there then
            listener.close()


def _listening() -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(64)
    listener.settimeout(LOOK_S)
    return listener


class _Daemon:
    def __init__(self, listener: socket.socket, decider: HookDecider) -> None:
        self._listener = listener
        self._decider = decider
        self._deciding = threading.Lock()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._attending: set[threading.Thread] = set()
        threading.Thread(target=self._keep_working, daemon=True).start()
        self._asked_at = self._looked_at = time.monotonic()
        self._place = os.stat(SOCKET).st_ino
        self._code = _code()
        self._http: HookServer | None = None

    def close(self) -> None:
        """Accept no more hooks."""
        if self._http is not None:
            self._http.close()

    def run(self) -> None:
        """Accept connections, each in a thread of its own: one that sends nothing delays no other."""
        while self._needed():
            self._check()
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._attend, args=(connection,), daemon=True)
            self._attending -= {each for each in list(self._attending) if not each.is_alive()}
            self._attending.add(thread)
            thread.start()
        self._finish()

    def _finish(self) -> None:
        """Answer the hooks whose input was read, because it can't be read again, and record what was reported."""
        until = time.monotonic() + DECIDE_S
        for thread in list(self._attending):
            thread.join(max(0.0, until - time.monotonic()))
        with contextlib.suppress(EventError):
            self._decide(lambda _: None)
        self._deciding.acquire()  # nothing is decided after it

    def _needed(self) -> bool:
        try:
            there = os.stat(SOCKET).st_ino == self._place
        except OSError:  # its folder was removed
            there = False
        busy = self._deciding.locked() or self._decider.watches or time.monotonic() - self._asked_at < IDLE_S
        return there and busy and self._code == _code()

    def _check(self) -> None:
        """Check the clients with active runs; the current hook does not wait for that."""
        if time.monotonic() - self._looked_at >= LOOK_S and self._deciding.acquire(blocking=False):
            with contextlib.suppress(Exception):  # it is looked at again, and by whoever else uses the store
                self._decider.check()
            self._looked_at = time.monotonic()
            self._deciding.release()

    def _attend(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            hook = _peer(connection)
            if hook is None or self._code != _code():
                return
            connection.settimeout(READ_S)
            agent, data, given = _received(connection)
            with given or contextlib.nullcontext():
                try:
                    origin = origin_of(hook, given)
                    data = data if given is None else _all_of(given)
                except (EventError, OSError) as error:
                    connection.sendall(_refused(error, data) + END)
                    return
            connection.sendall(self._answer_to(data, origin, connection, agent) + END)

    def _answer_to(self, data: bytes, origin: Origin, connection: socket.socket, agent: str = "claude") -> bytes:
        """`=` and the output for the client, or `!` and why nothing was decided; one hook after another.

        While a hook waits for a person, others are answered, until the person has answered or the client is gone.
        """
        try:
            if data == PROBE:
                return b"=" + json.dumps(self._decide(lambda _: self._decider.probe(agent))).encode()
            answer, hook_input = self._decide(
                lambda reply: self._decider.answer_hook(data, origin=origin, agent=agent, reply=reply)
            )
            if held := answer.held:
                self._attending.discard(threading.current_thread())  # no end of this process waits for a person
                if connection.family == socket.AF_UNIX:
                    most = QUESTION_S if hook_input.kind == "permission" else HOOK_HELD_S
                    connection.sendall(HELD + f"{most}\n".encode())
                answer = self._wait_for_approval(hook_input, held, origin, connection)
            output = hook_input.client.output(answer, hook_input)
        except Exception as error:
            return _refused(error, data)
        return b"=" + (json.dumps(output).encode() + b"\n" if output else b"")

    def _decide(self, work: Callable[[Future[Any]], T]) -> T:
        """The result of `work`, once the hooks before it are answered.

        Raises EventError when that takes too long, unless `work` has set its future to running by then.
        """
        reply: Future[T] = Future()
        self._work.put(partial(self._do, work, reply))
        if not wait([reply], DECIDE_S).done and reply.cancel():
            raise EventError(f"nothing was decided within {DECIDE_S:g} seconds: a large input, or a slow store")
        return reply.result()

    def _keep_working(self) -> None:
        while True:
            self._work.get()()

    def _do(self, work: Callable[[Future[Any]], T], reply: Future[T]) -> None:
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            try:
                with self._deciding:
                    self._asked_at = time.monotonic()
                    self._listen()
                    result = work(reply)
            except BaseException as error:
                reply.set_exception(error)
            else:
                reply.set_result(result)

    def _wait_for_approval(
        self, hook_input: HookInput, held: str, origin: Origin, connection: socket.socket
    ) -> HookAnswer:
        """The answer once somebody has answered the approval. A client that does not wait for it has its own."""
        gone, until = False, time.monotonic() + _BELOW_S
        while True:
            gone = gone or _has_gone(connection)
            with self._deciding:
                self._asked_at = time.monotonic()
                answer = self._decider.resolve_held(hook_input, held, origin, gone=gone)
            if answer is not None:
                return answer
            if hook_input.kind == "permission" and hook_input.agent_id and time.monotonic() > until:
                return HookAnswer()
            time.sleep(LOOK_S if gone else ASK_S)

    def _listen(self) -> None:
        """Accept hooks over HTTP, too, once that is requested. Raises OSError if the port is not free."""
        endpoint = read_endpoint(".")
        if self._http is not None and self._http.endpoint == endpoint:
            return
        self.close()
        self._http = None
        if endpoint is not None:
            try:
                self._http = HookServer(endpoint, self._answer_to, lambda: self._decider.clients)
            except OSError as error:
                raise OSError(
                    f"port {endpoint.port}, by which hooks come, is taken; install the hooks again"
                ) from error


def _received(connection: socket.socket) -> tuple[str, bytes, socket.socket | None]:
    """The hook's owner and the input read so far, or the input itself if it is a socket."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 1)
    while data and b"\n" not in data:
        more = connection.recv(1 << 20)
        data = data + more if more else b""
    whose, _, data = data.partition(b"\n")
    agent = whose[1:].decode("ascii", "replace")
    if agent not in CLIENTS:
        raise OSError("the hook does not say whose it is")
    if descriptors:
        if not is_socket(descriptors[0]):
            os.close(descriptors[0])
            raise OSError("the hook's input is no socket")
        return agent, b"", socket.socket(fileno=descriptors[0])
    return agent, data + _all_of(connection), None


def _all_of(connection: socket.socket) -> bytes:
    connection.settimeout(READ_S)
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def _refused(error: Exception, data: bytes) -> bytes:
    """`!`, the reason, and the hook's name, which a hook that has not read its input doesn't know."""
    why = escape_control_lines(str(error) or type(error).__name__)
    try:
        given = json.loads(data)
        named = {name: given[name] for name in ("hook_event_name", "event") if name in given}
    except (ValueError, KeyError, TypeError, RecursionError):
        named = {}
    return f"!{why}\0{json.dumps(named)}".encode("utf-8", "backslashreplace")


def _has_gone(connection: socket.socket) -> bool:
    """Whether the hook no longer waits for an answer."""
    if connection.family == socket.AF_UNIX:
        poll = select.poll()
        poll.register(connection, 0)
        return bool(poll.poll(0))
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _peer(connection: socket.socket) -> int | None:
    """The pid of the hook, 0 where it is not known; None for another user's."""
    if hasattr(socket, "SO_PEERCRED"):
        return peer_of(connection)
    if sys.platform == "darwin":  # the folder keeps others out
        return int(struct.unpack("i", connection.getsockopt(*_LOCAL_PEERPID, 4))[0])
    return 0


def _code() -> int:
    """Changes when another version of this package is installed: a process of the old one is then not needed."""
    try:
        return os.stat(__file__).st_mtime_ns
    except OSError:
        return 0


def main(arguments: list[str]) -> None:
    """Answer hooks until none come any more."""
    folder, *rest = arguments
    serve(Path(folder), HookDecider(HookOptions.read(folder.rpartition("-")[2], rest)))


if __name__ == "__main__":
    main(sys.argv[1:])
