"""Limits: what counts, when they are exceeded, and what follows (docs: Policies, Limits)."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.policies import decode_event, encode_event
from proctor.policies import events as ev

START = datetime(2026, 11, 20, 10, tzinfo=UTC)


def usage(scope: str = "delta", **counts: Any) -> ev.TokenUsageUpdated:
    return ev.TokenUsageUpdated(scope=scope, **counts)  # type: ignore[arg-type]


SPENDING = ["max_total_tokens", "max_cost_usd", "max_turns", "max_duration_ms", "max_idle_ms"]


def exceed(session: Any, limit: str) -> str:
    """Exceed a limit of 0, then propose a call."""
    session.monitor.tick(1_000)
    session.see(ev.RunStarted(run_id="r", at=START))
    session.see(usage(input_tokens=1, cost_usd=1.0))
    session.see(ev.MessageReceived(at=START + timedelta(seconds=1)))
    return str(session.ask("a"))


@pytest.mark.parametrize("limit", SPENDING)
def test_a_limit_that_only_inherits_deny_cancels_the_run(drive: Any, limit: str) -> None:
    """Denied calls still cost money, so a `deny` inherited from the policy or the stack cancels."""
    own = drive({"limits": {limit: 0}, "on_violation": "deny"})
    stack = drive({"limits": {limit: 0}, "on_violation": "warn"}, {"name": "q", "on_violation": "deny"})

    assert [exceed(own, limit), exceed(stack, limit)] == ["cancel", "cancel"]
    assert {v.action for v in own.found} == {"cancel"}


def test_a_recorded_warning_is_not_repeated_when_the_log_is_replayed(drive: Any) -> None:
    """Replaying the stored events gives the state that was live."""
    session = drive({"limits": {"max_total_tokens": {"max": 100, "warn_at": 0.5}}})
    session.see(usage(input_tokens=60))
    session.see(ev.BudgetWarned(limit="max_total_tokens", used=60, max=100, fraction=0.6))

    assert session.monitor.warnings() == []


def test_the_users_table_prices_tokens_with_cached_and_reasoning_rates(drive: Any) -> None:
    """Cached and reasoning tokens are part of input and output, and have their own rates."""
    price = {
        "input_usd_per_mtok": 10,
        "output_usd_per_mtok": 20,
        "cache_read_usd_per_mtok": 1,
        "reasoning_usd_per_mtok": 40,
    }
    session = drive({"prices": {"mine": price}, "limits": {"max_cost_usd": 100}})
    session.see(
        usage(
            model="mine",
            input_tokens=1_000_000,
            cache_read_tokens=500_000,
            output_tokens=1_000_000,
            reasoning_tokens=250_000,
        )
    )

    assert session.monitor.usage.cost_usd == pytest.approx(5 + 0.5 + 15 + 10)
    assert session.monitor.metadata == {"prices": ["policy:mine"]}


def test_a_public_price_is_used_if_the_table_has_none(drive: Any) -> None:
    """It comes from genai-prices, and the matched price is recorded."""
    pytest.importorskip("genai_prices", reason="pip install '.[prices]'")
    session = drive({"limits": {"max_cost_usd": 1}})
    session.see(usage(model="claude-sonnet-4-5", input_tokens=100_000))

    assert session.monitor.usage.cost_usd > 0
    assert session.monitor.metadata == {"prices": ["genai-prices:anthropic/claude-sonnet-4-5"]}


def test_no_deadline_is_due_between_runs(drive: Any) -> None:
    """Events after a run's end start no clock."""
    session = drive({"limits": {"max_duration_ms": 5_000, "max_idle_ms": 2_000}})
    session.see(ev.RunStarted(run_id="r", at=START))
    due = session.monitor.deadline()
    session.see(ev.RunCompleted(run_id="r", at=START))
    over = session.monitor.deadline()
    session.see(ev.MessageReceived(content="late", at=START + timedelta(seconds=9)))

    assert (due, over, session.monitor.deadline()) == (ev.at_ms(START) + 2_001, None, None)


def test_a_run_of_a_session_without_earlier_times_has_its_whole_duration(drive: Any) -> None:
    """The earlier events had no time, or came after the end."""
    session = drive({"limits": {"max_duration_ms": {"max": 5_000, "scope": "session"}}})
    session.see(ev.RunCompleted(run_id="a"))
    session.see(ev.MessageReceived(content="late", at=START))
    session.see(ev.RunStarted(run_id="b", at=START + timedelta(seconds=60)))

    assert session.monitor.deadline() == ev.at_ms(START) + 65_001


def test_an_unknown_price_skips_the_limit_with_a_warning_or_denies(drive: Any) -> None:
    """`unpriced: warn` is the default. Without usage, no price is missing."""
    session = drive({"limits": {"max_cost_usd": 0.01}})
    assert session.see(usage(model="nobody-knows", input_tokens=10**9)) == []
    assert session.monitor.metadata["unpriced"] == ["nobody-knows"]

    session = drive({"limits": {"max_cost_usd": 1}, "unpriced": "reject"})
    assert session.see(usage(model="nobody-knows")) == []
    assert [v.kind for v in session.see(usage(model="nobody-knows", input_tokens=1))] == ["max_cost_usd"]


BESIDE = [
    *((limit, kind) for limit in ("max_total_tokens", "max_input_tokens") for kind in ("cache_read", "cache_write")),
    ("max_output_tokens", "reasoning"),
]


@pytest.mark.parametrize(("limit", "kind"), BESIDE)
@pytest.mark.parametrize("scope", ["delta", "cumulative"])
def test_tokens_reported_beside_their_total_are_added(drive: Any, limit: str, scope: str, kind: str) -> None:
    """Cached input and reasoning, in an event created in Python and in one decoded from the log."""
    part = "output_tokens" if kind == "reasoning" else "input_tokens"
    counts: dict[str, Any] = {"scope": scope, part: 10, f"{kind}_tokens": 500_000}
    for event in (usage(**counts), decode_event(json.dumps({"type": "token_usage_updated", **counts}))):
        (found,) = drive({"limits": {limit: 1000}}).see(event)

        assert (found.kind, found.details["used"]) == (limit, 500_010)


@pytest.mark.parametrize("scope", ["delta", "cumulative"])
def test_cached_tokens_within_the_input_count_once(drive: Any, scope: str) -> None:
    """Adapters convert to this shape, and it survives encoding and decoding."""
    report = usage(scope=scope, input_tokens=900, cache_read_tokens=600, cache_write_tokens=300)
    session = drive({"limits": {"max_total_tokens": 900}})

    assert session.see(report) == []
    assert decode_event(encode_event(report)) == report
    beside = usage(scope=scope, input_tokens=10, cache_read_tokens=500_000)
    assert decode_event(encode_event(beside)) == beside


LAST_ROW = '    max_turns: Annotated[LimitValue, LimitKind(unit="turns", projected="turn")] = None\n'
ONE_MORE = (
    '    max_reasoning_tokens: Annotated[LimitValue, LimitKind(unit="tokens of reasoning")] = None\n'
    '    max_failures: Annotated[LimitValue, LimitKind(unit="failures")] = None\n'
)

WITH_ONE_MORE = """
import importlib.machinery
import sys

class Amended(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        if path.endswith(".pyc"):
            raise OSError
        before, last, after = data.decode().partition(LAST_ROW)
        assert last, "where are the rows?"
        return (before + last + ONE_MORE + after).encode()

class Finder:
    def find_spec(self, name, path, target=None):
        if name != "proctor.policies.limits":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Amended(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder())

from proctor.policies import Capabilities, compile_policy, draw_mermaid, json_schema, loosened, merge_policies
from proctor.policies import parse_policies, preflight, verify
from proctor.policies.events import ErrorOccurred, RunStarted, TokenUsageUpdated, ToolCallFailed
from proctor.policies.monitor import limit_checker

WRITTEN = "{name: thrifty, locked: true, limits: {max_reasoning_tokens: {max: 10, warn_at: 0.5}}}"
(policy,) = parse_policies(WRITTEN)
assert "max_reasoning_tokens" in json_schema()["$defs"]["Limits"]["properties"]

(note,) = preflight(policy, Capabilities(gate="all", usage="at_end"))
assert note.message.startswith("`max_reasoning_tokens: 10`, once reached, cancels the run once the run is over"), note
(note,) = preflight(policy, Capabilities(gate="all"))
assert note.code == "uncounted_limit", note
(zero,) = parse_policies("{name: zero, limits: {max_reasoning_tokens: 0}}")
assert "zero_limit" in [note.code for note in preflight(zero)]

(looser,) = parse_policies("{name: looser, limits: {max_reasoning_tokens: 20}}")
assert [each.name for each in loosened(merge_policies([policy, looser]))] == ["max_reasoning_tokens"]

monitor = compile_policy(policy).monitor()
assert monitor.observe(RunStarted()) == []
assert monitor.observe(TokenUsageUpdated(output_tokens=9, reasoning_tokens=9)) == []
assert [warning.limit for warning in monitor.warnings()] == ["max_reasoning_tokens"]
(violation,) = monitor.observe(TokenUsageUpdated(output_tokens=9, reasoning_tokens=9))
assert violation.kind == "max_reasoning_tokens"
assert "18 tokens of reasoning" in violation.message, violation
(use,) = monitor.limits()
assert (use.used, use.unit, use.exceeded) == (18, "tokens of reasoning", True)

failed = []
limit_checker._COUNTERS["failures"] = (lambda state, _: len(failed), lambda state, _: len(failed))
(strict,) = parse_policies("{name: strict, limits: {max_failures: 1}}")
monitor = compile_policy(strict).monitor()
for event in (RunStarted(), ToolCallFailed(tool_call_id="c1", error="no")):
    assert monitor.observe(event) == []
    failed.append(event)
(violation,) = monitor.observe(ErrorOccurred(code="any", message="no"))
assert violation.kind == "max_failures"

answer = verify(policy, keeps=strict)
assert "nothing here says when `max_failures` is used" in answer.reason, answer
assert verify(strict, keeps=strict).verdict == "proved"
"""


def test_a_new_limit_is_one_row_of_the_table(tmp_path: Path) -> None:
    """It is parsed, checked, counted, warned of and described as any other."""
    script = tmp_path / "one_more.py"
    script.write_text(f"LAST_ROW, ONE_MORE = {LAST_ROW!r}, {ONE_MORE!r}\n{WITH_ONE_MORE}")
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
