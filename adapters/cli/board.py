"""What is shown, read from the store."""

from __future__ import annotations

import codecs
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any

    from proctor.policies.monitor.limit_checker import LimitUse
    from proctor.supervisor import Block, RunInfo, StoredApproval
    from proctor.supervisor.ports.store import Store

    from ..operations.service import Folds


SHOWN = 20
"""The most runs, and the most approvals, that are shown."""


SEARCHED = 1000
"""The most of each that a filter looks through."""


class Board(msgspec.Struct, frozen=True):
    """The runs that go on, newest first, with their limits; what waits, oldest first; what blocks starts."""

    runs: list[tuple[RunInfo, tuple[LimitUse, ...]]]
    more: bool
    approvals: list[StoredApproval]
    blocks: list[Block]


NOTHING = Board([], False, [], [])


async def read_board(store: Store, folds: Folds, wanted: str = "") -> Board:
    """The board now; with `wanted` only what has that text in it."""
    from proctor.supervisor import RunFilter
    from proctor.supervisor.ports.stored_types import NOT_OVER

    limit = SEARCHED if wanted else SHOWN
    found = await store.runs(limit=limit + 1, where=RunFilter(status=frozenset(NOT_OVER)))
    matching = [run for run in found if _has(wanted, _words_of_run(run))]
    runs = [(run, await _limits(folds, run)) for run in matching[:SHOWN]]
    waiting = await store.approvals(limit=limit)
    approvals = [one for one in waiting if _has(wanted, _words_of_approval(one))]
    return Board(runs, len(matching) > SHOWN, approvals[:SHOWN], await store.blocks())


async def _limits(folds: Folds, run: RunInfo) -> tuple[LimitUse, ...]:
    from proctor.supervisor import ProctorError

    try:
        return (await folds.of(run)).limits()
    except ProctorError:  # it has not started, or another version wrote its policies
        return ()


def _has(wanted: str, words: Iterator[Any]) -> bool:
    return not wanted or any(wanted.lower() in str(word).lower() for word in words if word)


def _words_of_run(run: RunInfo) -> Iterator[Any]:
    yield from (run.run_id, run.session_id, run.status, run.provider, run.tenant, run.spec.get("prompt"))
    yield from (f"{name}={value}" for name, value in run.labels.items())


def _words_of_approval(approval: StoredApproval) -> Iterator[Any]:
    request = approval.request
    yield from (request.approval_id, request.call.name, request.policy_name)
    yield msgspec.json.encode(request.call.input, enc_hook=str).decode()


_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)


_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
"""What a terminal sends for a key that is not a letter, and the name of that key here."""


@contextmanager
def key_by_key(fd: int) -> Iterator[None]:
    """The terminal gives each key at once and does not show it; Ctrl-C stays what it is."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def pressed(fd: int) -> AsyncIterator[str]:
    """The keys of a terminal until it is gone: a letter as itself, others by name."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        await anyio.wait_readable(fd)
        try:
            data = os.read(fd, 4096)
        except OSError:  # the terminal was taken away
            return
        if not data:
            return
        for key in keys_in(decode(data)):
            yield key


def keys_in(text: str) -> Iterator[str]:
    """The keys in what a terminal sent; what is neither text nor known is left out."""
    for found in _KEY.findall(text):
        name = _NAMES.get(found, found if found.isprintable() else "")
        if name:
            yield name
