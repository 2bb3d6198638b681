"""Limits against a reference that recomputes every sum (tests/reference/limits.py)."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal

from reference.limits import CLOCKS, ORDER, Limited
from reference.moments import Moment, runs
from reference.stacks import strictest
from reference.tokens import PRICES

from proctor.policies import Event, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
USUAL = 500
"""Sessions in a long run, and by default."""
HELD_TOOL = {"type": "blocklist", "tools": ["held"], "action": "request_approval"}


def drawn(random: Random) -> dict[str, Any]:
    """Some limits, small enough to be reached."""
    limits = {}
    for name in random.sample(ORDER, random.randint(1, 4)):
        most = 14 if name in CLOCKS else 3 if name in ("max_tool_calls", "max_turns") else 6
        limit: dict[str, Any] = {"max": random.randint(0, most)}
        limit["action"] = random.choice(["warn", "request_approval", "deny", "cancel"])
        if name == "max_cost_usd":
            limit["max"] += 0.5
        if random.random() < 0.4:
            limit["scope"] = "session"
        if random.random() < 0.4:
            limit["warn_at"] = random.choice([0.25, 0.5, 1.0])
        limits[name] = limit
    return limits


class Sessions:
    """One generated session at a time, on a monitor and on the reference; both are compared after every step."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cumulative = random.random() < 0.5
        self.states_cost = random.random() < 0.5
        reject = random.random() < 0.2
        limits = drawn(random)
        self.naive = Limited(limits, cumulative=self.cumulative, reject=reject)
        document = {"version": 1, "name": "p", "limits": limits, "rules": [HELD_TOOL], "prices": PRICES}
        unpriced = {"unpriced": "reject"} if reject else {}
        self.policy = compile_policy(merge_policies(parse_policies({**document, **unpriced})))
        self.monitor = self.policy.monitor()
        self.restores = random.random() < 0.3
        self.model = random.choice(["priced", "no-such-model"])
        self.past: list[Moment] = []
        self.now = self.turn = self.run = 0
        self.totals: list[int] = [0, 0, 0]
        self.waiting: dict[str, str] = {}
        self.shown: dict[str, set[str]] = {}
        self.counts: Counter[str] = Counter()

    def play(self) -> None:
        """Up to 16 steps."""
        self.begin()
        for _ in range(self.random.randint(1, 15)):
            self.now += self.random.choice([0, 0, 1, 2, 5])
            steps = [self.tokens, self.ask, self.end, self.tick, self.reach, self.over]
            self.random.choices(steps, [6, 8, 4, 3, 1, 1])[0]()
            if self.past[-1].what == "over":
                self.begin()

    def happened(self, event: Event | None, moment: Moment, found: Any = None) -> None:
        """One event or tick, on both."""
        moment = moment._replace(at=self.now)
        event = event and type(event)(**{**_fields(event), "at": _time(self.now)})
        found = self.monitor.observe(event) if event else self.monitor.tick(self.now)
        reported = self.naive.reports([*self.past, moment])

        assert sorted(violation.rule for violation in found) == sorted(reported), moment

        warned = self.naive.warnings([*self.past, moment])

        assert sorted(warning.limit for warning in self.monitor.warnings()) == sorted(warned), moment

        self.counts.update(reported)
        self.past.append(moment._replace(reported=tuple(reported), warned=tuple(warned)))
        if self.restores:
            self.monitor = self.policy.restore(self.monitor.snapshot())
        if moment.what != "over":
            self.deadline()

    def deadline(self) -> None:
        """The monitor's deadline is the first time at which a limit is exceeded."""
        due = self.monitor.deadline()
        if due is None:
            assert not self.naive.rings(self.past, self.now + 1_000)
        else:
            assert self.naive.rings(self.past, max(due, self.now))
            assert due <= self.now or not self.naive.rings(self.past, due - 1)

    def begin(self) -> None:
        self.run += 1
        self.waiting.clear()
        self.shown.clear()
        self.turn = 0
        if self.cumulative and self.random.random() < 0.5:
            self.totals = [0, 0, 0]
        self.happened(ev.RunStarted(run_id=f"r{self.run}"), Moment("run"))

    def over(self) -> None:
        if self.random.random() < 0.5:
            self.begin()
        else:
            self.happened(ev.RunCompleted(), Moment("over"))

    def tick(self) -> None:
        self.happened(None, Moment("tick"))

    def reach(self) -> None:
        self.turn += 1
        self.happened(ev.TurnStarted(turn=self.turn), Moment("turn", turn=self.turn))

    def tokens(self) -> None:
        amounts = [self.random.choice([0, 0, 1, 2, 3]) for _ in range(3)]
        self.totals = [a + (b if self.cumulative else 0) for a, b in zip(amounts, self.totals, strict=True)]
        lower = self.cumulative and self.random.random() < 0.1
        input, output, quarters = (max(0, figure - lower) for figure in self.totals)
        cost = quarters / 4 if self.states_cost else None
        model = self.model if self.cumulative else self.random.choice(["priced", "no-such-model"])
        id = self.random.choice(["", "", "e", "f"])
        scope: Literal["delta", "cumulative"] = "cumulative" if self.cumulative else "delta"
        event = ev.TokenUsageUpdated(
            scope=scope, input_tokens=input, output_tokens=output, cost_usd=cost, model=model, event_id=id
        )
        self.happened(event, Moment("tokens", id=id, input=input, output=output, cost=cost, model=model))

    def ask(self) -> None:
        self.tick()
        self.turn += self.turn == 0 or self.random.random() < 0.3
        id, tool = f"c{len(self.past)}", self.random.choice(["x", "x", "held"])
        self.proposed(id, tool, approved=False)

    def proposed(self, id: str, tool: str, *, approved: bool) -> None:
        decision = self.monitor.propose(ToolCall(id=id, name=tool, turn=self.turn))
        expected = self.naive.refusals(self.past, self.turn)
        reported = {name for moment in runs(self.past)[-1] for name in moment.reported}
        new = [name for name, _ in expected if name not in reported]
        if tool == "held":
            expected.append(("blocklist-1", "request_approval"))
        shown = self.shown.setdefault(id, set()) if approved else set()
        expected = [(name, action) for name, action in expected if action != "request_approval" or name not in shown]
        self.shown[id] = shown | {name for name, action in expected if action == "request_approval"}

        assert sorted((v.rule, v.action) for v in decision.violations) == sorted(expected)
        assert decision.action == strictest([action for _, action in expected])

        self.counts.update([decision.action, *new])
        common: dict[str, Any] = {"tool_call_id": id, "tool_name": tool}
        self.past.append(Moment("asked", self.past[-1].at, turn=self.turn, reported=tuple(new)))
        if decision.action == "request_approval":
            self.waiting[id] = tool
            self.happened(ev.ToolApprovalRequested(approval_id=f"a-{id}", **common), Moment("held", id=id))
        elif decision.action in ("deny", "cancel"):
            what: Literal["ended", "asked"] = "ended" if approved else "asked"
            self.happened(ev.ToolCallDenied(**common, decision="deny"), Moment(what, id=id))
        else:
            self.waiting[id] = ""
            started = Moment("started", id=id, turn=self.turn)
            self.happened(ev.ToolCallStarted(**common, turn=self.turn), started)

    def end(self) -> None:
        """A pending call ends, or is approved."""
        if not self.waiting:
            return self.tick()
        id = self.random.choice(list(self.waiting))
        tool = self.waiting.pop(id)
        common: dict[str, Any] = {"tool_call_id": id, "tool_name": tool}
        if not tool:
            self.happened(ev.ToolCallCompleted(**common, tool_output=1), Moment("ended", id=id))
        elif self.random.random() < 0.3:
            self.happened(ev.ToolCallDenied(**common, decision="deny"), Moment("ended", id=id))
        else:
            granted = ev.ToolApprovalGranted(approval_id=f"a-{id}", input_digest=input_digest({}), **common)
            self.happened(granted, Moment("asked"))
            self.proposed(id, tool, approved=True)


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _time(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_limits_are_evaluated_as_specified() -> None:
    """Findings, warnings, actions and deadlines agree at every step, live and restored."""
    counts: Counter[str] = Counter()
    for seed in range(LONG or USUAL):
        sessions = Sessions(Random(seed))
        sessions.play()
        counts.update(sessions.counts)

    assert {*ORDER, "allow", "deny", "cancel", "request_approval"} <= set(counts), counts
