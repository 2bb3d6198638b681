"""Decides who may answer calls, end runs and lift blocks: anybody with a token of the store, or a terminal of their
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.stored_types import NOT_OVER, Owner, RunFilter

from ..kit.values import login_name
from .options import beside, is_there, opened, run_async

if TYPE_CHECKING:
    import psutil

    from ..operations.identities import Role


TOKEN = "PROCTOR_TOKEN"
_MOST = 1000
"""How many of the newest current runs are searched for clients that own them."""


def check_outside_runs(what: str) -> None:
    """Raises UsageError when this process, or one it descends from, belongs to a supervised run."""
    from proctor.supervisor.ports.processes import run_of

    from ..kit.process_tree import RUN_MARK, has_limit

    for environment in _environments():
        if mark := environment.get(RUN_MARK):
            raise UsageError(
                f"`{what}` is for people: it does not work within a supervised run (this is `{run_of(mark)}`)"
            )
    if has_limit(os.getpid()):
        raise UsageError(
            f"`{what}` is for people: it does not work within a supervised run (this process has a limit on locks, "
            "as the guardian of a run sets it; `ulimit -x` shows it)"
        )


def _environments() -> Iterator[Mapping[str, str]]:
    import psutil

    yield os.environ
    with suppress(psutil.Error):
        for parent in psutil.Process().parents():
            with suppress(psutil.Error):  # another user's, and so not ours
                yield parent.environ()


def check_person(what: str, store: str | None, role: Role) -> str | None:
    """Check that a person outside of every run calls the command `what`; returns the name on their token, if any.

    The proof is a token beside the store that allows the role, or a terminal that no agent can have opened. Raises
    UsageError: there is no proof, or the token does not allow it; StoreError: the store's runs cannot be read.
    """
    check_outside_runs(what)
    file = f"{beside(store)}-tokens"
    if token := os.environ.get(TOKEN):
        return _holder(token, what, file, role)
    if why := _no_terminal(store):
        raise UsageError(
            f"`{what}` is for people: {why}; run it in a terminal, or set {TOKEN} to a token of `{file}`"
        )
    return None


def acting(by: str | None, holder: str | None, reason: str | None) -> tuple[str, str | None]:
    """Who acts, as recorded, and the reason, which names the holder of the token that somebody else acts with."""
    if not by or not holder or by == holder:
        return by or holder or login_name(), reason
    return by, f"{reason + ', ' if reason else ''}with the token of `{holder}`"


def refusal(what: str, store: str | None) -> tuple[str | None, str]:
    """As `check_person`, for a command that may just show things: the name on the token, and why the caller may not
    both answer and end runs; empty if they may.
    """
    try:
        check_person(what, store, "answer")
        return check_person(what, store, "stop"), ""
    except UsageError as error:
        return None, str(error)


def _holder(token: str, what: str, file: str, role: Role) -> str:
    from ..operations.identities import read_tokens

    holder = read_tokens(file).holder(token)
    if holder is None:
        raise UsageError(f"{TOKEN} holds none of the tokens in `{file}`")
    if not holder.may(role):
        raise UsageError(f"the token of `{holder.name}` does not allow `{what}`: its roles lack `{role}`")
    return holder.name


def _no_terminal(store: str | None) -> str | None:
    """Why this process has no terminal that proves a person; None if it has one."""
    import psutil

    if not _is_in_foreground():
        return "this process has no terminal, or is not in its foreground"
    try:
        chain = [psutil.Process(), *psutil.Process().parents()]
    except psutil.Error:
        return "whoever started this process is gone"
    for process in chain:
        if _is_adopted(process):
            return f"its terminal belongs to a daemon, as an agent could start one ({_named(process)})"
    if owner := _owner_of(store, chain):
        return f"its terminal is below what supervises a run ({_named(owner)})"
    return None


def _is_in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _named(process: psutil.Process) -> str:
    from ..kit.display_text import escape_control

    return f"`{escape_control(process.name())}`, process {process.pid}"


def _is_adopted(process: psutil.Process) -> bool:
    """Whether it may have left whoever started it: below a process that takes in orphans, and neither in its session
    with us, as the commands of a container's shell are, nor a service of the system.
    """
    import psutil

    from ..kit.process_tree import adopts, session_of

    try:
        above = process.ppid()
        if above == 0 or (above != 1 and not adopts(psutil.Process(above))):
            return False
        if session_of(above) == session_of(process.pid) == os.getsid(0):
            return False
        of_system = process.uids().real == 0 != os.getuid()
        return not (of_system or _is_service(process))
    except psutil.NoSuchProcess:  # what is above is hidden: another user's
        return False
    except psutil.Error:
        return True


def _is_service(process: psutil.Process) -> bool:
    """Whether systemd started it: it is the first process of a unit. An orphan stays in the unit of its starter."""
    import psutil

    try:
        unit = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
        if not unit.endswith((".service", "/init.scope")):
            return False
        members = Path(f"/sys/fs/cgroup{unit}/cgroup.procs").read_text(encoding="ascii").split()
    except (OSError, UnicodeError):
        return False
    first = process.create_time()
    for pid in map(int, members):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).create_time() < first:
                return False
    return bool(members)


def _owner_of(store: str | None, chain: list[psutil.Process]) -> psutil.Process | None:
    """The first of these processes, or of our job, that owns a run of any store, or as a client one of this store."""
    from proctor.supervisor.ports.processes import is_owner, machine, started_at

    for process in (*chain, *_job()):
        if is_owner(process.pid):
            return process
    owners = run_async(lambda: _owners(store)) if is_there(store) else []
    pids = {owner.pid: owner for owner in owners if owner.machine == machine()}
    for process in chain:
        with suppress(OSError):
            if (owner := pids.get(process.pid)) and started_at(process.pid) == owner.started:
                return process
    return None


def _job() -> Iterator[psutil.Process]:
    """The processes of our group, and of our session if it is that of process 1: their orphans are still in it."""
    import psutil

    from ..kit.process_tree import session_of

    session = os.getsid(0)
    shared = session_of(1) == session
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getpgid(process.pid) == os.getpgrp() or (shared and os.getsid(process.pid) == session):
                yield process


async def _owners(store: str | None) -> list[Owner]:
    async with opened(store, must_exist=True) as opened_store:
        going_on = await opened_store.runs(where=RunFilter(status=NOT_OVER), limit=_MOST)
    return [run.owner for run in going_on if run.owner is not None]
