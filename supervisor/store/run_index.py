"""The figures that lists show of a run, counted from its events as they are stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from proctor.policies.events import (
    TERMINAL,
    PolicyViolated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    TokenUsageUpdated,
    ToolCallStarted,
    at_ms,
)
from proctor.policies.events.run_context import FIGURES, Usage

from ..ports.stored_types import ANY_RUN, label_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from typing import Any

    from proctor.policies.events import Event

    from ..ports.store import RunRegistry
    from ..ports.stored_types import RunFilter, RunInfo


COUNTED = frozenset(
    (RunStarted, ToolCallStarted, PolicyViolated, TokenUsageUpdated, RunCompleted, RunFailed, RunCancelled)
)
"""Every other event leaves a run's line in a list as it is."""


class RunTally:
    """The changes that consecutive events of one run make in its line.

    A total x becomes `settled`, where the run's end states it, else max(x + added, floor): a delta adds to both, a
    cumulative figure raises the floor. What is reported after the end changes no total. `in_flight` are
    the calls that are then, where that is another text than before.
    """

    __slots__ = ("added", "calls", "ended", "floor", "in_flight", "settled", "started", "violations")

    def __init__(self) -> None:
        self.calls = 0
        self.violations = 0
        self.started: RunStarted | None = None
        self.ended: Event | None = None
        self.in_flight: str | None = None
        self.added: list[float] = [0] * len(FIGURES)
        self.floor: list[float] = [0] * len(FIGURES)
        self.settled: list[float | None] = [None] * len(FIGURES)

    def take(self, event: Event) -> None:
        """Count one event of `COUNTED`, as it is stored."""
        if isinstance(event, ToolCallStarted):
            self.calls += 1
        elif isinstance(event, PolicyViolated):
            self.violations += 1
        elif isinstance(event, RunStarted):
            self.started = self.started or event
        elif self.ended is not None:
            return
        elif isinstance(event, TokenUsageUpdated):
            self._use(event)
        elif isinstance(event, TERMINAL):
            self.ended = event
            self.settled = [_amount(event.usage.get(name)) for name in FIGURES]

    def off(self) -> Iterator[tuple[str, float, float]]:
        """Each figure that the end states otherwise than what was reported adds up to, with both; a cost may be
        stated that was not reported, by prices.
        """
        for n, name in enumerate(FIGURES):
            stated, counted = self.settled[n], max(self.added[n], self.floor[n])
            close = 1e-9 * max(1.0, counted)
            if stated is not None and (counted - stated > close or (stated - counted > close and name != "cost_usd")):
                yield name, stated, counted

    def then(self, later: RunTally) -> RunTally:
        """The changes of these events and then of the later ones."""
        both = RunTally()
        both.calls, both.violations = self.calls + later.calls, self.violations + later.violations
        both.started, both.ended = self.started or later.started, self.ended or later.ended
        both.in_flight = self.in_flight if later.in_flight is None else later.in_flight
        both.added, both.floor, both.settled = self.added, self.floor, self.settled
        if self.ended is None:
            both.added = [a + b for a, b in zip(self.added, later.added, strict=True)]
            raised = (a + b for a, b in zip(self.floor, later.added, strict=True))
            both.floor = [max(a, b) for a, b in zip(raised, later.floor, strict=True)]
            both.settled = later.settled
        return both

    def applied(self, run: RunInfo) -> RunInfo:
        """The line of the run after these events."""
        changes: dict[str, Any] = {"calls": run.calls + self.calls, "violations": run.violations + self.violations}
        if self.started is not None and not run.started_seq:
            tenant, labels = owners(self.started.metadata)
            changes |= {"started_seq": self.started.seq, "started_at": moment(ms_of(self.started))}
            changes |= {"tenant": run.tenant or tenant, "labels": run.labels or labels}
        if not run.ended_seq and (self.ended is not None or any(self.floor)):
            usage = Usage(**{name: self._total(n, getattr(run.usage, name)) for n, name in enumerate(FIGURES)})
            if usage != run.usage:
                changes["usage"] = usage
            if self.ended is not None:
                changes |= {"ended_seq": self.ended.seq, "ended_at": moment(ms_of(self.ended))}
        return replace(run, **changes)

    def _use(self, event: TokenUsageUpdated) -> None:
        for n, name in enumerate(FIGURES):
            amount = _amount(getattr(event, name))
            if not amount:
                continue
            if event.scope == "cumulative":
                self.floor[n] = max(self.floor[n], amount)
            else:
                self.added[n] += amount
                self.floor[n] += amount

    def _total(self, n: int, before: float) -> Any:
        settled = self.settled[n]
        return settled if settled is not None else max(before + self.added[n], self.floor[n])


def owners(spec: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The tenant and the labels in the context that is kept with a run, or with its start."""
    context = spec.get("context")
    given = context if isinstance(context, dict) else {}
    tenant, labels = given.get("tenant"), given.get("labels")
    return tenant if isinstance(tenant, str) else None, labels if isinstance(labels, dict) else {}


def ms_of(event: Event) -> int | None:
    """When it happened, in milliseconds since the epoch; None where that was not said."""
    return at_ms(event.at) if event.at is not None else None


def moment(ms: int | None) -> datetime | None:
    """A stored moment."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms is not None else None


def _amount(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18 else None


def meets(run: RunInfo, where: RunFilter) -> bool:
    """Whether a run meets all that is given."""
    began = run.started_at or run.created_at
    return (
        (not where.status or run.status in where.status)
        and where.tenant in (None, run.tenant)
        and where.provider in (None, run.provider)
        and run.run_id.startswith(where.begins)
        and all(name in run.labels and label_text(run.labels[name]) == text for name, text in where.labels.items())
        and (where.since is None or (began is not None and began >= where.since))
        and (where.until is None or (began is not None and began < where.until))
    )


T = TypeVar("T")


_PAGE = 500


@asynccontextmanager
async def closing(found: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """The iterator of a store's `read` or `log`, closed when its reader leaves early: trio complains about a
    generator that is left open.
    """
    try:
        yield found
    finally:
        if isinstance(found, AsyncGenerator):
            await found.aclose()


async def all_runs(
    store: RunRegistry, *, session_id: str | None = None, where: RunFilter = ANY_RUN
) -> AsyncGenerator[RunInfo, None]:
    """The runs of `store`, or of one session (`session_id`), that meet all of `where`, newest first; those that come
    meanwhile are left out.

    Close it where you stop before the end: see `contextlib.aclosing`.
    """
    before: str | None = None
    while page := await store.runs(limit=_PAGE, session_id=session_id, before=before, where=where):
        for run in page:
            yield run
        before = page[-1].run_id
