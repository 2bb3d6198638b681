"""A session from a search, replayed on the monitors of the policies themselves."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import events as ev
from ..errors import Violation
from ..events.calls import ToolCall
from ..monitor.monitor import Monitor
from ..monitor.state import MonitorState
from ..monitor.violations import REFUSES_LATER
from .components import ANY_OTHER, ASK, DENY, LEVELS, NOTHING, WARN
from .session_search import FAILED, REFUSED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..events.run_context import RunContext
    from ..monitor.program import Program
    from ..stack.merge import LimitEntry
    from .session_search import SessionStep

MOST_TRIES = 64
"""How many ways are tried to choose the values that a search left open."""


class Replayed(NamedTuple):
    """The outcome of a session on the monitors.

    `broken`: it ends in what the property finds. `session` are its calls, as an answer shows them. `refusing` are
    the rules of the stack, and limits by name, that did not let a call through or ask about it; `found` the
    violation of the property.
    """

    broken: bool
    session: list[dict[str, Any]]
    refusing: tuple[str, ...] = ()
    found: Violation | None = None
    at_end: bool = False


def replay(
    steps: Sequence[SessionStep], stack: Program, property: Program, context: RunContext, *, strict: bool
) -> Replayed:
    """Replay a session, in as many ways as it takes to get through; the last one if none does."""
    best = None
    for values in _choices(steps):
        got = _Replay(stack, property, context, strict=strict).run(steps, values)
        if got.broken:
            return got
        if best is None or len(got.session) > len(best.session):
            best = got
    assert best is not None
    return best


def _choices(steps: Sequence[SessionStep]) -> Iterator[list[str]]:
    """For each call with an open value: another one each time, always the same one, or any mixture."""
    count = sum(1 for step in steps if _is_open(step))
    fresh = [f"other{n + 1}" for n in range(count)]
    yield fresh
    if count > 1:
        yield ["other1"] * count
        pools = [[f"other{m + 1}" for m in range(n + 1)] for n in range(count)]
        yield from (list(values) for values in itertools.islice(itertools.product(*pools), MOST_TRIES))


def _is_open(step: SessionStep) -> bool:
    opens = step.call is not None and (step.kind == "call" and bool(step.call.wild))
    output = (
        step.call.outputs[step.outcome] if step.call and step.outcome >= 0 and step.kind in ("call", "end") else ""
    )
    return opens or ANY_OTHER in str(output) or ANY_OTHER in step.text


def _filled(value: Any, other: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, other) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, other) for item in value]
    return value.replace(ANY_OTHER, other) if isinstance(value, str) else value


class _Replay:
    def __init__(self, stack: Program, property: Program, context: RunContext, *, strict: bool) -> None:
        self.stack = Monitor(MonitorState(stack.at(context), context))
        self.property = Monitor(MonitorState(property.at(context), context))
        self.strict = strict
        self.session: list[dict[str, Any]] = []
        self.refusing: dict[str, None] = {}
        self.before: list[dict[str, Any]] = []
        self.turn, self.run_number = 1, 1
        self.flying: dict[int, tuple[str, dict[str, Any]]] = {}

    def run(self, steps: Sequence[SessionStep], values: list[str]) -> Replayed:
        left = iter(values)
        several = any(step.kind in ("turn", "run") for step in steps)
        self._both(ev.RunStarted(run_id="run-1"))
        if several:
            self._both(ev.TurnStarted(turn=1))
        for n, step in enumerate(steps):
            other = next(left) if _is_open(step) else ""
            found = self._step(n, step, other, several)
            if isinstance(found, Violation) and step.kind == "turn":
                self.session.append(nothing_called({"turn": self.turn}) | {"turn": self.turn, "run": self.run_number})
            if found is False:
                return Replayed(False, self.session, tuple(self.refusing))
            if found is not None and found is not True:
                return Replayed(True, self.session, tuple(self.refusing), found, step.kind == "finish")
        return Replayed(False, self.session, tuple(self.refusing))

    def _both(self, event: ev.Event) -> tuple[list[Violation], list[Violation]]:
        return self.stack.observe(event), self.property.observe(event)

    def _step(self, n: int, step: SessionStep, other: str, several: bool) -> Violation | bool | None:
        """True or None: go on; False: the stack does not let it through; else what the property found."""
        if step.kind == "call":
            return self._call(n, step, other, several)
        if step.kind == "end":
            if step.slot not in self.flying:
                return False  # a cancelled run has taken it along
            id, shown = self.flying.pop(step.slot)
            shown["ended_before_call"] = len(self.session) + 1
            return self._end(id, step, other, shown)
        if step.kind == "finish":
            return self._finish()
        return self._event(step, other)

    def _event(self, step: SessionStep, other: str) -> Violation | bool | None:
        if step.kind == "user":
            text = _filled(step.text, other)
            self.before.append({"user_message": text})
            self._both(ev.MessageSent(content=text))
            return None
        if step.kind == "run":
            return self._resumed(ev.RunCompleted)
        self.turn += 1
        return self._weighed(*self._both(ev.TurnStarted(turn=self.turn)))

    def _resumed(self, ended: type[ev.Event]) -> Violation | bool | None:
        """The run ends so, and the session goes on in another."""
        self._both(ended(run_id=f"run-{self.run_number}"))
        self.run_number += 1
        self.turn = 1
        self.flying.clear()
        found = self._weighed(*self._both(ev.RunStarted(run_id=f"run-{self.run_number}")))
        return self._weighed(*self._both(ev.TurnStarted(turn=self.turn))) if found is None else found

    def _weighed(self, stack: list[Violation], property: list[Violation]) -> Violation | bool | None:
        level = max((LEVELS[v.action] for v in stack), default=NOTHING)
        if level >= DENY:
            self.refusing |= {v.rule: None for v in stack}
            return False if _ends_run(stack) else None
        return next((v for v in property if self._breaks(v, level)), None)

    def _breaks(self, violation: Violation, level: int) -> bool:
        found = LEVELS[violation.action]
        if self.strict:
            return found in (WARN, DENY) or (found == ASK and level < ASK)
        return found > max(level, WARN)

    def _call(self, n: int, step: SessionStep, other: str, several: bool) -> Violation | bool | None:
        assert step.call is not None
        input = _filled(step.call.input, other or "other1")
        if step.call.fresh:
            input = {**input, "attempt": n + 1}
        call = ToolCall(id=f"c{n + 1}", name=step.call.name, input=input)
        decision = self.stack.propose(call)
        level = LEVELS[decision.action]
        self.refusing |= {v.rule: None for v in decision.violations if LEVELS[v.action] >= ASK}
        shown: dict[str, Any] = {"tool": call.name, "input": input}
        shown["decision"] = decision.action
        if several or self.run_number > 1:
            shown |= {"turn": self.turn, "run": self.run_number}
        if self.before:
            shown["before"], self.before = self.before, []
        wants = step.outcome == REFUSED
        if level >= DENY or (wants and level == ASK):
            self.session.append(shown | {"outcome": "denied"} | ({"approval": "declined"} if level == ASK else {}))
            if not wants:
                return False
            requested = ev.ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=input)
            self.property.observe(requested)
            denied = ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name)
            found, _ = self._both(denied)
            ends = decision.action == "cancel" or _ends_run(found)
            return self._resumed(ev.RunCancelled) if ends else None
        if wants:
            return False
        if level == ASK:
            shown["approval"] = "granted"
            granted = ev.ToolApprovalGranted(
                approval_id=f"a{n + 1}", tool_call_id=call.id, tool_name=call.name, input_digest=decision.input_digest
            )
            self._both(granted)
            again = self.stack.propose(call)
            if LEVELS[again.action] >= ASK:
                self.refusing |= {v.rule: None for v in again.violations}
                return False
        judged = self.property.propose(call)
        self.session.append(shown)
        return self._judged(call, judged, level, step, other, shown)

    def _judged(
        self, call: ToolCall, judged: Any, level: int, step: SessionStep, other: str, shown: dict[str, Any]
    ) -> Violation | bool | None:
        broken: Violation | bool | None = next((v for v in judged.violations if self._breaks(v, level)), None)
        if LEVELS[judged.action] >= ASK and broken is None:  # it only asks where the stack asks, or a person agreed
            self.property.observe(
                ev.ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input)
            )
        if broken is not None or step.outcome == RUNNING:
            shown["outcome"] = "running"
            self.flying[step.slot] = (call.id, shown)
        else:
            broken = self._end(call.id, step, other, shown)
        return broken

    def _end(self, id: str, step: SessionStep, other: str, shown: dict[str, Any]) -> Violation | bool | None:
        """A call is over; what the property finds against that, where the stack finds nothing."""
        assert step.call is not None
        if step.outcome == FAILED:
            shown["outcome"] = "failed"
            return self._over(
                *self._both(ev.ToolCallFailed(tool_call_id=id, tool_name=step.call.name, error="failed"))
            )
        output = _filled(step.call.outputs[step.outcome], other or "other1")
        shown["outcome"] = "completed"
        if output != "done":
            shown["output"] = output
        return self._over(
            *self._both(ev.ToolCallCompleted(tool_call_id=id, tool_name=step.call.name, tool_output=output))
        )

    def _over(self, stack: list[Violation], property: list[Violation]) -> Violation | bool | None:
        """The result of an outcome; if the stack denies it, the run ends."""
        level = max((LEVELS[v.action] for v in stack), default=NOTHING)
        if level >= DENY:
            self.refusing |= {v.rule: None for v in stack}
            return self._resumed(ev.RunCancelled) if _ends_run(stack) else None
        return next((v for v in property if self._breaks(v, level)), None)

    def use(self, limit: LimitEntry, used: Sequence[tuple[str, float]]) -> Replayed:
        """Use so much in one run after another, until the property finds it or the stack ends it."""
        least = sum(amount for _, amount in used)
        runs = 1 if limit.limit.scope == "run" or not least else min(MOST_RUNS, int(limit.limit.max // least) + 1)
        for n in range(runs):
            run_id = f"run-{n + 1}"
            self._both(ev.RunStarted(run_id=run_id, at=_AT))
            for name, amount in used:
                event = usage_event(name, amount, run_id)
                found = self._weighed(*self._both(event))
                if isinstance(found, Violation):
                    shown = [{"limit": name, "used": amount, "runs": n + 1} for name, amount in used]
                    return Replayed(True, [nothing_called(*shown)], (), found)
                if found is False:
                    return Replayed(False, [], tuple(self.refusing))
            self._both(ev.RunCompleted(run_id=run_id, at=event.at))
        return Replayed(False, [], tuple(self.refusing))

    def _finish(self) -> Violation | bool | None:
        owed = [v for v in self.stack.finish().violations if LEVELS[v.action] >= ASK]
        if owed:
            self.refusing |= {v.rule: None for v in owed}
            return False
        least = NOTHING if self.strict else WARN
        return next((v for v in self.property.finish().violations if LEVELS[v.action] > least), None) or False


def _ends_run(violations: Iterable[Violation]) -> bool:
    """Whether violations by what has happened already end the run, where the adapter can refuse later calls."""
    return any(v.action == "cancel" or (v.action == "deny" and v.kind not in REFUSES_LATER) for v in violations)


def replay_amount(
    limit: LimitEntry, stack: Program, property: Program, context: RunContext, *, strict: bool
) -> Replayed:
    """A session that uses more than a limit allows, in as few runs as the stack lets it."""
    caps: dict[str, float] = {}
    for entry in stack.limits.entries:
        if entry.action == "cancel":
            caps[entry.name] = min(caps.get(entry.name, entry.limit.max), entry.limit.max)
    passed = [e.limit.max for e in stack.limits.entries if e.action == "deny" and e.limit.max < limit.limit.max]
    got = Replayed(False, [])
    for used in [*_ways_to_use(limit, caps), *([_first_past(limit, max(passed))] if passed else [])]:
        got = _Replay(stack, property, context, strict=strict).use(limit, used)
        if got.broken:
            break
    return got


def _ways_to_use(limit: LimitEntry, caps: Mapping[str, float]) -> Iterator[list[tuple[str, float]]]:
    """The ways one run can use up the limit's amount, each as a list of single amounts."""
    more = limit.limit.max + 1
    if limit.name not in (*_TOKENS, "max_total_tokens"):
        yield [(limit.name, min(more, caps.get(limit.name, more)))]
        return
    total = min(more, caps.get("max_total_tokens", more))
    figures = _TOKENS if limit.name == "max_total_tokens" else (limit.name,)
    single = {name: min(total, caps.get(name, total)) for name in figures}
    yield from ([use] for use in sorted(single.items(), key=lambda each: -each[1]))
    if len(single) > 1:
        first = single["max_input_tokens"]
        yield [("max_input_tokens", first), ("max_output_tokens", min(single["max_output_tokens"], total - first))]


def _first_past(limit: LimitEntry, denied: float) -> list[tuple[str, float]]:
    """Use in two parts: the first passes a limit that denies later calls, and no other; the second this one."""
    name = _TOKENS[0] if limit.name == "max_total_tokens" else limit.name
    first, last = min(denied + 1, limit.limit.max), limit.limit.max + 1
    return [(name, first), (name, last if name.endswith("_ms") else last - first)]


def nothing_called(*events: dict[str, Any]) -> dict[str, Any]:
    """The explanation for an answer where an event, and not a call, breaks the property."""
    return {"tool": "", "input": {}, "decision": "allow", "outcome": "", "before": list(events)}


MOST_RUNS = 1_000
_TOKENS = ("max_input_tokens", "max_output_tokens")
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def usage_event(limit: str, amount: float, run_id: str) -> ev.Event:
    """An event after which so much of a limit is used."""
    if limit in ("max_duration_ms", "max_idle_ms"):
        return ev.MessageReceived(run_id=run_id, at=_AT + timedelta(milliseconds=amount))
    if limit == "max_cost_usd":
        return ev.TokenUsageUpdated(run_id=run_id, at=_AT, cost_usd=amount)
    if limit == "max_output_tokens":
        return ev.TokenUsageUpdated(run_id=run_id, at=_AT, output_tokens=int(amount))
    return ev.TokenUsageUpdated(run_id=run_id, at=_AT, input_tokens=int(amount))
