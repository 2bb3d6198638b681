"""Sessions on the monitors of the policies themselves: one that a search found is replayed; short ones are tried one
by one, for rules that the search cannot follow.

Trying proves nothing. Calls share one value at every path that a rule compares with another, and differ from that in
one input at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from .. import events as ev
from ..errors import Violation
from ..events.calls import Decision, ToolCall
from ..language.conditions import is_argument, is_output, output_ref
from ..limits import LIMITS
from ..monitor.monitor import Monitor
from ..monitor.program import Program
from ..monitor.state import MonitorState
from ..monitor.violations import DENIES_LATER
from ..rules.machine import Machine
from ..rules.per_key import without_key
from ..stack.merge import LimitEntry
from ..values.globs import matcher
from ..values.work_budget import OutOfWork
from .call_classes import NameUniverse
from .components import ANY_OTHER, ASK, ASKING, DENY, LEVELS, NOTHING, InputClass, filled, overlaps
from .session_search import DENIED, FAILED, RUNNING, SessionStep
from .values import MISSING, Atom, atoms_of, candidates, documents, samples, text_capturing

if TYPE_CHECKING:
    from .played_rule import PlayedRule, Setting

MOST_TRIES = 64
"""How many ways are tried to choose the values that a search left open."""


Ended: TypeAlias = Violation | Literal[False] | None
"""What the property has found, or False where the stack does not allow a session; None: it goes on."""


class Replayed(NamedTuple):
    """The outcome of a session on the monitors.

    `session` are its calls, as an answer shows them, `events` what happened. `denying` are the rules of the stack,
    and limits by name, that denied a call or asked about it; `found` the violation of the property that it ends in.
    """

    session: list[dict[str, Any]]
    events: list[ev.Event]
    denying: tuple[str, ...] = ()
    found: Violation | None = None

    @property
    def broken(self) -> bool:
        """Whether the property is broken."""
        return self.found is not None


def replay(steps: Sequence[SessionStep], setting: Setting, stack: Program | None = None) -> Replayed:
    """Replay a session, in as many ways as it takes to get through; the last one if none does. `stack` is a part of
    the setting's, to be played in its place.
    """
    best = None
    for values in _choices(steps):
        got = _Replay(setting, stack).run(steps, values)
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


class _Replay:
    def __init__(self, setting: Setting, stack: Program | None = None) -> None:
        programs, context = (stack or setting.stack.program, setting.property), setting.context
        self.stack, self.property = (Monitor(MonitorState(each.for_context(context), context)) for each in programs)
        self.standard = setting.standard
        self.session: list[dict[str, Any]] = []
        self.events: list[ev.Event] = []
        self.denying: dict[str, None] = {}
        self.before: list[dict[str, Any]] = []
        self.turn = self.shown_turn = self.run_number = 1
        self.shows_turns = False
        self.running: tuple[str, dict[str, Any]] | None = None

    def run(self, steps: Sequence[SessionStep], values: list[str]) -> Replayed:
        left = iter(values)
        self.shows_turns = any(step.kind in ("turn", "run") for step in steps)
        self._both(ev.RunStarted(run_id="run-1", at=BEGUN))
        if self.shows_turns:
            self._both(ev.TurnStarted(turn=1))
        for n, step in enumerate(steps):
            other = next(left) if _is_open(step) else ""
            found = self._step(n, step, other)
            if found is None:
                continue
            if found and self.before:
                self.session.append(nothing_called(*self.before) | {"turn": self.turn, "run": self.run_number})
            return self._replayed(found or None)
        return self._replayed()

    def _replayed(self, found: Violation | None = None) -> Replayed:
        return Replayed(self.session, self.events, tuple(self.denying), found)

    def _both(self, event: ev.Event) -> tuple[list[Violation], list[Violation]]:
        self.events.append(event)
        return self.stack.observe(event), self.property.observe(event)

    def _step(self, n: int, step: SessionStep, other: str) -> Ended:
        """Let the next event happen."""
        if step.kind == "call":
            return self._call(n, step, other)
        if step.kind == "end":
            if self.running is None:
                return False  # a cancelled run has taken it along
            (id, shown), self.running = self.running, None
            shown["ended_before_call"] = len(self.session) + 1
            return self._end(id, step, other, shown)
        if step.kind == "finish":
            return self._finish()
        return self._event(step, other)

    def _event(self, step: SessionStep, other: str) -> Ended:
        if step.kind == "user":
            text = filled(step.text, other)
            self.before.append({"user_message": text})
            self._both(ev.MessageSent(content=text))
            return None
        if step.kind == "run":
            return self._resumed(ev.RunCompleted)
        if step.budget is not None:
            id, key, most = step.budget.id, step.budget.budget.key, step.budget.budget.max
            self.before.append({"budget": f"{id} of {key}" if key else id})
            used_up = ev.BudgetReserved(
                budget=id, key=key or "", granted=False, asked_for="call", used=most, max=most
            )
            self.events.append(used_up)
            return self._consequence([], self.property.observe(used_up))
        self.turn += 1
        found = self._consequence(*self._both(ev.TurnStarted(turn=self.turn)))
        if found:
            self.before.append({"turn": self.turn})
        return found

    def _resumed(self, ended: type[ev.Event]) -> Ended:
        """The run ends in this way, and the session continues in another."""
        self._both(ended(run_id=f"run-{self.run_number}"))
        if self.turn > self.shown_turn:
            self.before.append({"turn": self.turn, "run": self.run_number})
        self.run_number += 1
        self.turn = self.shown_turn = 1
        self.running = None
        found = self._consequence(*self._both(ev.RunStarted(run_id=f"run-{self.run_number}", at=BEGUN)))
        if found is None:
            found = self._consequence(*self._both(ev.TurnStarted(turn=self.turn)))
        if found:
            self.before.append({"turn": self.turn, "run": self.run_number})
        return found

    def _consequence(self, stack: list[Violation], property: list[Violation], *, resumes: bool = False) -> Ended:
        """What the violations of both mean. After a run that the stack ends, another follows only if `resumes`."""
        level = max((LEVELS[v.action] for v in stack), default=NOTHING)
        if level < DENY:
            return self._first_breach(property, level)
        self.denying |= {v.rule: None for v in stack}
        if not _ends_run(stack):
            return None
        return self._resumed(ev.RunCancelled) if resumes else False

    def _first_breach(self, property: Iterable[Violation], level: int, *, of_call: bool = False) -> Violation | None:
        """The first violation that breaks the property, where the stack's answer is `level`."""
        return next((v for v in property if self.standard.breaks(LEVELS[v.action], level, of_call=of_call)), None)

    def _call(self, n: int, step: SessionStep, other: str) -> Ended:
        assert step.call is not None
        input = filled(step.call.input, other or "other1")
        if step.call.fresh:
            input = {**input, "attempt": n + 1}
        turn = self.turn if self.shows_turns else 0
        call = ToolCall(id=f"c{len(self.session) + 1}", name=step.call.name, input=input, turn=turn)
        self.events.append(_event_of(ev.ToolCallRequested, call))
        decision = self.stack.propose(call)
        level = LEVELS[decision.action]
        self.denying |= {v.rule: None for v in decision.violations if LEVELS[v.action] >= ASK}
        shown = self._shown(call, decision)
        declines = step.outcome == DENIED
        if level >= DENY or (declines and level == ASK):
            self.session.append(shown | {"outcome": "denied"} | ({"approval": "declined"} if level == ASK else {}))
            return self._denied(call, decision) if declines else False
        if declines:
            return False
        if level == ASK:
            shown["approval"] = "granted"
            if not self._is_granted(call, decision):
                return False
        return self._allowed(call, level, step, other, shown)

    def _shown(self, call: ToolCall, decision: Decision) -> dict[str, Any]:
        """A call as an answer shows it, with what has happened since the one before."""
        shown: dict[str, Any] = {"tool": call.name, "input": call.input, "decision": decision.action}
        if self.shows_turns or self.run_number > 1:
            shown |= {"turn": self.turn, "run": self.run_number}
            self.shown_turn = self.turn
        if self.before:
            shown["before"], self.before = self.before, []
        return shown

    def _denied(self, call: ToolCall, decision: Decision) -> Ended:
        """The call does not run, as the search wanted it."""
        self.property.observe(_event_of(ev.ToolCallRequested, call))
        found, _ = self._both(ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name))
        ends = decision.action == "cancel" or _ends_run(found)
        return self._resumed(ev.RunCancelled) if ends else None

    def _is_granted(self, call: ToolCall, decision: Decision) -> bool:
        """Approve a call; whether the stack then allows it."""
        granted = ev.ToolApprovalGranted(
            approval_id=f"a{call.id}", tool_call_id=call.id, tool_name=call.name, input_digest=decision.input_digest
        )
        self.events.append(granted)
        self.stack.observe(granted)
        if not self.standard.widened:
            self.property.observe(granted)
        again = self.stack.propose(call)
        if LEVELS[again.action] < ASK:
            return True
        self.denying |= {v.rule: None for v in again.violations}
        return False

    def _allowed(self, call: ToolCall, level: int, step: SessionStep, other: str, shown: dict[str, Any]) -> Ended:
        """The stack has allowed the call; what the property finds against that, and against its end."""
        there = self.property.propose(call)
        started = _event_of(ev.ToolCallStarted, call)
        self.session.append(shown)
        self.events.append(started)
        broken = self._first_breach(there.violations, level, of_call=True)
        if LEVELS[there.action] >= ASK and broken is None:  # it only asks where the stack asks, or a person agreed
            self.property.observe(started)
        if broken is None and step.outcome != RUNNING:
            return self._end(call.id, step, other, shown)
        shown["outcome"] = "running"
        self.running = call.id, shown
        return broken

    def _end(self, id: str, step: SessionStep, other: str, shown: dict[str, Any]) -> Ended:
        """A call is over; what the property finds against that, where the stack finds nothing."""
        assert step.call is not None
        if step.outcome == FAILED:
            shown["outcome"] = "failed"
            over: ev.Event = ev.ToolCallFailed(tool_call_id=id, tool_name=step.call.name, error="failed")
        else:
            output = filled(step.call.outputs[step.outcome], other or "other1")
            shown["outcome"] = "completed"
            if output != "done":
                shown["output"] = output
            over = ev.ToolCallCompleted(tool_call_id=id, tool_name=step.call.name, tool_output=output)
        return self._consequence(*self._both(over), resumes=True)

    def use(self, limit: LimitEntry, used: Sequence[tuple[str, float]]) -> Replayed:
        """Use so much in one run after another, until the property finds it or the stack ends it."""
        least = used[-1][1] if used[-1][0].endswith("_ms") else sum(amount for _, amount in used)
        runs = 1 if limit.limit.scope == "run" or not least else min(MOST_RUNS, int(limit.limit.max // least) + 1)
        for n in range(runs):
            run_id = f"run-{n + 1}"
            self._both(ev.RunStarted(run_id=run_id, at=BEGUN))
            for name, amount in used:
                event = _usage_event(name, amount, run_id)
                found = self._consequence(*self._both(event))
                if isinstance(found, Violation):
                    shown = [{"limit": name, "used": amount, "runs": n + 1} for name, amount in used]
                    self.session.append(nothing_called(*shown))
                    return self._replayed(found)
                if found is False:
                    return self._replayed()
            self._both(ev.RunCompleted(run_id=run_id, at=event.at))
        return self._replayed()

    def _finish(self) -> Ended:
        owed = [v for v in self.stack.finish().violations if LEVELS[v.action] >= ASK]
        if owed:
            self.denying |= {v.rule: None for v in owed}
            return False
        owed_there = (v for v in self.property.finish().violations if self.standard.breaks_at_end(LEVELS[v.action]))
        return next(owed_there, None) or False


def _event_of(kind: type[ev.ToolCallRequested | ev.ToolCallStarted], call: ToolCall) -> ev.Event:
    """The event that a call is requested, or started."""
    return kind(tool_call_id=call.id, tool_name=call.name, tool_input=call.input, turn=call.turn)


def _ends_run(violations: Iterable[Violation]) -> bool:
    """Whether violations by what has happened already end the run, where the adapter can deny later calls."""
    return any(v.action == "cancel" or (v.action == "deny" and v.kind not in DENIES_LATER) for v in violations)


def replay_amount(limit: LimitEntry, setting: Setting) -> Replayed:
    """A session that uses more than a limit allows, in as few runs as the stack allows."""
    caps: dict[str, float] = {}
    entries = setting.stack.limits
    for entry in entries:
        if entry.action == "cancel":
            caps[entry.name] = min(caps.get(entry.name, entry.limit.max), entry.limit.max)
    idle = min((e.limit.max for e in entries if e.name == "max_idle_ms"), default=0)
    passed = [e.limit.max for e in entries if e.action == "deny" and e.limit.max < limit.limit.max]
    got = Replayed([], [])
    for used in [*_ways_to_use(limit, caps, idle), *([_first_past(limit, max(passed))] if passed else [])]:
        got = _Replay(setting).use(limit, used)
        if got.broken:
            break
    return got


def _ways_to_use(limit: LimitEntry, caps: Mapping[str, float], idle: float) -> Iterator[list[tuple[str, float]]]:
    """The ways one run can use up the limit's amount, as single amounts; `idle`: the longest pause, if limited."""
    more = limit.limit.max + 1
    if limit.name == "max_duration_ms" and 0 < idle < more <= idle * MOST_PAUSES:
        last = min(more, caps.get(limit.name, more))
        yield [
            (limit.name, at) for at in (*itertools.takewhile(lambda at: at < last, itertools.count(idle, idle)), last)
        ]
        return
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
MOST_PAUSES = 1_000
_TOKENS = ("max_input_tokens", "max_output_tokens")
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
"""When each run of a session begins, where time matters."""


def _usage_event(limit: str, amount: float, run_id: str) -> ev.Event:
    """An event after which so much of a limit is used."""
    kind = LIMITS[limit]
    if kind.clock:
        return ev.MessageReceived(run_id=run_id, at=BEGUN + timedelta(milliseconds=amount))
    figure = "input_tokens" if kind.counts == "total_tokens" else kind.counts
    used: dict[str, Any] = {figure: amount if kind.is_money else int(amount)}
    return ev.TokenUsageUpdated(run_id=run_id, at=BEGUN, **used)


SHARED, ANOTHER = "id1", "id2"
"""What all calls may carry where a rule compares them, and what is not that."""
MOST_CALLS = 3
MOST_SESSIONS = 4_000
MOST_VALUES = 4
"""How many values of one path are tried."""
MOST_OUTPUTS = 4


class ShortSessions:
    """The sessions of a few calls that some rules name."""

    def __init__(self, played: Sequence[PlayedRule], setting: Setting) -> None:
        self._played, self._setting = played, setting
        self._finds_at_end = any(_has_finding_at_end(rule.machine) for rule in setting.property.rules)

    def broken(self, deepest: int | None) -> Replayed | None:
        """A session that the stack allows and the property does not keep; None if none was found."""
        try:
            return self._shortest(MOST_CALLS if deepest is None else min(deepest, MOST_CALLS))
        except OutOfWork:
            return None

    def _shortest(self, most: int) -> Replayed | None:
        left = MOST_SESSIONS
        calls = [*self._calls()]
        layer = [[*opening] for opening in self._openings()]
        for _ in range(most):
            following = []
            for steps, call in itertools.product(layer, calls):
                tried = [*steps, call]
                got = self._replayed(tried)
                if got.broken:
                    return got
                left -= 1
                if left <= 0:
                    return None
                if _is_through(got, tried):
                    following.append(tried)
            layer = following
        return None

    def _replayed(self, steps: list[SessionStep]) -> Replayed:
        """The session continued, or ended here if only its end breaks the property."""
        self._setting.work.spend(ASKING * len(steps))
        got = replay(steps, self._setting)
        if got.broken or not self._finds_at_end or not _is_through(got, steps):
            return got
        ended = replay([*steps, SessionStep("finish")], self._setting)
        return ended if ended.broken else got

    def _openings(self) -> Iterator[list[SessionStep]]:
        """What a user may have written before."""
        yield []
        phrases = list(dict.fromkeys(p for each in self._played for p in each.rule.machine.phrases))
        if phrases or any(each.rule.machine.from_user for each in self._played):
            texts = [next(iter(samples(phrase)), "") for phrase in phrases]
            yield [SessionStep("user", text=" ".join([*texts, f"please use {SHARED}"]))]

    def _calls(self) -> Iterator[SessionStep]:
        """Every call that is tried, with each of its outcomes."""
        numbers = itertools.count()
        unreturned = (FAILED, RUNNING) if any(overlaps(each.rule.machine) for each in self._played) else (FAILED,)
        for name in self._names():
            outputs = tuple(self._outputs(name))
            for input in self._inputs(name):
                call = InputClass(next(numbers), name, input, outputs)
                yield from (SessionStep("call", call, outcome=n) for n in (*range(len(outputs)), *unreturned))

    def _names(self) -> list[str]:
        if (given := self._setting.given) is not None:
            return [each if isinstance(each, str) else each.name for each in given]
        patterns = [p for each in self._played for p in each.clause.names]
        patterns += [tool for each in self._played for reference in _references(each) for tool in reference.tools]
        universe = NameUniverse(patterns, self._setting.work)
        return universe.written

    def _naming(self, name: str) -> Iterator[PlayedRule]:
        for each in self._played:
            if matcher(each.clause.names)(name):
                yield each

    def _inputs(self, name: str) -> list[dict[str, Any]]:
        """Inputs of a tool that meet and miss the conditions on it, with the shared value where rules compare."""
        atoms: dict[str, list[Atom]] = {}
        shared: dict[str, None] = {}
        for each in self._naming(name):
            for where in each.clause.wheres:
                if not matcher(each.clause.patterns(where.tool))(name):
                    continue
                for path, atom in atoms_of(where.where):
                    if is_argument(atom[1]):
                        shared |= {path: None, atom[1]["arg"]: None}
                    elif is_output(atom[1]):
                        shared[path] = None
                    else:
                        atoms.setdefault(path, []).append(atom)
            shared |= dict.fromkeys(_compared(each))
        choices = {path: candidates(found)[:MOST_VALUES] for path, found in atoms.items()}
        choices |= {path: [SHARED, *choices.get(path, ()), ANOTHER, MISSING] for path in shared}
        return [each for each in _one_by_one(choices) if isinstance(each, dict)]

    def _outputs(self, name: str) -> list[Any]:
        """What a tool may return: the shared value, and what meets a requirement."""
        choices: dict[str, list[Any]] = {}
        texts: list[str] = []
        for each in self._played:
            scope = each.clause.scope
            for evidence in each.evidence:
                if not matcher(scope.patterns(evidence.tool))(name):
                    continue
                for path, atom in atoms_of(evidence.output):
                    refers = is_argument(atom[1]) or is_output(atom[1])
                    choices[path] = [SHARED, ANOTHER] if refers else candidates([atom])[:2]
                choices |= {path: [SHARED, ANOTHER] for path in evidence.paths}
                texts += filter(None, (text_capturing(pattern, SHARED) for pattern in evidence.patterns))
            for reference in _references(each):
                if matcher(reference.tools)(name):
                    choices[reference.path] = [SHARED, ANOTHER]
        made = [each for each in _one_by_one(choices) if each != {}] if choices else []
        return ["done", *made[:MOST_OUTPUTS], *texts[:MOST_OUTPUTS]]


def _is_through(got: Replayed, steps: list[SessionStep]) -> bool:
    calls = sum(1 for step in steps if step.kind == "call")
    return len(got.session) == calls and got.session[-1]["outcome"] != "denied"


def _has_finding_at_end(machine: Machine) -> bool:
    return type(without_key(machine)).finding_at_end is not Machine.finding_at_end


def _compared(rule: PlayedRule) -> Iterator[str]:
    """The paths of inputs whose values it compares with those of other calls."""
    yield from rule.bound_paths
    yield from (path for _, path in rule.clause.record.inputs())
    yield from (operand["arg"] for _, (_, operand) in atoms_of(rule.conditions) if is_argument(operand))


def _references(rule: PlayedRule) -> Iterator[Any]:
    for _, (_, operand) in atoms_of(rule.conditions):
        if is_output(operand):
            yield output_ref(operand, rule.clause.scope.expand)


def _one_by_one(choices: dict[str, list[Any]]) -> Iterator[Any]:
    """A document with the first value of each path; then with others of one path; then an empty one."""
    first = {path: values[:1] for path, values in choices.items()}
    made: list[Any] = documents(first, 1)[0]
    for path, values in choices.items():
        made += documents({**first, path: values[1:]}, len(values))[0] if values[1:] else []
    found: dict[str, Any] = {str(each): each for each in [*made, {}]}
    yield from found.values()
