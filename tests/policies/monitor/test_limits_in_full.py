"""Every limit, of a run and of a session, over two runs: usage, findings, warnings and deadlines at every step.

PROCTOR_TRANSCRIPTS=write pytest tests/policies/monitor/test_limits_in_full.py rewrites the transcript.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from reference.limits import ORDER

from proctor.policies import Event, Monitor, RunContext, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.limits import LIMITS

PATH = Path(__file__).with_name("limits_in_full.yaml")
MOST = {
    "max_total_tokens": 60,
    "max_input_tokens": 40,
    "max_output_tokens": 30,
    "max_cost_usd": 0.5,
    "max_duration_ms": 20_000,
    "max_idle_ms": 6_000,
    "max_tool_calls": 3,
    "max_turns": 3,
}
PRICES = {"m*": {"input_usd_per_mtok": 10_000, "output_usd_per_mtok": 20_000, "cache_read_usd_per_mtok": 1_000}}
ACTIONS = {"max_tool_calls": "deny"}
"""The effect of an inherited `deny`: one limit can deny further calls, the others cancel the run."""


def policy(name: str, **more: Any) -> dict[str, Any]:
    limits = {limit: {"max": most, **more} for limit, most in MOST.items()}
    return {"version": 1, "name": name, "on_violation": "deny", "limits": limits, "prices": PRICES}


STACKS = {
    "of a run": [policy("run", warn_at=0.5)],
    "of a session": [policy("session", scope="session", warn_at=0.75)],
    "only warned of": [policy("warned", action="warn")],
    "of both": [policy("run", scope="run"), policy("session", scope="session", action="cancel")],
}


def tokens(input: int, output: int, **more: Any) -> Event:
    return ev.TokenUsageUpdated(input_tokens=input, output_tokens=output, **more)


def events() -> Iterator[tuple[int, Event | str]]:
    """The events and their times. A text is a call that is proposed and, if allowed, runs to its end; ""
    is a tick.
    """
    for run, began in (("r1", 0), ("r2", 100_000)):
        yield began, ev.RunStarted(model="m1", run_id=run)
        yield began + 1_000, ev.TurnStarted(turn=1)
        yield began + 2_000, tokens(10, 5, cache_read_tokens=4, event_id=f"{run}.1")
        yield began + 2_000, tokens(10, 5, cache_read_tokens=4, event_id=f"{run}.1")
        yield began + 3_000, "read"
        yield began + 4_000, ev.TurnCompleted(turn=1)
        yield began + 8_000, tokens(25, 12, scope="cumulative", event_id=f"{run}.2")
        yield began + 9_000, tokens(30, 15, scope="cumulative", event_id=f"{run}.3", cost_usd=0.4)
        yield began + 9_500, tokens(1, 1, model="unknown")
        yield began + 10_000, "read"
        yield began + 10_000, "write"
        yield began + 11_000, ev.TurnStarted(turn=2)
        yield began + 12_000, tokens(20, 20)
        yield began + 13_000, "write"
        yield began + 18_500, ""
        yield began + 19_500, ""
        yield began + 19_600, ev.TurnStarted(turn=4)
        yield began + 20_001, ""
        yield began + 21_000, ev.RunCompleted(run_id=run)


class LimitsSession:
    """A monitor that observes these events. If `restored`, it is restored from its snapshot before each step."""

    def __init__(self, stack: list[dict[str, Any]], *, restored: bool) -> None:
        policies = [policy for document in stack for policy in parse_policies(document)]
        self.compiled = compile_policy(merge_policies(policies))
        self.monitor: Monitor = self.compiled.monitor(RunContext())
        self.restored = restored
        self.calls = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """What each step changed."""
        before: dict[str, Any] = {}
        for at_ms, event in events():
            if self.restored:
                self.monitor = self.compiled.restore(self.monitor.snapshot())
            found = self.step(at_ms, event)
            limits = self.monitor.limits()
            now = {f"{use.limit} of the {use.scope}": round(use.used, 6) for use in limits}
            line = {"at": at_ms, "what": event if isinstance(event, str) else event.type, "found": found}
            line["used"] = {name: used for name, used in now.items() if before.get(name) != used}
            line["exceeded"] = [f"{use.limit} of the {use.scope}" for use in limits if use.exceeded]
            line["warned"] = [f"{w.limit}: {w.used:g} of {w.max:g}, {w.fraction:g}" for w in self.monitor.warnings()]
            line["due"] = self.monitor.deadline()
            line["metadata"] = self.monitor.metadata if event == "" else None
            before = now
            yield {name: value for name, value in line.items() if value}

    def step(self, at_ms: int, event: Event | str) -> list[str]:
        """One event, call or tick; the findings."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        if isinstance(event, Event):
            return self.described(self.monitor.observe(msgspec.structs.replace(event, at=at)))
        if not event:
            return self.described(self.monitor.tick(at_ms))
        self.calls += 1
        call = ToolCall(id=f"c{self.calls}", name=event, turn=min(self.calls, 3))
        decision = self.monitor.propose(call)
        found = [decision.action, *self.described(decision.violations)]
        fields: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name, "at": at}
        if decision.action in ("allow", "warn"):
            found += self.described(self.monitor.observe(ev.ToolCallStarted(**fields, turn=call.turn)))
            found += self.described(self.monitor.observe(ev.ToolCallCompleted(**fields)))
        return found

    @staticmethod
    def described(violations: Any) -> list[str]:
        """One line for each."""
        return [f"{v.policy}/{v.rule} {v.action}: {v.message}; {v.details['expected']}" for v in violations]


@pytest.mark.parametrize("restored", [False, True], ids=["live", "restored"])
@pytest.mark.parametrize("name", STACKS)
def test_limits_are_counted_as_in_the_transcript(name: str, restored: bool) -> None:
    """Live, and restored from a snapshot before each step."""
    written = yaml.safe_load(PATH.read_text()) if PATH.exists() else {}
    lines = [*LimitsSession(STACKS[name], restored=restored).lines()]
    if os.environ.get("PROCTOR_TRANSCRIPTS") == "write":
        written[name] = lines
        PATH.write_text(yaml.safe_dump(written, sort_keys=False, default_flow_style=None, width=10_000))

    assert lines == written[name]


def test_every_limit_is_in_the_transcript_and_has_a_reference() -> None:
    """If not: its amount is missing here, or its naive reading in `reference.limits`."""
    assert set(MOST) == set(LIMITS)
    assert set(ORDER) == set(LIMITS)


def test_every_limit_has_its_descriptions() -> None:
    """Its unit, its name for people, its scope, its policy and its effect."""
    names = ("of a run", "only warned of", "of a session")
    uses = [
        msgspec.to_builtins(use)
        for name in names
        for use in LimitsSession(STACKS[name], restored=False).monitor.limits()
    ]

    units = ["tokens", "input tokens", "output tokens", "USD", "ms", "ms idle", "tool calls", "turns"]
    assert uses == [
        {
            "action": ACTIONS.get(limit, "cancel"),
            **whose,
            "limit": limit,
            "used": 0,
            "max": MOST[limit],
            "unit": unit,
            "title": {"USD": "cost", "ms": "time", "ms idle": "longest silence"}.get(unit, unit),
            "exceeded": False,
        }
        for whose in (
            {"scope": "run", "policy": "run", "warn_at": 0.5},
            {"scope": "run", "policy": "warned", "action": "warn", "warn_at": None},
            {"scope": "session", "policy": "session", "warn_at": 0.75},
        )
        for limit, unit in zip(MOST, units, strict=True)
    ]


def counted_tokens(*reports: Event, model: str = "") -> tuple[int, list[str]]:
    """The tokens of a run with these reports, and the models without a price."""
    session = LimitsSession(STACKS["of a run"], restored=False)
    session.monitor.observe(ev.RunStarted(model=model or None))
    for report in reports:
        session.monitor.observe(report)
    return session.monitor.usage.total_tokens, session.monitor.metadata.get("unpriced", [])


def test_a_total_that_falls_within_a_run_is_not_a_new_start() -> None:
    """Only the first total of a run may start at zero."""
    totals = [tokens(n, 0, scope="cumulative", event_id=f"u{n}") for n in (10, 9, 12)]

    assert counted_tokens(*totals, model="m1") == (12, [])


@pytest.mark.parametrize(("model", "named"), [("", "unknown"), ("x1", "x1")])
def test_a_model_without_a_price_is_reported_once(model: str, named: str) -> None:
    """A report without a model is unknown. Without tokens, no price is missing."""
    assert counted_tokens(tokens(1, 1), tokens(2, 1), model=model) == (5, [named])
    assert counted_tokens(tokens(0, 0), model=model) == (0, [])


def test_a_report_of_an_unknown_scope_is_an_error() -> None:
    with pytest.raises(EventError, match="neither `delta` nor `cumulative`"):
        counted_tokens(tokens(1, 1, scope="total"))
