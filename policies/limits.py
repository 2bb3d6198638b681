"""Limits of a run, budgets that runs share, and durations as people write them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from .events.run_context import Usage
from .rules.rule import ClauseRecord, RuleAction
from .values import paths
from .values.model_base import Amount, Issue, Name, Record

PART = r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)"
"""One amount of time; a duration is one or several of them, the larger first."""

PERCENT = r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*"
"""A part of an allowance."""

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int | None:
    """A duration in milliseconds; None for text that is not a duration."""
    parts = re.findall(PART, text)
    units = [unit for _, unit in parts]
    if not re.fullmatch(rf"\s*(?:{PART}\s*)+", text):
        return None
    if units != sorted(set(units), key=_MS.__getitem__, reverse=True):
        return None
    return sum(round(float(amount) * _MS[unit]) for amount, unit in parts)


Fraction: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class Kind(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The facts about one kind of limit or budget, attached to the field that sets it.

    Attributes:
        name: The field.
        unit: The unit, in words.
        zero_ok: 0 leaves something to do.
        deny_suffices: Denying calls keeps within it, so that `deny` may be inherited.
        spelled: The name that takes its amount with a unit of time.
    """

    name: str = ""
    unit: str
    zero_ok: bool = False
    deny_suffices: bool = False
    spelled: str | None = None

    @cached_property
    def counts(self) -> str:
        """The figure that it bounds: of `Usage`, or one that the run itself counts."""
        return self.name.removeprefix("max_")

    @cached_property
    def of_usage(self) -> bool:
        """Whether it bounds model usage, which only the agent can report, at the end of a turn."""
        return hasattr(Usage, self.counts)

    @property
    def is_money(self) -> bool:
        """Whether prices are needed to count it."""
        return self.counts == "cost_usd"


class LimitKind(Kind, frozen=True, kw_only=True):
    """A kind of limit.

    Attributes:
        title: What it bounds, for people; its unit, if not given.
        clock: For limits on time: `run` counts while the run runs, `idle` while it is idle.
        projected: For limits evaluated before the call that would exceed them: the call adds a `call` or begins a
            `turn`.
    """

    title: str | None = None
    clock: Literal["run", "idle"] | None = None
    projected: Literal["call", "turn"] | None = None


class BudgetKind(Kind, frozen=True, kw_only=True):
    """A kind of budget.

    Attributes:
        taken: In words, what takes one of it, where it is counted in whole ones.
        at_once: It counts what is going on now, so that an end gives back what was taken.
    """

    taken: str | None = None
    at_once: bool = False


_Kind = TypeVar("_Kind", bound=Kind)


def _rows(record: type[Record], of: type[_Kind]) -> Mapping[str, _Kind]:
    """The kinds written at the fields of a record, by the field."""
    rows = {
        field.name: msgspec.structs.replace(kind, name=field.name)
        for field in msgspec.structs.fields(record)
        for kind in getattr(field.type, "__metadata__", ())
        if isinstance(kind, of)
    }
    return MappingProxyType(rows)


WINDOWS = ("session", "day", "week", "month")
SHORTEST_MS, LONGEST_MS = 60_000, 36_525 * 86_400_000
"""The shortest and the longest rolling window: a minute, a hundred years."""


class Budget(ClauseRecord, frozen=True):
    """An amount that runs of all processes share: reserved before use, settled afterwards.

    Attributes:
        name: The budget's name; with the name of its policy it is the same budget in every run.
        max_cost_usd: USD. A budget has exactly one of these five.
        max_total_tokens: Tokens of input and output together.
        max_tool_calls: Calls that started.
        max_duration_ms: Milliseconds of running time; `max_duration: 10h` is the same with a unit.
        max_running: Runs that are active at once.
        per: Paths in the run's context, such as `$.tenant` or `$.labels.team`: one budget for each value; one for all
            runs if not given.
        key: Instead of `per`: the budget's key, as `proctor budgets` shows it, whatever the run's context says.
        allowance: The allowance of a subscription, in the budget's unit. With it, the amount can be a part, such as
            `max_total_tokens: 80%`.
        window: When it starts anew: `session`; `day`, `week` (from Monday) or `month`, all of UTC; or over the last
            `5h`; never if not given.
        reserve: The amount that must be free before a run continues, in the budget's unit; it is set aside for the
            run's next turn, or as much as the run's largest turn used if that is more and available. If not
            given: as much as that (at first a hundredth of the budget), or what is left.
        warn_at: The fraction, or fractions, at which a warning is recorded, once in a window.
        action: The action on a violation; except for budgets of calls, a budget that only inherits `deny` cancels.
    """

    name: Name
    max_cost_usd: Annotated[Amount | None, BudgetKind(unit="USD")] = None
    max_total_tokens: Annotated[Amount | None, BudgetKind(unit="tokens")] = None
    max_tool_calls: Annotated[
        Amount | None, BudgetKind(unit="tool calls", zero_ok=True, deny_suffices=True, taken="a call takes one")
    ] = None
    max_duration_ms: Annotated[Amount | None, BudgetKind(unit="ms", spelled="max_duration")] = None
    max_running: Annotated[
        Amount | None, BudgetKind(unit="runs at once", taken="a run takes one place", at_once=True)
    ] = None
    per: Name | Sequence[Name] = ()
    key: Name | None = None
    allowance: Amount | None = None
    window: Name | None = None
    reserve: Amount | None = None
    warn_at: Fraction | Sequence[Fraction] | None = None

    @property
    def kind(self) -> BudgetKind:
        """The kind of the amount it gives."""
        return next(kind for name, kind in BUDGETS.items() if getattr(self, name) is not None)

    @property
    def limit(self) -> str:
        """The name of the amount that is set."""
        return self.kind.name

    @property
    def max(self) -> float:
        """The amount."""
        return float(getattr(self, self.limit))

    @property
    def paths(self) -> tuple[str, ...]:
        """The context paths whose values each have a budget of their own."""
        return (self.per,) if isinstance(self.per, str) else tuple(self.per)

    @property
    def fractions(self) -> tuple[float, ...]:
        """Where it warns, in order."""
        given = self.warn_at
        return () if given is None else tuple(sorted(given)) if isinstance(given, Sequence) else (given,)

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            names = ", ".join(f"`{name}`" for name in BUDGETS)
            given_names = "gives none" if not given else f"gives {' and '.join(f'`{name}`' for name in given)}"
            yield tuple(given[1:2]), f"a budget counts one thing, this one {given_names}; use one of {names}"
        for n, path in enumerate(self.paths):
            where = ("per",) if isinstance(self.per, str) else ("per", n)
            yield from paths.problems(path, where)
        if self.key is not None and self.paths:
            yield ("key",), "a budget has a `key`, or one for each value of `per`, not both"
        if self.key is not None and self.window == "session":
            yield ("key",), "a budget of a session is known by its session, not by a `key`"
        yield from self._window_problems(given)

    def _window_problems(self, given: Sequence[str]) -> Iterator[Issue]:
        """What is wrong with the window, and with what depends on the thing that is counted."""
        if self.window is not None and self.window not in WINDOWS:
            length = duration_ms(self.window)
            if length is None:
                yield (
                    ("window",),
                    f"`{self.window}` is not a window; use `session`, `day`, `week`, `month`, or a time as `24h`",
                )
            elif length < SHORTEST_MS:
                yield ("window",), f"`{self.window}` is too short for a window; a rolling one has a minute at least"
            elif length > LONGEST_MS:
                yield ("window",), f"`{self.window}` is too long for a window; without one a budget never starts anew"
        if len(given) != 1:
            return
        if self.kind.at_once and self.window not in (None, "session"):
            yield ("window",), f"`{self.limit}` counts runs that are running now: it has no window of time"
        if self.kind.taken and self.reserve is not None:
            yield ("reserve",), f"{self.kind.taken} of `{self.limit}`: there is nothing to reserve"
        if self.allowance is not None and self.allowance < self.max:
            yield ("allowance",), f"`{self.limit}` is more than the whole `allowance`"
        if self.reserve is not None and self.reserve > self.max:
            yield ("reserve",), "`reserve` is more than the whole budget: no run could start"


BUDGETS: Final = _rows(Budget, BudgetKind)
"""The kinds of budgets by name."""


class BudgetAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A run's account of a budget: one value of its key.

    Attributes:
        budget: Its policy and its name, `policy/name`.
        key: The budget's key: the values at its `per`, as text; "" for one budget shared by all.
        counts: The amount it counts: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or `running`.
        window: `day`, `week`, `month`, the length of a rolling window in ms as text, or "".
        max: The whole amount, in the unit of what it counts.
        reserve: The amount that must be free, if the policy sets one.
        warn_at: The fractions at which it warns.
        action: The action on a violation.
    """

    budget: str
    key: str
    counts: str
    window: str
    max: float
    reserve: float | None = None
    warn_at: tuple[float, ...] = ()
    action: str = "cancel"

    @property
    def kind(self) -> BudgetKind:
        return BUDGETS[f"max_{self.counts}"]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells it from every other account: its budget, key, amount and window."""
        return self.budget, self.key, self.counts, self.window


class Limit(Record, frozen=True):
    """A limit with an action, a scope or a warning of its own.

    Attributes:
        max: The limit, in the unit that its name says.
        scope: `run`, or `session`: counted over all runs of the session.
        warn_at: The fraction of the limit at which proctor records one warning.
        action: The action on a violation; a limit other than `max_tool_calls` that only inherits `deny` cancels.
        reason: For telemetry; never shown to the model.
        tell_model: The text for the model when a call is denied.
        description: For people.
    """

    max: Amount
    scope: Literal["run", "session"] = "run"
    warn_at: Annotated[float, Meta(gt=0, le=1)] | None = None
    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None
    description: str | None = None


LimitValue: TypeAlias = Amount | Limit | None


class Limits(Record, frozen=True):
    """Hard caps: each is a number from 0, or a `Limit`, and is violated when more than it is used.

    Attributes:
        max_total_tokens: Tokens of input and output together.
        max_input_tokens: Tokens of input, cached ones included.
        max_output_tokens: Tokens of output.
        max_cost_usd: USD.
        max_duration_ms: Milliseconds from the start; `max_duration: 10m` is the same with a unit.
        max_idle_ms: Milliseconds in which nothing happens, nothing runs and nobody is asked; `max_idle: 60s`.
        max_tool_calls: Calls that started.
        max_turns: Responses of the model.
    """

    max_total_tokens: Annotated[LimitValue, LimitKind(unit="tokens")] = None
    max_input_tokens: Annotated[LimitValue, LimitKind(unit="input tokens")] = None
    max_output_tokens: Annotated[LimitValue, LimitKind(unit="output tokens")] = None
    max_cost_usd: Annotated[LimitValue, LimitKind(unit="USD", zero_ok=True, title="cost")] = None
    max_duration_ms: Annotated[
        LimitValue, LimitKind(unit="ms", spelled="max_duration", clock="run", title="time")
    ] = None
    max_idle_ms: Annotated[
        LimitValue, LimitKind(unit="ms idle", spelled="max_idle", clock="idle", title="longest silence")
    ] = None
    max_tool_calls: Annotated[
        LimitValue, LimitKind(unit="tool calls", zero_ok=True, deny_suffices=True, projected="call")
    ] = None
    max_turns: Annotated[LimitValue, LimitKind(unit="turns", projected="turn")] = None

    def given(self) -> Iterator[tuple[str, Limit]]:
        """The limits that are set, each as a full record."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Limit):
                yield name, value
            elif value is not None:
                yield name, Limit(max=value)


LIMITS: Final = _rows(Limits, LimitKind)
"""The kinds of limits by name."""


def spellings(kinds: Mapping[str, Kind]) -> dict[str, str]:
    """The names that take an amount of time with its unit, each with the field that is in milliseconds."""
    return {kind.spelled: name for name, kind in kinds.items() if kind.spelled is not None}
