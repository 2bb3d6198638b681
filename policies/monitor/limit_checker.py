"""Limits and budgets: what is used, what is exceeded, and the next deadline."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from .. import events as ev
from ..events.calls import STRICTNESS, LimitWarning
from ..events.run_context import RunContext
from ..language.facts import NoCall
from ..language.predicates import Predicate, compile_when
from ..limits import Budget, BudgetAccount
from ..policy import Policy, members_of
from ..rules.machine import Finding
from ..stack.merge import BudgetEntry, LimitEntry, budgets_of, strictest
from ..values.amounts import amount_in, dollars
from ..values.json_values import text_of
from ..values.paths import compile_path
from .usage import TokenMeter

USD_DIGITS = 10
"""Costs are compared to this many digits, as sums of floats are inexact."""


class LimitState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Amounts used other than tokens, by the run and by the session's earlier runs; times in ms.

    `turns_over`: the last turn that is known to have ended.
    """

    calls: int = 0
    turns: int = 0
    turns_over: int = 0
    started_at: int | None = None
    active_at: int | None = None
    now: int | None = None
    earlier_calls: int = 0
    earlier_turns: int = 0
    earlier_ms: int = 0
    longest_idle: int = 0
    exceeded: frozenset[int] = frozenset()
    reported: frozenset[int] = frozenset()
    warned: frozenset[int] = frozenset()

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the run's first event."""
        return 0 if self.started_at is None or self.now is None else self.now - self.started_at

    @property
    def active_ms(self) -> int:
        """Milliseconds from the run's first event to its last."""
        return 0 if self.started_at is None or self.active_at is None else self.active_at - self.started_at

    def acted(self, now: int, *, over: bool) -> None:
        """Note an event at `now`; the first of a run starts its clock."""
        self.active_at = now if self.active_at is None else max(now, self.active_at)
        if self.started_at is None and not over:
            self.started_at = now


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and how much of it is used.

    Attributes:
        limit: The limit's name.
        used: How much is used, in `unit`.
        max: The limit, in `unit`.
        unit: The unit of both: tokens, USD, ms, tool calls, turns.
        title: What it bounds, for people: tokens, cost, time.
        scope: Of the `run`, or of the `session`.
        policy: The policy of the stack that it comes from.
        action: The action on a violation.
        warn_at: The fraction at which it warns, if it does.
        exceeded: Whether it was exceeded and its action taken.
    """

    limit: str
    used: float
    max: float
    unit: str
    title: str = ""
    scope: str
    policy: str
    action: str
    warn_at: float | None = None
    exceeded: bool = False


class Exceeded(NamedTuple):
    """A limit that is exceeded, by its number in the compiled policy."""

    number: int
    finding: Finding


_Used: TypeAlias = Callable[[LimitState, TokenMeter], float]


class LimitChecker:
    """The limits of a compiled policy; immutable, as the session has the state.

    Limits go by their number in `entries`: time moves the `clocks`, `moved` has the others that an event of a type
    moves, and `warns` are those with a `warn_at`.
    """

    def __init__(self, entries: Sequence[LimitEntry], *, reject_unpriced: bool) -> None:
        self.entries = tuple(entries)
        self.clocks = [n for n, e in enumerate(entries) if e.kind.clock]
        self.has_clocks = bool(self.clocks)
        self.has_idle = any(entry.kind.clock == "idle" for entry in entries)
        self.warns = [n for n, e in enumerate(entries) if e.limit.warn_at is not None]
        costs = [n for n, e in enumerate(entries) if e.kind.is_money]
        self.needs_prices = bool(costs)
        self._rejecting = costs if reject_unpriced else []
        self._used = [_used_of(entry) for entry in entries]
        self._most: list[float] = [e.limit.max for e in entries]
        self._calls = [n for n, e in enumerate(entries) if e.kind.projected == "call"]
        self._ahead = [n for n, e in enumerate(entries) if e.kind.projected]
        counted = [n for n, e in enumerate(entries) if e.kind.of_usage]
        ahead = (ev.ToolCallRequested, ev.ToolCallStarted, ev.TurnStarted, ev.TurnCompleted)
        self._any_event = [
            n for n, e in enumerate(entries) if not (e.kind.clock or e.kind.of_usage or e.kind.projected)
        ]
        self._moved: dict[type[ev.Event], Sequence[int]] = {
            ev.RunStarted: range(len(entries)),
            ev.TokenUsageUpdated: counted + self._any_event,
            **dict.fromkeys(ahead, self._ahead + self._any_event),
        }

    def moved(self, event: type[ev.Event]) -> Sequence[int]:
        """The limits that such an event may exceed, clocks aside."""
        return self._moved.get(event, self._any_event)

    def new_run(self, before: LimitState) -> LimitState:
        """Begin a run and its clock; limits of the session keep what earlier runs used."""
        return LimitState(
            earlier_calls=before.earlier_calls + before.calls,
            earlier_turns=before.earlier_turns + before.turns,
            earlier_ms=before.earlier_ms + before.active_ms,
            warned=frozenset(n for n in before.warned if self.entries[n].limit.scope == "session"),
        )

    def exceeded_now(self, state: LimitState, meter: TokenMeter, moved: Sequence[int]) -> list[Exceeded]:
        """The limits among `moved` that are newly exceeded; each is reported once per run."""
        found: list[Exceeded] = []
        rejecting = self._rejecting if meter.unpriced else ()
        for number in moved:
            used = self._used[number](state, meter)
            if (used > self._most[number] or number in rejecting) and number not in state.exceeded:
                state.exceeded |= {number}
                if number not in state.reported:
                    found.append(Exceeded(number, self._finding(number, used, meter)))
        return found

    def evaluate(self, state: LimitState, meter: TokenMeter, turn: int) -> list[Exceeded]:
        """The limits that deny a call of this turn (numbered within the run)."""
        found: list[Exceeded] = []
        if state.exceeded:
            denying = [number for number in state.exceeded if self.entries[number].action != "warn"]
            found = [Exceeded(n, self._finding(n, self._used[n](state, meter), meter)) for n in denying]
        for number in self._ahead:
            would = self._used[number](state, meter)
            would += 1 if number in self._calls else max(0, turn - state.turns)
            if would <= self._most[number] or number in state.exceeded:
                continue
            if self.entries[number].action != "warn" or number not in state.reported:
                found.append(Exceeded(number, self._finding(number, would, meter)))
        if len(found) > 1:
            found.sort(key=lambda each: each.number)
        return found

    def denies_all(self, state: LimitState, meter: TokenMeter) -> bool:
        """Whether every further call of this turn and the next would be denied."""
        found = self.evaluate(state, meter, max(state.turns, state.turns_over + 1))
        return any(self.entries[each.number].action in ("deny", "cancel") for each in found)

    def warnings(self, state: LimitState, meter: TokenMeter) -> Iterator[LimitWarning]:
        """The limits that have passed their `warn_at`, each reported once."""
        for number in self.warns:
            entry = self.entries[number]
            used = self._used[number](state, meter)
            fraction = used / entry.limit.max if entry.limit.max else 1.0
            if number not in state.warned and fraction >= (entry.limit.warn_at or 1):
                state.warned |= {number}
                yield LimitWarning(limit=entry.name, used=used, max=entry.limit.max, fraction=fraction)

    def uses(self, state: LimitState, meter: TokenMeter) -> tuple[LimitStatus, ...]:
        """Every limit with what is used of it."""
        return tuple(
            LimitStatus(
                limit=entry.name,
                used=self._used[number](state, meter),
                max=entry.limit.max,
                unit=entry.kind.unit,
                title=entry.kind.title or entry.kind.unit,
                scope=entry.limit.scope,
                policy=entry.policy,
                action=entry.action,
                warn_at=entry.limit.warn_at,
                exceeded=number in state.exceeded,
            )
            for number, entry in enumerate(self.entries)
        )

    def deadline(self, state: LimitState, waiting: bool) -> int | None:
        """When, in ms since the epoch, a clock will be exceeded if nothing happens until then.

        `waiting`: a call runs or is held, so the run is not idle.
        """
        due: list[int] = []
        for number in self.clocks:
            entry = self.entries[number]
            if number in state.exceeded:
                continue
            if entry.kind.clock == "run" and state.started_at is not None:
                earlier = state.earlier_ms if entry.limit.scope == "session" else 0
                due.append(state.started_at + int(entry.limit.max) - earlier + 1)
            elif entry.kind.clock == "idle" and state.active_at is not None and not waiting:
                due.append(state.active_at + int(entry.limit.max) + 1)
        return min(due, default=None)

    def passed(self, state: LimitState, now: int, waiting: Callable[[], bool]) -> None:
        """Set the time, which never goes back. `waiting` tells whether the time since the last event was a call's."""
        if state.now is None or now > state.now:
            state.now = now
        if self.has_idle and state.active_at is not None:
            idle = state.now - state.active_at
            if idle > state.longest_idle and not waiting():
                state.longest_idle = idle

    def _finding(self, number: int, used: float, meter: TokenMeter) -> Finding:
        """That a limit is exceeded; where it is not, the price of a model is unknown."""
        entry = self.entries[number]
        if used <= self._most[number]:
            kept = f"{dollars(entry.limit.max)} can be enforced"
            return _no_price(meter.unpriced, kept, limit=entry.name, max=entry.limit.max)
        unit = entry.kind.unit
        most, reached = amount_in(unit, entry.limit.max), amount_in(unit, used)
        return Finding(
            expected=f"at most {most} in one {entry.limit.scope}",
            actual=reached if reached != most else f"more than {most}",
            details={"limit": entry.name, "used": used, "max": entry.limit.max, "scope": entry.limit.scope},
            suggestion=f"raise `{entry.name}`, or split the work",
        )


def _no_price(models: Sequence[str], kept: str, **details: Any) -> Finding:
    return Finding(
        expected=f"a price for every model, so that {kept}",
        actual=f"there is no price for {', '.join(models)}",
        details={**details, "unpriced": list(models)},
        suggestion="give its price under `prices`",
    )


def _used_of(entry: LimitEntry) -> _Used:
    """A function that reads what is used of a limit, by the run or by the session."""
    session = entry.limit.scope == "session"
    if entry.kind.of_usage:
        figure = attrgetter(entry.kind.counts)
        if session:
            return lambda state, meter: round(figure(meter.session), USD_DIGITS)
        return lambda state, meter: round(figure(meter.run), USD_DIGITS)
    return _COUNTERS[entry.kind.counts][session]


_COUNTERS: dict[str, tuple[_Used, _Used]] = {
    "tool_calls": (lambda state, _: state.calls, lambda state, _: state.calls + state.earlier_calls),
    "turns": (lambda state, _: state.turns, lambda state, _: state.turns + state.earlier_turns),
    "duration_ms": (lambda state, _: state.elapsed_ms, lambda state, _: state.elapsed_ms + state.earlier_ms),
    "idle_ms": (lambda state, _: state.longest_idle, lambda state, _: state.longest_idle),
}
"""What a run used itself, and that with what the session's earlier runs used."""


class BudgetState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The store's answers in this run: `granted` are the reserved budgets, `exhausted` the answers about the rest."""

    granted: tuple[str, ...] = ()
    exhausted: dict[str, ev.BudgetReserved] = {}

    def apply(self, event: ev.BudgetReserved) -> None:
        """Note an answer of the store."""
        share = account_id(event.budget, event.key)
        self.exhausted.pop(share, None)
        self.granted = tuple(other for other in self.granted if other != share)
        if event.granted:
            self.granted += (share,)
        else:
            self.exhausted[share] = event

    def answered(self, claim: BudgetAccount) -> bool:
        share = account_id(claim.budget, claim.key)
        return share in self.exhausted or share in self.granted


class BudgetChecker:
    """The budgets of a compiled policy; immutable, as the session has the state."""

    def __init__(self, entries: Sequence[BudgetEntry] = (), *, reject_unpriced: bool = False) -> None:
        self.entries = tuple(entries)
        self._conditional = _with_conditions(entries)
        self.needs_prices = any(entry.budget.kind.is_money for entry in entries)
        self.rejects_unpriced = reject_unpriced

    def __bool__(self) -> bool:
        return bool(self.entries)

    def entry(self, id: str, key: str) -> BudgetEntry | None:
        """The budget of that id and key; of several, the one with the strictest action."""
        found = [entry for entry in self.entries if entry.id == id and entry.budget.key in (None, key)]
        return max(found, key=lambda entry: STRICTNESS[entry.action], default=None)

    def claims(self, context: RunContext) -> tuple[BudgetAccount, ...]:
        """The budget accounts of a run with this context, each once, with the strictest value of every field."""
        found: dict[tuple[str, str], BudgetEntry] = {}
        for entry, key in _shares(self._conditional, context):
            same = (entry.id, key)
            found[same] = strictest(found[same], entry) if same in found else entry
        return tuple(_claim(entry, key) for (_, key), entry in found.items())

    def passed_on(self, stack: Policy, context: RunContext) -> tuple[Policy, ...]:
        """A run's budgets and prices, as policies for its child runs, which use the same accounts.

        Each policy keeps its own: those of one name may share an account, or have budgets of one name.
        """
        passed: list[Policy] = []
        for member in members_of(stack):
            shares = _shares(_with_conditions(budgets_of(member, stack)), context)
            if (budgets := tuple(_passed_on(*share) for share in shares)) or member.prices:
                passed.append(
                    Policy(
                        name=member.name,
                        locked=member.locked,
                        budgets=budgets,
                        prices=member.prices,
                        unpriced=member.unpriced,
                    )
                )
        return tuple(passed)

    def denying(self, state: BudgetState) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The budgets that deny a call, each with its finding."""
        for answer in state.exhausted.values():
            entry = self.entry(answer.budget, answer.key)
            if entry is not None and entry.action != "warn":
                yield entry, finding_of(entry, answer)

    def unpriced(self, models: Sequence[str]) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The money budgets that reject these models, as they have no price."""
        for entry in self.entries if self.rejects_unpriced else ():
            if entry.budget.kind.is_money:
                yield entry, _no_price(models, "the budget can be kept", budget=entry.id)


def _with_conditions(entries: Iterable[BudgetEntry]) -> tuple[tuple[BudgetEntry, Predicate | None], ...]:
    """Budgets, each with its `when`, compiled."""
    return tuple((entry, compile_when(entry.budget.when) if entry.budget.when else None) for entry in entries)


def _shares(
    entries: Sequence[tuple[BudgetEntry, Predicate | None]], context: RunContext
) -> Iterator[tuple[BudgetEntry, str]]:
    """The budgets among these of a run with this context, each with the key of its account."""
    if not entries:
        return
    document, facts = msgspec.to_builtins(context), NoCall(context)
    for entry, when in entries:
        if when is None or when(document, facts):
            yield entry, entry.budget.key or key_of(entry.paths, document)


def _passed_on(entry: BudgetEntry, key: str) -> Budget:
    """The budget of one account, whatever the context of the run that uses it."""
    window = None if entry.budget.window == "session" else entry.budget.window
    return replace(entry.budget, per=(), key=key or None, when=(), window=window, action=entry.action)


def account_id(budget: str, key: str) -> str:
    return f"{budget} {key}" if key else budget


def _claim(entry: BudgetEntry, key: str) -> BudgetAccount:
    return BudgetAccount(
        budget=entry.id,
        key=key,
        counts=entry.counts,
        window=entry.window,
        max=entry.budget.max,
        reserve=entry.budget.reserve,
        warn_at=entry.budget.fractions,
        action=entry.action,
    )


def key_of(paths: Sequence[str], context: Mapping[str, Any]) -> str:
    """The key of the budget: the values at these paths; 7 and "7" are the same."""
    return ", ".join(f"{path}={_value(compile_path(path)(context))}" for path in paths)


def _value(found: Sequence[Any]) -> str:
    values = [_scalar(value) for value in found]
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def _scalar(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return "null" if value is None else json.dumps(text_of(value), ensure_ascii=False)


def finding_of(entry: BudgetEntry, answer: ev.BudgetReserved) -> Finding:
    """The finding for the store's denial."""
    unit, most = entry.budget.kind.unit, entry.budget.max
    details = {
        "budget": entry.id,
        "key": answer.key,
        "used": answer.used,
        "reserved": answer.reserved,
        "max": most,
        "resets_at": answer.resets_at.isoformat() if answer.resets_at is not None else None,
    }
    whose = f" of {answer.key}" if answer.key else ""
    held = f"{amount_in(unit, answer.reserved)} reserved" if answer.reserved else ""
    used = f"{amount_in(unit, answer.used)} used" if answer.used or not held else ""
    again = f"; it starts again at {answer.resets_at:%Y-%m-%d %H:%M} UTC" if answer.resets_at is not None else ""
    return Finding(
        expected=f"at most {amount_in(unit, most)} in budget `{entry.id}`{whose}",
        actual=", ".join(filter(None, (used, held))) + again,
        details={name: value for name, value in details.items() if value not in (None, "")},
        suggestion=f"raise `{entry.budget.limit}` of budget `{entry.budget.name}`, or wait",
    )
