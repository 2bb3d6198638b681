"""One hook as the client starts it: `python -I -S daemon_client.py FOLDER [--agent NAME] OPTIONS... < input`.

It passes its input to the hook daemon (`daemon`), through a socket in FOLDER, and prints the daemon's answer. If its
input is a socket, it passes that on unread: then the kernel tells the daemon which process made it, the client. It
starts the daemon if there is none. The client runs this file by its path, in Python's isolated mode without
site-packages: it imports little, nothing of the working folder, and nothing of this package.

Whatever goes wrong, the call is denied: by the answer, or by an exit code, which `OR_REFUSED` makes a 2. An alarm
ends the wait for the daemon long before the client's own timeout, after which the call would run.
"""

# The parts in C: to import `signal` and `socket`, with all that these import, takes as long as the rest of a hook.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import os
import stat
import struct
import sys
import time

ALARM_S = 25
"""Seconds a hook waits for the daemon, which says by itself when it decides on nothing in time (`daemon.DECIDE_S`);
far below the clients' own timeouts.
"""
LAST_S = 5
"""Seconds it has to refuse after that."""
START_S = 20.0
"""Seconds the daemon has to come up."""
ATTEMPTS = 5
DAEMON = "proctor.adapters.hooks.daemon"
SOCKET = "socket"
HELD = b"~"
"""Before the answer, with a line's end: a call waits for a person, for so many seconds."""
END = b"\0"
"""After the answer: without it, it is not the whole."""
REFUSED = "This could not be checked against the policy, so it is denied."
OR_REFUSED = " || /bin/sh -c 'cat >/dev/null; echo The hook failed, so the call is denied. >&2; exit 2'"
"""Behind a hook's line, in any shell. Codex and Gemini CLI run a call whose hook exits with 2 and says nothing, and
Codex one whose hook does not read all of its input.
"""
SPOILED = "LD_SHOW_AUXV"
"""With it, the loader has written to standard output already, where a client then finds no answer."""
HOME = "HOME"
"""The part of the environment that the daemon sees; a repository's settings can change the rest."""
EACH = "~"
"""In place of a home, that of whoever's hook it is: what begins with it is below that home."""


class UnansweredError(Exception):
    """The hook got no decision."""


class GoneError(UnansweredError):
    """The daemon went away."""


def main(arguments: list[str]) -> int:
    """Answer the hook on standard input; returns the exit code."""
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, too_late)
        signal.alarm(ALARM_S)
    data, agent = b"", "claude"
    if SPOILED in os.environ:
        print(REFUSED, file=sys.stderr)
        return 2
    if arguments[1:2] == ["--agent"]:
        agent = arguments[2]
        arguments = [arguments[0], *arguments[3:]]
    try:
        if os.isatty(0):
            raise UnansweredError("the hook's input is a terminal, which no client gives it")
        arguments = of_user(arguments)
        passed = is_socket(0)
        data = b"" if passed else sys.stdin.buffer.read()
        answer = daemon_answer(arguments[0], arguments[1:], None if passed else data, agent)
    except Exception as error:
        return refuse(data or unread(), str(error) or type(error).__name__, agent)
    if answer[:1] == b"!":
        why, _, named = answer[1:].partition(b"\0")
        return refuse(data or named, why.decode(), agent)
    sys.stdout.buffer.write(answer[1:])
    sys.stdout.buffer.flush()
    return 0


def of_user(arguments: list[str]) -> list[str]:
    """The arguments for this user, if they are for every user: the home is the system's, not the environment's.

    Raises UnansweredError for a user without one.
    """
    if EACH not in arguments:
        return arguments
    import pwd

    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise UnansweredError(f"the system names no home of user {os.geteuid()}") from None
    arguments = [home + each[1:] if each[:2] in (EACH, "~/") else each for each in arguments]
    os.makedirs(os.path.dirname(arguments[0]), 0o700, exist_ok=True)
    return arguments


def too_late(number: int, frame: object) -> None:
    """Raises UnansweredError wherever this process waits; a second time where it waits for the rest of its input."""
    signal.alarm(LAST_S)
    raise UnansweredError("the hook daemon does not answer in time")


def is_socket(descriptor: int) -> bool:
    """Whether the input is a socket, of which the kernel tells who made it."""
    return hasattr(socket, "SO_PEERCRED") and stat.S_ISSOCK(os.fstat(descriptor).st_mode)


def unread() -> bytes:
    """The rest of the input, once no other process reads it."""
    try:
        return sys.stdin.buffer.read() or b""
    except Exception:
        return b""


def daemon_answer(folder: str, arguments: list[str], data: bytes | None, agent: str = "claude") -> bytes:
    """The daemon's answer: `=` and the output for the client, or `!` and the reason nothing was decided.

    Without data, it gets the standard input itself.

    If the daemon ends without an answer (it was idle for long, or is of another version), it is started again.
    """
    check_home(arguments)
    check_private(folder)
    os.chdir(folder)  # a socket's path may have no more than a hundred letters
    for attempt in range(ATTEMPTS):
        try:
            return exchanged(connected([folder, *arguments]), data, agent)
        except GoneError:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.02)
    raise AssertionError


def check_home(arguments: list[str]) -> None:
    """Raises UnansweredError where `~` stands for another home than a rule about `~/.ssh` means."""
    meant = arguments[arguments.index("--home") + 1] if "--home" in arguments else os.environ.get(HOME)
    if os.environ.get(HOME) != meant:
        raise UnansweredError(f"HOME is not `{meant}` here, which these hooks are for; install them for this home")


def check_private(folder: str) -> None:
    """Raises UnansweredError for a folder into which another user could put a socket."""
    if not os.path.lexists(folder):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise UnansweredError(f"`{folder}` is not a folder of this user's own")


def connected(arguments: list[str]) -> socket.socket:
    """A connection to the daemon, which is started if necessary."""
    started = None
    deadline = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(SOCKET)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
        else:
            check_peer(connection)
            return connection
        if started is None or (started.poll() is not None and started.returncode == 0):
            started = start(arguments)  # one that ended well found another there, which may have ended since
        elif started.poll() is not None or time.monotonic() > deadline:
            raise UnansweredError("the hook daemon does not start; install the hook again")
        time.sleep(0.005)


def check_peer(connection: socket.socket) -> None:
    """Raises UnansweredError if another user listens, as far as the system tells."""
    if hasattr(socket, "SO_PEERCRED") and peer_of(connection) is None:
        raise UnansweredError("another user's process listens where the hook daemon should")


def peer_of(connection: socket.socket) -> int | None:
    """The pid of the process at the other end, as the kernel knows it; None for another user's."""
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid) if user == os.geteuid() else None


def start(arguments: list[str]):  # type: ignore[no-untyped-def]  # its type would have to be imported
    """Start the daemon, in a session of its own, without this one's environment."""
    import subprocess

    environment = {HOME: os.environ[HOME]} if HOME in os.environ else {}
    command = [sys.executable, "-I", "-m", DAEMON, *arguments]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, start_new_session=True)


def exchanged(connection: socket.socket, data: bytes | None, agent: str = "claude") -> bytes:
    """Send the client and its input, or the input's socket; read the answer."""
    whose = agent.encode() + b"\n"
    answer = b""
    try:
        if data is None:
            input = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))
            connection.sendmsg([b"<" + whose], [input])
        else:
            connection.sendall(b">" + whose + data)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            answer += part
            if answer[:1] == HELD and b"\n" in answer:
                seconds, _, answer = answer[1:].partition(b"\n")
                wait_on(int(seconds))
    except OSError as error:
        raise GoneError(f"the hook daemon went away: {error}") from error
    finally:
        connection.close()
    if answer[:1] not in (b"=", b"!") or answer[-1:] != END:
        raise GoneError("the hook daemon went away")
    return answer[:-1]


def wait_on(seconds: int) -> None:
    """A person must answer: wait as many seconds as the daemon says."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


JUST_TOLD = ("Post", "Stop", "SessionEnd", "Permission", "After", "post", "stop", "sessionEnd", "before", "session.")
"""How the names of events begin at which nothing can be refused, or the person is asked all the same."""


def refuse(data: bytes, why: str, agent: str = "claude") -> int:
    """Deny a call without a decision: the model reads public words, the person the reason.

    Other clients than the known ones get the exit code, unless it would mean something else.
    """
    import json

    output = refusal(data, why, agent)
    if output is None:
        print(REFUSED, file=sys.stderr)
        return 2
    if output:
        print(json.dumps(output), flush=True)
    return 0


def refusal(data: bytes, why: str, agent: str) -> dict[str, object] | None:
    """What the client gets for a hook without a decision; None if only a failure of the hook denies the call."""
    import json

    try:
        given = json.loads(data)
        hook = given["event" if agent == "opencode" else "hook_event_name"]
    except Exception:
        hook = None
    decision = {"permissionDecision": "deny", "permissionDecisionReason": REFUSED}
    if not isinstance(hook, str):  # whatever the client sent, it is no hook
        return None
    if hook in ("UserPromptSubmit", "ConfigChange"):
        return {"decision": "block", "reason": f"proctor: {why}"}
    if agent not in ("claude", "codex"):
        if hook.startswith(JUST_TOLD) and hook != "beforeSubmitPrompt":
            return {}
        if agent != "copilot":
            return None
        return {**decision} if hook == "PreToolUse" else {}
    output: dict[str, object] = {"systemMessage": f"proctor: {why}"}
    if hook == "PreToolUse":
        output["hookSpecificOutput"] = {"hookEventName": hook, **decision}
    return output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
