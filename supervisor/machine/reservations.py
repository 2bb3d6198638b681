"""A run's shares of budgets: reserved before use, settled at the end.

The store alone knows what is left, so a reservation is an effect and its answer an input. The monitor observes the
answer as an event, like any other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from proctor.policies.events import BudgetReserved, BudgetWarned
from proctor.policies.limits import BudgetAccount
from proctor.policies.values.foreign_code import error_text

from ..ports.budget_ledger import DIGITS, Reservation, ReservationResult
from .interface import Reserve, Settle
from .run_state import CancelCause, RunState

FIRST_PART = 100
"""Before its first turn a run reserves a budget divided by this, or what is left of it."""
SLICE_MS = 60_000
"""How much time is reserved at once."""


class BudgetLine(msgspec.Struct, eq=False, rename={"reserved": "held", "granted": "open"}):
    """What a run has used of one budget, and what the store knows of it.

    `seen`: used so far. `requested`: the use last reported to the store. `recorded`: the use it has confirmed.
    `reserved`: what it has reserved for the run. `granted`: whether it granted anything; None before its first
    answer. Snapshots call these two `held` and `open`.
    """

    claim: BudgetAccount
    requested: float = 0.0
    recorded: float = 0.0
    reserved: float = 0.0
    seen: float = 0.0
    largest: float = 0.0
    granted: bool | None = None

    def record_use(self, used: float) -> None:
        if used > self.seen:
            self.largest = max(self.largest, used - self.seen)
            self.seen = used

    @property
    def must_reserve(self) -> bool:
        """Whether to ask the store: it knows of less use, or a call with a reservation did not run."""
        beyond, kind = self.seen - self.recorded, self.claim.kind
        if kind.at_once:
            return False
        if kind.of_usage:
            return beyond > 0
        if self.claim.counts == "duration_ms":
            return beyond >= (self.reserved or SLICE_MS)
        return beyond != self.reserved

    def reservation(self, calls: int) -> Reservation:
        """The reservation to ask the store for, with that many calls waiting."""
        claim = self.claim
        self.requested = self.seen
        if claim.counts == "tool_calls":
            want, least = float(calls), float(min(calls, 1))
        elif claim.kind.at_once:
            want = least = 1.0
        else:
            first = SLICE_MS if claim.counts == "duration_ms" else self.largest or claim.max / FIRST_PART
            used_at_once = self.largest if claim.kind.of_usage else 0.0
            want, least = max(claim.reserve or first, used_at_once), claim.reserve or 0.0
        return Reservation(claim=claim, used=self.seen, want=want, least=least)


@dataclass(slots=True, eq=False)
class Budgets:
    """The shared budgets of one run.

    # INVARIANT: at most one reservation is under way, and no call is allowed while one is.
    """

    _state: RunState
    _lines: list[BudgetLine]
    on_reserved: Callable[[int], None] = field(init=False)  # decides the call of a key
    _awaiting: bool = field(default=False, init=False)
    _starting: bool = field(default=True, init=False)
    _settled: bool = field(default=False, init=False)
    _since_ms: int | None = field(default=None, init=False)
    _reserving: list[int] = field(default_factory=list, init=False)  # the calls the reservation under way is for
    _waiting: list[int] = field(default_factory=list, init=False)  # those that came since

    def apply(self, event: BudgetReserved) -> None:
        """Update the state by an event of the run's log."""
        self._starting = False
        for line in self._lines:
            if (line.claim.budget, line.claim.key) == (event.budget, event.key):
                line.granted = event.granted

    def record_use(self) -> None:
        """Note what the monitor has counted so far."""
        usage, calls = self._state.monitor.usage, self._state.monitor.calls_started
        for line in self._lines:
            counts = line.claim.counts
            if line.claim.kind.of_usage:
                line.record_use(getattr(usage, counts))
            elif counts == "tool_calls":
                line.record_use(calls)
            elif counts == "duration_ms" and self._since_ms is not None:
                line.record_use(self._state.now_ms - self._since_ms)

    def begun(self, at_ms: int) -> None:
        self._since_ms = at_ms

    def begin(self) -> None:
        """The run is about to start: make the first reservation."""
        self.begun(self._state.now_ms)
        self._reserve()

    def check(self) -> None:
        """Reserve more where more is used than reserved."""
        if self._awaiting or self._starting or self._is_over:
            return
        self.record_use()
        if any(line.must_reserve for line in self._lines):
            self._reserve()

    def wait_for_reservation(self, key: int) -> bool:
        """Whether a call waits for the store's answer, upon which `on_reserved` is called."""
        if self._is_over:
            return False
        if not (self._awaiting or self._must_reserve()):
            return False
        self._waiting.append(key)
        if not self._awaiting:
            self._reserve()
        return True

    def withdraw(self, key: int) -> None:
        """Reserve for a call no more: what the store has for it is another's."""
        self._reserving, self._waiting = (
            [each for each in keys if each != key] for keys in (self._reserving, self._waiting)
        )

    def reserved(self, results: Sequence[ReservationResult], error: Exception | None) -> None:
        self._awaiting = False
        if error is not None:
            reason = f"nothing can be reserved of the budgets: {error_text(error)}"
            self._state.request_cancel(CancelCause(kind="store", reason=reason, error=error))
            self._waiting, self._reserving = [], []  # they are refused as the run is
            return
        waiting, self._reserving = self._reserving, []
        answers = list(self._answers(results))
        for line, answer in answers:
            line.recorded, line.reserved = max(line.recorded, line.requested), answer.held
            self._warn(line.claim, answer)
            if answer.granted:
                self._record_answer(line, answer, granted=True)
            elif self._has_effect_now(line, answer, bool(waiting)):
                self._record_answer(line, answer, granted=False, calls_wait=bool(waiting))
        self._starting = False
        self._release_waiting(waiting, answers)
        if self._awaiting:
            return  # a call that an earlier approval covers has asked again, for all that wait
        if self._waiting and not self._is_over and self._must_reserve():
            self._reserve()  # for all that wait at once
            return
        came_meanwhile, self._waiting = self._waiting, []
        for key in came_meanwhile:
            if not self.wait_for_reservation(key):
                self.on_reserved(key)
        self.check()

    def settle(self) -> None:
        """The run is over: settle, once no reservation is under way."""
        if not self._settled and not self._awaiting:
            self.record_use()
            self._settled = True
            self._state.outbox.at_once(Settle(used={line.claim.counts: line.seen for line in self._lines}))

    def settled(self, results: Sequence[ReservationResult]) -> None:
        """The store has settled, by the amount of whichever run reserved last: record what is over this run's own."""
        for line, answer in self._answers(results):
            self._warn(line.claim, answer)
            if answer.used > line.claim.max:
                self._record_answer(line, answer, granted=False)

    def deadline(self) -> int | None:
        """When the reserved time is used up, in milliseconds since the epoch."""
        if self._awaiting or self._settled or self._starting or self._since_ms is None:
            return None
        timed = [line for line in self._lines if line.claim.counts == "duration_ms" and line.reserved]
        return min((self._since_ms + int(line.recorded + line.reserved) for line in timed), default=None)

    @property
    def _is_over(self) -> bool:
        """Whether the run needs no more of the budgets: it is cancelled, or its agent has ended."""
        return self._settled or self._state.cause is not None or self._state.ending is not None

    def _must_reserve(self) -> bool:
        self.record_use()
        return any(self._reserves_each_call(line) or line.must_reserve for line in self._lines)

    def _reserve(self) -> None:
        self._awaiting = True
        self._reserving, self._waiting = self._waiting, []
        reservations = tuple(line.reservation(len(self._reserving)) for line in self._lines)
        self._state.outbox.at_once(Reserve(reservations=reservations))

    def _reserves_each_call(self, line: BudgetLine) -> bool:
        """Whether each call asks the store: calls are counted, or something may be left again."""
        return line.claim.counts == "tool_calls" or line.granted is False or line.reserved <= 0

    def _answers(self, results: Sequence[ReservationResult]) -> Iterator[tuple[BudgetLine, ReservationResult]]:
        by_claim = {answer.claim.identity: answer for answer in results}
        for line in self._lines:
            if (answer := by_claim.get(line.claim.identity)) is not None:
                yield line, answer

    def _has_effect_now(self, line: BudgetLine, answer: ReservationResult, calls_wait: bool) -> bool:
        """Whether a refusal has an effect now; by the time something is used, there may be budget again."""
        over = answer.used > line.claim.max
        gates_all = self._state.identity.gates_all
        return self._starting or over or calls_wait or not gates_all or line.claim.counts == "duration_ms"

    def _record_answer(
        self, line: BudgetLine, answer: ReservationResult, *, granted: bool, calls_wait: bool = False
    ) -> None:
        claim = line.claim
        if line.granted is granted:
            return
        line.granted = granted
        starts = self._starting and (granted or claim.counts != "tool_calls")  # else its calls are denied
        self._state.record(
            BudgetReserved(
                budget=claim.budget,
                key=claim.key,
                counts=claim.counts,
                granted=granted,
                asked_for="start" if starts else "call" if calls_wait or self._starting else "usage",
                used=answer.used,
                reserved=answer.reserved,
                max=claim.max,
                resets_at=answer.resets_at,
            )
        )

    def _warn(self, claim: BudgetAccount, answer: ReservationResult) -> None:
        for fraction in claim.warn_at:
            if answer.before < round(fraction * claim.max, DIGITS) <= answer.used:
                self._state.record(
                    BudgetWarned(
                        limit=claim.budget,
                        used=answer.used,
                        max=claim.max,
                        fraction=answer.used / claim.max,
                        key=claim.key,
                        resets_at=answer.resets_at,
                    )
                )

    def _release_waiting(
        self, waiting: Sequence[int], answers: Sequence[tuple[BudgetLine, ReservationResult]]
    ) -> None:
        """Decide the calls that waited: those with a reservation, then the others, which have no budget."""
        counted = [(line, answer) for line, answer in answers if line.claim.counts == "tool_calls"]
        covered = min((int(answer.held) for _, answer in counted), default=len(waiting))
        for key in waiting[:covered]:
            self.on_reserved(key)
        for line, answer in counted if covered < len(waiting) else ():
            if int(answer.held) == covered:
                self._record_answer(line, answer, granted=False, calls_wait=True)
        for key in waiting[covered:]:
            self.on_reserved(key)
