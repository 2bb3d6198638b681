"""`key`: one independent instance of a rule per value, as a wrapper around its machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from ..language.conditions import OutputRef
from ..values import paths
from ..values.json_values import given_texts
from ..values.model_base import UNCLEAR
from .machine import BOUND, Evaluate, EvaluatedCall, Finding, Machine, RuleState, Spend, ToolReturn

KEY_SHOWN = 200
"""How many characters of a key a violation shows."""
_SHARED = [""]
"""The key of calls without a value."""

_AS_ITS_INSTANCES = (
    *("kind", "slots", "phrases", "from_user", "restricts", "restricts_all", "always_exercised"),
    *("order_dependent", "evaluates_order", "compares_inputs", "watches_turns", "outcomes", "attempts"),
)


class KeyedState(RuleState):
    """The instance of each value, and how many calls each has seen where their order matters."""

    rows: dict[str, Any] = {}
    counts: dict[str, int] = {}


class Keyed(Machine):
    """Passes each call to the instances of its values; beyond the bound, calls with a new value are denied."""

    state_type = KeyedState

    def __init__(self, machine: Machine, key: str) -> None:
        self.inner = machine
        for name in _AS_ITS_INSTANCES:
            setattr(self, name, getattr(machine, name))
        self._counts_denials = type(machine).denied is not Machine.denied
        # An instance counts its own calls, whatever their names.
        self.every_call = machine.every_call or machine.order_dependent
        self._key = key
        self._values_at = paths.compile_path(key, loose=True)

    def compile_evaluate(self, mask: int) -> Evaluate | None:
        """Evaluates even calls that no instance denies, as their instance may be one too many."""
        inner = self.inner.compile_evaluate(mask)
        if inner is None:
            return self._check_bound if mask else None
        path, read, ordered, untouched = self._key, self._read, self.order_dependent, self.inner.initial_state()

        def evaluate(state: KeyedState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
            rows = state.rows
            for key in call.memo.get(path) or read(call):
                row = rows.get(key)
                if row is None:
                    if mask and len(rows) >= BOUND:
                        return self._one_too_many(key)
                    if key == UNCLEAR and (mask & self.restricts or self.restricts_all):
                        return self._unknown(call)
                    row = untouched
                if finding := inner(row, call, mask, state.counts.get(key, 0) if ordered else 0):
                    return _with_keys(finding, self._keys(call))
            return None

        return evaluate

    def compile_spend(self, mask: int) -> Spend | None:
        """Spend in each instance, and count its calls if their order matters."""
        if self.order_dependent:
            return self.started
        inner = self.inner.compile_spend(mask)
        if inner is None:
            return None
        path, read = self._key, self._read

        def spend(state: KeyedState, call: EvaluatedCall, mask: int, now: int) -> None:
            rows = state.rows
            for key in call.memo.get(path) or read(call):
                row = rows.get(key)
                inner(self._row(state, key) if row is None else row, call, mask, 0)

        return spend

    @property
    def outputs(self) -> tuple[OutputRef, ...]:
        return self.inner.outputs

    def decode_state(self, data: Any) -> KeyedState:
        state = msgspec.convert(data, KeyedState, str_keys=True)
        state.rows = {key: self.inner.decode_state(row) for key, row in state.rows.items()}
        return state

    def _keys(self, call: EvaluatedCall) -> list[str]:
        return call.memo.get(self._key) or self._read(call)

    def _read(self, call: EvaluatedCall) -> list[str]:
        """The values at `key`, read once for all rules with the same key."""
        values = self._values_at(call.comparable)
        if len(values) == 1 and type(values[0]) is str and values[0]:
            keys = values
        else:
            keys = list(dict.fromkeys(given_texts(values))) or _SHARED
        call.memo[self._key] = keys
        return keys

    def _row(self, state: KeyedState, key: str) -> Any:
        row = state.rows.get(key)
        if row is None:
            row = self.inner.initial_state()
            if len(state.rows) < BOUND and key != UNCLEAR:
                state.rows[key] = row
        return row

    def evaluate(self, state: KeyedState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        evaluate = self.compile_evaluate(mask)
        return None if evaluate is None else evaluate(state, call, mask, now)

    def _check_bound(self, state: KeyedState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Deny calls that need one instance too many."""
        if len(state.rows) >= BOUND:
            for key in self._keys(call):
                if key not in state.rows:
                    return self._one_too_many(key)
        return None

    def _one_too_many(self, key: str) -> Finding:
        return Finding(
            expected=f"at most {BOUND:,} different values at `{self._key}`",
            actual=f"`{key[:80]}` is one more",
            details={"keys": [key[:KEY_SHOWN]]},
            cause="input",
        )

    def _unknown(self, call: EvaluatedCall) -> Finding:
        return Finding(
            expected=f"a known value at `{self._key}`",
            actual=f"the value of `{self._key}` in `{call.name}` is not known",
            details={"keys": [UNCLEAR]},
            cause="input",
        )

    def requested(self, state: KeyedState, call: EvaluatedCall, mask: int) -> None:
        for key in self._keys(call):
            self.inner.requested(self._row(state, key), call, mask)

    def started(self, state: KeyedState, call: EvaluatedCall, mask: int, now: int) -> None:
        for key in self._keys(call):
            if key not in state.rows and not mask:
                continue  # an instance begins with the first call that the rule names
            self.inner.started(self._row(state, key), call, mask, state.counts.get(key, 0))
            if self.order_dependent and key in state.rows:
                state.counts[key] = state.counts.get(key, 0) + 1

    def completed(self, state: KeyedState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        for key in self._keys(call):
            self.inner.completed(self._row(state, key), call, mask, output)

    def failed(self, state: KeyedState, call: EvaluatedCall, mask: int) -> Finding | None:
        findings = [self.inner.failed(self._row(state, key), call, mask) for key in self._keys(call)]
        return next(filter(None, findings), None)

    def denied(self, state: KeyedState, call: EvaluatedCall, mask: int) -> Finding | None:
        """Pass it to the instances; the first finding counts. No new instance begins if denials do not matter."""
        if not self._counts_denials:
            return None
        findings = [self.inner.denied(self._row(state, key), call, mask) for key in self._keys(call)]
        return next(filter(None, findings), None)

    def finding_at_end(self, state: KeyedState) -> Finding | None:
        return next(filter(None, map(self.inner.finding_at_end, state.rows.values())), None)

    def denies_all(self, state: KeyedState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        """Whether every instance, and a new one, denies the tool."""
        if not self.inner.denies_all(self.inner.initial_state(), sure, maybe, 0, ahead):
            return False
        return all(
            self.inner.denies_all(row, sure, maybe, state.counts.get(key, 0), ahead)
            for key, row in state.rows.items()
        )

    def restricted(self, state: KeyedState, keeps: Callable[[str], bool]) -> KeyedState:
        rows = {key: row for key, row in state.rows.items() if keeps(key)}
        counts = {key: n for key, n in state.counts.items() if keeps(key)}
        return msgspec.structs.replace(state, rows=rows, counts=counts)

    def equivalence_key(self, state: KeyedState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The instances by their values, and a new one."""
        inner = self.inner
        rows = {
            (key, inner.equivalence_key(row, state.counts.get(key, 0), turn, in_flight))
            for key, row in state.rows.items()
        }
        return frozenset(rows), inner.equivalence_key(inner.initial_state(), 0, turn, in_flight)

    def describe(self, state: KeyedState) -> str:
        shown = [f"{key or 'no value'}: {self.inner.describe(row)}" for key, row in list(state.rows.items())[:5]]
        more = f"; {len(state.rows) - 5} more" if len(state.rows) > 5 else ""
        return "; ".join(shown) + more or "no instance yet"


def _with_keys(finding: Finding, keys: list[str]) -> Finding:
    """An instance's finding, with the call's values it applies to."""
    return msgspec.structs.replace(finding, details={**finding.details, "keys": [key[:KEY_SHOWN] for key in keys]})


def without_key(machine: Machine) -> Machine:
    """The machine of one instance; without a `key` the machine itself."""
    return machine.inner if isinstance(machine, Keyed) else machine
