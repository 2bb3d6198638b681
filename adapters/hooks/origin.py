"""Where a hook comes from: the client that started it, found from the hook's own process and its standard input.

The client starts a hook through a shell that runs the hook's line and nothing else, which stays above it or has made
room for it. A tool of the client can become such a shell, too. But Claude Code gives a hook a socket of its own for
its input, and the kernel says which process made a socket: no other process can make one that counts as the client's.
"""

import contextlib
import os
import shlex
import socket
import stat
from collections.abc import Iterable

import msgspec
import psutil

from proctor.policies.errors import EventError
from proctor.supervisor.ports.processes import as_owner, is_gone, machine
from proctor.supervisor.ports.stored_types import CLIENT, Owner

from ..kit.process_tree import SHELLS, adopts
from .daemon_client import OR_REFUSED, peer_of
from .record import HookRecord

_NOTE = "client"
_UNKNOWN = "which process started this hook is not known, so it is denied"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The client that a hook comes from.

    Attributes:
        client: Its process.
        by_socket: It gave the hook a socket that it has made.
    """

    client: Owner
    by_socket: bool = False


class _SeenClient(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a session, as it is kept beside the session's record.

    `above` are the processes it descends from, each with its start; `over`: it has ended the session.
    """

    machine: str
    pid: int
    started: str
    by_socket: bool
    above: tuple[tuple[int, str], ...] = ()
    over: bool = False

    @property
    def process(self) -> tuple[int, str]:
        return self.pid, self.started

    @property
    def is_here(self) -> bool:
        """Whether it has the session and may still report; not one in another container, or before a restart."""
        owner = Owner(owner_id=CLIENT, host="", machine=self.machine, pid=self.pid, started=self.started)
        return not self.over and self.machine == machine() and not is_gone(owner)


_decode = msgspec.json.Decoder(_SeenClient).decode


def origin_of(hook: int, given: socket.socket | None) -> Origin:
    """Where the hook of this pid comes from; `given` is its standard input where that is a socket.

    Raises EventError where that is not known, or where something stands between the client and its hook.
    """
    try:
        process = psutil.Process(hook or -1)
        line = shlex.join(process.cmdline())
        client = process.parent()
        while client is not None and _runs_only(client, line):
            client = client.parent()
        if client is None or adopts(client):
            raise EventError(_UNKNOWN)
        owner = as_owner(client.pid, CLIENT)
    except (psutil.Error, OSError, ValueError):
        raise EventError(_UNKNOWN) from None
    if not owner.started:
        raise EventError(_UNKNOWN)
    if given is not None and maker_of(given) != owner.pid:
        raise EventError("the hook's input does not come from the process that started it, so it is denied")
    return Origin(client=owner, by_socket=given is not None)


def origin_of_connection(connection: socket.socket, likely: Iterable[int]) -> Origin:
    """Where a hook comes from that was sent over a loopback connection: the process that holds the other end.

    `likely` are processes to look at first. Raises EventError where it is not known.
    """
    ends = connection.getpeername(), connection.getsockname()
    for pid in likely:
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(pid).net_connections("tcp4")
            if any((one.laddr, one.raddr) == ends for one in found):
                return _sender(pid)
    try:
        holders = {one.pid for one in psutil.net_connections("tcp4") if (one.laddr, one.raddr) == ends}
    except (psutil.Error, OSError):
        holders = set()
    holders.discard(None)
    if len(holders) != 1:
        raise EventError("which process sent this hook is not known, so it is denied")
    return _sender(holders.pop() or 0)


def _sender(pid: int) -> Origin:
    """A process that sends hooks itself. It is as sure as a socket that it has made."""
    try:
        owner = as_owner(pid, CLIENT)
        mine = psutil.Process(pid).uids().effective == os.geteuid()
    except (psutil.Error, OSError, ValueError):
        raise EventError(_UNKNOWN) from None
    if not owner.started or not mine:
        raise EventError(_UNKNOWN)
    return Origin(client=owner, by_socket=hasattr(socket, "SO_PEERCRED"))


def maker_of(given: socket.socket) -> int:
    """The pid of the process that made both ends of a socket, 0 where that is not known.

    A socket with a name was connected: one end is made by whoever listens, the other by whoever asks.
    """
    if given.getsockname() or given.getpeername():
        return 0
    return peer_of(given) or 0


def is_socket(descriptor: int) -> bool:
    """Whether it is one between processes of this machine."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found:
        return found.family == socket.AF_UNIX


def check_origin(origin: Origin, record: HookRecord, *, over: bool) -> None:
    """See that the session's events come from its one client, and keep who that is; if its session is `over` with
    this event, another may go on with it. Raises EventError if something else reports in the client's name.
    """
    here, process, kept = machine(), (origin.client.pid, origin.client.started), record.note(_NOTE)
    before = None if kept is None else _decode(kept)
    # Every session has a note, for years: those from before a restart of the machine are not decoded.
    here_or_alike = [_decode(data) for _, data in record.notes_of_all(_NOTE, having=msgspec.json.encode(here))]
    seen_here = [one for one in here_or_alike if one.machine == here]
    if any(one.process == process and one.by_socket != origin.by_socket for one in seen_here):
        raise EventError(f"the hook was not started by the agent, process {origin.client.pid}, so it is denied")
    if before is not None and before.machine == here and before.process == process:
        above = before.above
    elif before is None:
        above = _above(origin.client.pid)
    else:
        _check_has_left(before, process)
        above = _above(origin.client.pid)
        if other := next((one for one in seen_here if one.process in above), None):
            raise EventError(
                f"the hook comes from below another agent, process {other.pid}, which can't continue this session"
            )
    now = _SeenClient(
        machine=here, pid=process[0], started=process[1], by_socket=origin.by_socket, above=above, over=over
    )
    if now != before:
        record.keep(_NOTE, msgspec.json.encode(now))


def _check_has_left(client: _SeenClient, process: tuple[int, str]) -> None:
    """Raises EventError for a client whose session this other process may not continue."""
    if client.is_here:
        raise EventError(
            f"this session belongs to process {client.pid}, still running; end it there, or start a new session"
        )
    if client.machine == machine() and process in client.above:
        raise EventError(
            f"a process below the agent has reported in its name (process {client.pid}); start a new session"
        )


def _above(pid: int) -> tuple[tuple[int, str], ...]:
    """The processes that one descends from, each with its start."""
    try:
        found = [as_owner(parent.pid, CLIENT) for parent in psutil.Process(pid).parents()]
    except (psutil.Error, OSError):
        raise EventError(_UNKNOWN) from None
    return tuple((owner.pid, owner.started) for owner in found)


def _runs_only(process: psutil.Process, line: str) -> bool:
    """Whether it is a shell that runs the hook's line, and nothing else, as the client starts it."""
    words = process.cmdline()
    starts = words[1:-1] in (["-c"], ["-lc"], ["--norc", "--noprofile", "-c"])
    return starts and os.path.basename(words[0]) in SHELLS and words[-1] in (line, line + OR_REFUSED)
