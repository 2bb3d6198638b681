"""Faults that the supervisor once had, put back one at a time to prove that the simulation finds them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from proctor.adapters.agents.fallback import FallbackSession
from proctor.adapters.fleet import queue
from proctor.adapters.fleet.worker import Starts
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_events import RecordPruned
from proctor.supervisor import GateAnswer
from proctor.supervisor.api.active_runs import ActiveRuns
from proctor.supervisor.api.supervisor import Place
from proctor.supervisor.launch import launch
from proctor.supervisor.machine import provider_events
from proctor.supervisor.ports.stored_types import RunFilter
from proctor.supervisor.run import callbacks, journal
from proctor.supervisor.store import memory_store, memory_tables

from .scheduler import changed


def _starting_by_equality(self: Any) -> Iterator[list[Any]]:
    """Two starts that have missed nothing compare equal, so the wrong one is removed."""
    missed: list[Any] = []
    kept = self.__dict__.setdefault("_lists", [])
    kept.append(missed)
    self._starting = dict(enumerate(kept))
    try:
        yield missed
    finally:
        kept.remove(missed)
        self._starting = dict(enumerate(kept))


def _nothing_missed(self: Any) -> Iterator[list[Any]]:
    """A command during a start is never read."""
    yield []


async def _never_settles(self: Any, *use: Any) -> None:
    """A store that was silent, or failed, at the end of a run is not retried."""


async def _not_given_up(store: Any, info: Any, epoch: int) -> None:
    """A run whose start failed stays claimed."""


async def _unnoticed(self: Any, call: ToolCall) -> GateAnswer:
    """A fallback does not stay with its agent after that was allowed a call."""
    answer: GateAnswer = await self._launch.gate(self._counting.call(call))
    self._stopping = self._stopping or answer.stop
    return answer


OLD_FAULTS: Final[dict[str, Callable[[], Any]]] = {
    "a start is not one unit": lambda: changed((ActiveRuns, "starting", contextmanager(_starting_by_equality))),
    "a cancel of a starting run is lost": lambda: changed((ActiveRuns, "starting", contextmanager(_nothing_missed))),
    "an append is stored twice": lambda: changed((memory_store, "unit_start", lambda events: 0),
        (journal, "ANSWER_S", 5.0)),
    "an end is never written": lambda: changed((journal.Journal, "settle", _never_settles),
        (journal, "ANSWER_S", 5.0)),
    "a reservation of a dead owner is lost": lambda: changed((memory_tables.Claims, "holds", lambda self, run_id,
        epoch: self._holds(epoch))),
    "a failed start keeps its session": lambda: changed((launch, "_release_claim", _not_given_up)),
    "a settlement that failed is not made": lambda: changed((callbacks, "_SETTLE_AGAIN_S", ()),
        (journal.Journal, "_settle_budgets", _never_settles)),
    "a worker asks without end": lambda: changed((Starts, "is_put_off", lambda self, session_id: False),
        (queue, "_RUNNING", RunFilter(begins="?"))),
    "an agent says that its record was pruned": lambda: changed((provider_events, "_REPORTABLE",
        (*provider_events._REPORTABLE, RecordPruned))),
    "a fallback repeats a call that ran": lambda: changed((FallbackSession, "_gate", _unnoticed)),
    "a run that waits for others keeps its place": lambda: changed((Place, "lender", None)),
}  # fmt: skip
"""The change to the supervisor while the context manager is active."""

OF_TEAMS: Final = ("a fallback repeats a call that ran", "a run that waits for others keeps its place")
"""Faults that only the plans of `drawn_team` find."""
