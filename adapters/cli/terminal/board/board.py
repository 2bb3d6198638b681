"""What is shown, read from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from proctor.adapters.web.folds import Folds
    from proctor.policies.monitor.usage.limits import LimitUse
    from proctor.supervisor import Block, RunInfo, StoredApproval
    from proctor.supervisor.ports.adapters import Store

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
    from proctor.supervisor.ports.facts import NOT_OVER

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
