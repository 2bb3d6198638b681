"""The shared budgets of one session: whose they are, and which are used up as far as the record says.

What is left of a budget is known to the store alone. Its answers come as `budget_reserved` events, so that folding
the record judges as the live session did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..events import BudgetReserved
from ..events.calls import STRICTNESS
from ..events.run_context import RunContext
from ..language.facts import NoCall
from ..language.predicates import compile_when
from ..limits import Budget, BudgetClaim
from ..policy import Policy, members_of
from ..rules.machine import Finding
from ..stack.merge import BudgetEntry, figure, strictest
from ..values.json_values import text_of
from ..values.paths import compile_path


class BudgetState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The store's answers in this run: `open` are the reserved budgets, `shut` the refusals of the others."""

    open: list[str] = []
    shut: dict[str, BudgetReserved] = {}

    def take(self, event: BudgetReserved) -> None:
        """The store has answered."""
        share = share_of(event.budget, event.key)
        self.shut.pop(share, None)
        self.open = [other for other in self.open if other != share]
        if event.granted:
            self.open.append(share)
        else:
            self.shut[share] = event

    def answered(self, claim: BudgetClaim) -> bool:
        """Whether the store was asked for it."""
        share = share_of(claim.budget, claim.key)
        return share in self.shut or share in self.open


class BudgetChecker:
    """The budgets of a compiled policy; immutable, the state is the session's."""

    def __init__(self, entries: Sequence[BudgetEntry] = (), *, reject_unpriced: bool = False) -> None:
        self.entries = tuple(entries)
        self._when = [compile_when(e.budget.when) if e.budget.when else None for e in entries]
        self.needs_prices = any(entry.budget.kind.is_money for entry in entries)
        self.rejects_unpriced = reject_unpriced and self.needs_prices

    def __bool__(self) -> bool:
        return bool(self.entries)

    def entry(self, id: str, key: str) -> BudgetEntry | None:
        """The budget of that id whose share has this key; of several the one with the strictest action."""
        found = [entry for entry in self.entries if entry.id == id and entry.budget.key in (None, key)]
        return max(found, key=lambda entry: STRICTNESS[entry.action], default=None)

    def claims(self, context: RunContext) -> tuple[BudgetClaim, ...]:
        """The budgets that a run with this context draws on, each share once: of its entries the strictest in every
        field.
        """
        found: dict[tuple[str, str], BudgetEntry] = {}
        for entry, key in self._shares(context):
            same = (entry.id, key)
            found[same] = strictest(found[same], entry) if same in found else entry
        return tuple(_claim(entry, key) for (_, key), entry in found.items())

    def passed_on(self, stack: Policy, context: RunContext) -> tuple[Policy, ...]:
        """The budgets that a run with this context draws on, and the prices it counts by: as policies for the runs
        that it starts, with the same shares whatever their context says.
        """
        shares: dict[str, list[Budget]] = {}
        for entry, key in self._shares(context):
            window = None if entry.budget.window == "session" else entry.budget.window
            fixed: dict[str, Any] = {"per": (), "key": key or None, "when": (), "window": window}
            shares.setdefault(entry.policy, []).append(replace(entry.budget, **fixed, action=entry.action))
        return tuple(
            Policy(
                name=member.name,
                locked=member.locked,
                budgets=shares.pop(member.name, ()),
                prices=member.prices,
                unpriced=member.unpriced,
            )
            for member in members_of(stack)
            if member.name in shares or member.prices
        )

    def _shares(self, context: RunContext) -> Iterator[tuple[BudgetEntry, str]]:
        """The budgets that hold for a run with this context, and whose share of each it draws on."""
        if not self.entries:
            return
        document, facts = msgspec.to_builtins(context), NoCall(context)
        for entry, when in zip(self.entries, self._when, strict=True):
            if when is None or when(document, facts):
                yield entry, entry.budget.key or key_of(entry.paths, document)

    def refusing(self, state: BudgetState) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The budgets that refuse a call, and why."""
        for answer in state.shut.values():
            entry = self.entry(answer.budget, answer.key)
            if entry is not None and entry.action != "warn":
                yield entry, finding_of(entry, answer)

    def unpriced(self, models: Sequence[str]) -> Iterator[tuple[BudgetEntry, Finding]]:
        """The budgets of money that models without a price are not to use."""
        for entry in self.entries if self.rejects_unpriced else ():
            if entry.budget.kind.is_money:
                yield (
                    entry,
                    Finding(
                        expected="a price for every model, so that the budget can be kept",
                        actual=f"there is no price for {', '.join(models)}",
                        details={"budget": entry.id, "unpriced": list(models)},
                        suggestion="give its price under `prices`",
                    ),
                )


def share_of(budget: str, key: str) -> str:
    """One share of one budget."""
    return f"{budget} {key}" if key else budget


def _claim(entry: BudgetEntry, key: str) -> BudgetClaim:
    return BudgetClaim(
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


def finding_of(entry: BudgetEntry, answer: BudgetReserved) -> Finding:
    """The finding for the store's refusal."""
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
    held = f", {figure(answer.reserved)} reserved" if answer.reserved else ""
    again = f"; it starts again at {answer.resets_at:%Y-%m-%d %H:%M} UTC" if answer.resets_at is not None else ""
    return Finding(
        expected=f"at most {figure(most)} {unit} in budget `{entry.id}`{whose}",
        actual=f"{figure(answer.used)} {unit} used{held}{again}",
        details={name: value for name, value in details.items() if value not in (None, "")},
        suggestion=f"raise `{entry.budget.limit}` of budget `{entry.budget.name}`, or wait",
    )
