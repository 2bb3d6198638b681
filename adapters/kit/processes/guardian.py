"""A process between the supervisor and a client, so that nothing the client starts can leave its tree (Linux).

Run as a program, with Python's isolated mode: `guardian.py STATUS_FD COMMAND...`. It makes itself the parent of
every orphan below it, whatever session or environment that has, and ends all that is left when its own parent is
gone, when the command has ended, or (with a pipe for the command's status) when nobody holds the pipe any more.

It imports the standard library only, and little of it: it starts with every command.
"""

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.25
NO_PIPE = -1


def main(status_fd: int, command: list[str]) -> int:
    """Run the command and outlive it as long as it is needed; returns or repeats how it ended."""
    parent = os.getppid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore)
    child = _start(command, status_fd)
    _let_go_of_streams()
    status = None
    told = False
    while True:
        status = _reap(child) if status is None else _reap(-1, status)
        if status is not None and not told and status_fd != NO_PIPE:
            told = _tell(status_fd, status)
        if (status is not None and status_fd == NO_PIPE) or os.getppid() != parent or _hung_up(status_fd):
            break
        if status is not None and not descendants():
            break
        if signal.SIGTERM in _sleep(waking) and status is None and status_fd == NO_PIPE:
            _send(child, signal.SIGTERM)  # a library that started us as its client asks the client to end
    end_descendants()
    return _repeat(status) if status is not None else 1


def descendants() -> list[int]:
    """The processes below this one that are no zombies."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    state, parent = stat.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            parents[int(name)] = (int(parent), state)
    found = [os.getpid()]
    for pid in found:
        found.extend(other for other, (parent, _) in parents.items() if parent == pid)
    return [pid for pid in found[1:] if parents[pid][1] != b"Z"]


def end_descendants() -> None:
    """Stop all of them, until a look finds nothing new, and kill them then."""
    stopped: set[int] = set()
    while fresh := set(descendants()) - stopped:
        stopped |= fresh
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
    for pid in stopped:
        _send(pid, signal.SIGKILL)
    _reap(-1, 0)


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


def _let_go_of_streams() -> None:
    """The command's pipes are the command's: they end with it."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _reap(child: int, status: int | None = None) -> int | None:
    """Take in what has ended; the status of the command, once it is known."""
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = ended


def _tell(status_fd: int, status: int) -> bool:
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


def _repeat(status: int) -> int:
    """End as the command has ended."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
    return 128 - code


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _ignore(number: int, frame: object) -> None:
    return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
