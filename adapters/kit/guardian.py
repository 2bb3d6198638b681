"""A process between the supervisor and a client, so that nothing the client starts can leave its tree (Linux).

Run as a program, with Python's isolated mode: `guardian.py STATUS_FD LIMIT COMMAND...`. It becomes the parent of
every orphan below it, whatever that one's session or environment, and ends everything left when its own parent is
gone, when the command has ended, or (with a pipe for the command's status) when nobody holds the pipe any more.

The processes it starts may kill it, as they have the same user. As it never ends by a signal itself, whoever started
it then knows; and LIMIT marks all of them. That is a limit on locks, which Linux no longer uses: processes inherit it
whatever else they leave behind, and cannot raise it again without privileges.

It imports little of the standard library and nothing else, as it starts with every command.
"""

import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.25
PAUSE_S = 0.002
END_S = 10.0
NO_PIPE = -1
SIGNALLED = 128
"""The exit code of a command that a signal ended is this plus the signal's number."""
RLIMIT_LOCKS = 10


def main(status_fd: int, limit: int, command: list[str]) -> int:
    """Run the command and stay as long as its processes need a guardian.

    Returns the command's exit code as a shell would, or 0 if its status went to the pipe.
    """
    parent = os.getppid()
    _set_limit(limit)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore)
    child = _start(command, status_fd)
    _close_streams()
    status = None
    reported = False
    while True:
        status, alone = _reap(child, status)
        if status is not None and not reported and status_fd != NO_PIPE:
            reported = _report_status(status_fd, status)
        if (status is not None and status_fd == NO_PIPE) or os.getppid() != parent or _hung_up(status_fd):
            break
        if alone:
            break
        if signal.SIGTERM in _sleep(waking) and status is None and status_fd == NO_PIPE:
            _send(child, signal.SIGTERM)  # a library that started us as its client asks the client to end
    end_descendants()
    if status is None:
        return 1
    code = os.waitstatus_to_exitcode(status)
    return 0 if status_fd != NO_PIPE else code if code >= 0 else SIGNALLED - code


def end_descendants() -> None:
    """Stop processes until none is new, then kill them all; again, until this process is alone.

    Processes that are left after `END_S` seconds are given up: they hang in the system and survive a kill, or move to
    a new process and session faster than they are found.
    """
    deadline = time.monotonic() + END_S
    while not _reap()[1] and time.monotonic() < deadline:
        stopped: dict[int, int] = {}
        while fresh := {pid: group for pid, group in _stopped().items() if pid not in stopped}:
            stopped |= fresh
        _send_all(stopped, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _stopped() -> dict[int, int]:
    """Stop the processes below this one, each with its group, except zombies.

    A process that was started meanwhile may be missed. The newest come first, and a child is stopped at once, before
    it can start the next one and exit.
    """
    own = os.getpid()
    found: dict[int, tuple[int, int, bytes]] = {}
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
                state, parent, group = stat.read(512).rpartition(b")")[2].split()[:3]
        except OSError:
            continue
        found[pid] = (int(parent), int(group), state)
        if int(parent) == own:
            _send_all({pid: int(group)}, signal.SIGSTOP)
    below = [own]
    for pid in below:
        below.extend(other for other, (parent, _, _) in found.items() if parent == pid)
    stopped = {pid: found[pid][1] for pid in below[1:] if found[pid][2] != b"Z"}
    _send_all(stopped, signal.SIGSTOP)
    return stopped


def _start(command: list[str], status_fd: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if status_fd != NO_PIPE:
            os.close(status_fd)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(127)


def _close_streams() -> None:
    """Close our copies of the command's pipes, so that they end with it."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _reap(child: int = 0, status: int | None = None) -> tuple[int | None, bool]:
    """Reap ended processes; returns the command's status, once it is known, and whether nothing is left below.

    Only the system can tell the latter: a list of processes misses one whose parent started it while the list was
    read, and ended before its own turn.
    """
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, True
        if pid == 0:
            return status, False
        if pid == child:
            status = ended


def _report_status(status_fd: int, status: int) -> bool:
    try:
        return os.write(status_fd, b"%d\n" % os.waitstatus_to_exitcode(status)) > 0
    except OSError:  # nobody listens
        return True


def _hung_up(status_fd: int) -> bool:
    if status_fd == NO_PIPE:
        return False
    poll = select.poll()
    poll.register(status_fd, 0)
    return bool(poll.poll(0))


def _sleep(waking: int) -> bytes:
    """Wait a moment, or for a signal; returns the numbers of those that came."""
    return os.read(waking, 4096) if select.select([waking], [], [], POLL_S)[0] else b""


def _send_all(processes: dict[int, int], number: int) -> None:
    """Send a signal to processes and their groups; a group gets it at once, with processes that are just starting."""
    groups = set(processes.values()) - {0, os.getpgrp()}
    for target in [*(-group for group in groups), *processes]:
        _send(target, number)


def _send(target: int, number: int) -> None:
    try:
        os.kill(target, number)
    except OSError:
        return


def _set_limit(limit: int) -> None:
    """Mark this process and all it starts; below another guardian, keep that one's mark."""
    try:
        resource.setrlimit(RLIMIT_LOCKS, (limit, limit))
    except (ValueError, OSError):
        return


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _ignore(number: int, frame: object) -> None:
    return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
