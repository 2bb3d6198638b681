"""The shared budgets of one session: whose they are, and which are used up as far as the record says.

What is left of a budget is known to the store alone. Its answers come as `budget_reserved` events, so that folding
the record judges as the live session did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...budget import BudgetClaim
from ...language.facts import NoCall
from ...language.predicates import compile_when
from ...rules.machine import Finding
from ...stack.budgets import BudgetEntry
from ...stack.limits import figure
from ...stream.calls import RunContext
from ...stream.events import BudgetReserved
from ...values.equality import text_of
from ...values.paths import compile_path

BUDGET_UNITS = {
    "cost_usd": "USD",
    "total_tokens": "tokens",
    "tool_calls": "tool calls",
    "duration_ms": "ms",
    "running": "runs at once",
}
"""What budgets count, in words."""


class BudgetState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the store answered in this run: `open` the budgets it could reserve, `shut` the answer of the others."""

    open: list[str] = []
    shut: dict[str, BudgetReserved] = {}

    def take(self, event: BudgetReserved) -> None:
        """The store has answered."""
        self.shut.pop(event.budget, None)
        self.open = [id for id in self.open if id != event.budget]
        if event.granted:
            self.open.append(event.budget)
        else:
            self.shut[event.budget] = event


class BudgetJudge:
    """The budgets of a compiled policy; immutable, the state is the session's."""

    def __init__(self, entries: Sequence[BudgetEntry] = (), *, reject_unpriced: bool = False) -> None:
        self.entries = tuple(entries)
        self._by_id = {entry.id: entry for entry in entries}
        self._when = [compile_when(e.budget.when) if e.budget.when else None for e in entries]
        self.needs_prices = any(entry.counts == "cost_usd" for entry in entries)
        self.rejects_unpriced = reject_unpriced and self.needs_prices

    def __bool__(self) -> bool:
        return bool(self.entries)

    def entry(self, id: str) -> BudgetEntry | None:
        """The budget of that id."""
        return self._by_id.get(id)

    def claims(self, context: RunContext) -> tuple[BudgetClaim, ...]:
        """What a run with this context draws on."""
        return tuple(self._claims(context)) if self.entries else ()

    def _claims(self, context: RunContext) -> Iterator[BudgetClaim]:
        document, facts = msgspec.to_builtins(context), NoCall(context)
        for entry, when in zip(self.entries, self._when, strict=True):
            if when is None or when(document, facts):
                yield BudgetClaim(
                    budget=entry.id,
                    key=key_of(entry.paths, document),
                    counts=entry.counts,
                    window=entry.window,
                    max=entry.budget.max,
                    reserve=entry.budget.reserve,
                    warn_at=entry.budget.fractions,
                    action=entry.action,
                )

    def refusing(self, state: BudgetState) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The budgets that refuse a call, and why."""
        for id, answer in state.shut.items():
            entry = self._by_id.get(id)
            if entry is not None and entry.action != "warn":
                yield entry, finding_of(entry, answer)

    def unpriced(self, models: Sequence[str]) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The budgets of money that models without a price are not to use."""
        for entry in self.entries if self.rejects_unpriced else ():
            if entry.counts == "cost_usd":
                yield (
                    entry,
                    Finding(
                        expected="a price for every model, so that the budget can be kept",
                        actual=f"there is no price for {', '.join(models)}",
                        details={"budget": entry.id, "unpriced": list(models)},
                        suggestion="give its price under `prices`",
                    ),
                )


def key_of(paths: Sequence[str], context: Mapping[str, Any]) -> str:
    """Whose budget it is: the values at these paths; 7 and "7" are the same."""
    return ", ".join(f"{path}={_value(compile_path(path)(context))}" for path in paths)


def _value(found: Sequence[Any]) -> str:
    values = [_scalar(value) for value in found]
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def _scalar(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return "null" if value is None else json.dumps(text_of(value), ensure_ascii=False)


def finding_of(entry: BudgetEntry, answer: BudgetReserved) -> Finding:
    """What the store's refusal comes to."""
    unit, most = BUDGET_UNITS[entry.counts], entry.budget.max
    details = {
        "budget": entry.id,
        "key": answer.key,
        "used": answer.used,
        "reserved": answer.reserved,
        "max": most,
        "resets_at": answer.resets_at.isoformat() if answer.resets_at is not None else None,
    }
    whose = f" of {answer.key}" if answer.key else ""
    held = f", {figure(answer.reserved)} reserved" if answer.reserved else ""
    again = f"; it starts again at {answer.resets_at:%Y-%m-%d %H:%M} UTC" if answer.resets_at is not None else ""
    return Finding(
        expected=f"at most {figure(most)} {unit} in budget `{entry.id}`{whose}",
        actual=f"{figure(answer.used)} {unit} used{held}{again}",
        details={name: value for name, value in details.items() if value not in (None, "")},
        suggestion=f"raise `{entry.budget.limit}` of budget `{entry.budget.name}`, or wait",
    )
