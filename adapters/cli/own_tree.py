"""Who asks: a person or a platform outside, or something that a supervised run has started.

Whatever a run starts has the run's mark in its environment, the run's processes above it, and on Linux a limit that
its guardian has set. It can clear the first and leave the second; the third it cannot raise again without privileges.
Who answers, ends or lifts must also show where it comes from: see `check_person`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.adapters.web.identities import Role

TOKEN = "PROCTOR_TOKEN"


def check_outside_runs(what: str) -> None:
    """Raises UsageError when this process, or one it descends from, belongs to a supervised run."""
    from proctor.adapters.kit.processes.guarded import has_limit
    from proctor.adapters.kit.processes.process_tree import RUN_MARK
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.ports.processes import run_of

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
    try:
        parents = psutil.Process().parents()
    except psutil.Error:
        return
    for parent in parents:
        try:
            yield parent.environ()
        except psutil.Error:  # another user's, and so not ours
            continue


def check_person(what: str, store: str | None, role: Role) -> str | None:
    """See that whoever asks is outside of every run, and shows it; gives the name that its token has, if it has one.

    It shows it by a token, by a terminal, or by being started by a program that is still there. A daemon, which has
    left whoever started it, shows nothing: a service needs a token.

    Args:
        what: the command.
        store: the store it is about, as the command line has it; its tokens are beside it.
        role: what the token has to allow.

    Raises:
        UsageError: it does not show it, or the token does not allow it.
    """
    from proctor.supervisor.errors import UsageError

    check_outside_runs(what)
    if token := os.environ.pop(TOKEN, None):
        return _holder(token, what, store, role)
    if not (_has_terminal() or _was_started_by_somebody()):
        raise UsageError(
            f"`{what}` is for people, and this process is a daemon without a terminal: set {TOKEN} to one of the "
            f"tokens in `{_tokens(store)}`"
        )
    return None


def _holder(token: str, what: str, store: str | None, role: Role) -> str:
    from proctor.adapters.web.identities import read_tokens
    from proctor.supervisor.errors import UsageError

    file = _tokens(store)
    holder = read_tokens(file).holder(token)
    if holder is None:
        raise UsageError(f"{TOKEN} holds none of the tokens in `{file}`")
    if not holder.may(role):
        raise UsageError(f"the token of `{holder.name}` does not allow `{what}`: its roles lack `{role}`")
    return holder.name


def _tokens(store: str | None) -> str:
    from .store_place import beside

    return f"{beside(store)}-tokens"


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _was_started_by_somebody() -> bool:
    """Whether this process and those above it, up to the leader of its session, still have who started them."""
    import psutil

    from proctor.adapters.kit.processes.signals import adopts, session_of

    session = session_of(os.getpid())
    try:
        for process in (psutil.Process(), *psutil.Process().parents()):
            parent = process.parent()
            if parent is not None and adopts(parent) and session_of(parent.pid) != session:
                return False
            if process.pid == session:
                break
    except psutil.Error:
        return False
    return True
