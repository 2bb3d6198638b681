"""The tables of limits and budgets: what holds for each kind, in full, and that one more kind is one more row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from proctor.policies.limits import BUDGETS, LIMITS, Kind

TABLES = """
limit max_total_tokens: total_tokens of_usage unit='tokens'
limit max_input_tokens: input_tokens of_usage unit='input tokens'
limit max_output_tokens: output_tokens of_usage unit='output tokens'
limit max_cost_usd: cost_usd of_usage is_money unit='USD' zero_ok=True
limit max_duration_ms: duration_ms unit='ms' spelled='max_duration' clock='run'
limit max_idle_ms: idle_ms unit='ms idle' spelled='max_idle' clock='idle'
limit max_tool_calls: tool_calls unit='tool calls' zero_ok=True deny_suffices=True projected='call'
limit max_turns: turns unit='turns' projected='turn'
budget max_cost_usd: cost_usd of_usage is_money unit='USD'
budget max_total_tokens: total_tokens of_usage unit='tokens'
budget max_tool_calls: tool_calls unit='tool calls' zero_ok=True deny_suffices=True taken='a call takes one'
budget max_duration_ms: duration_ms unit='ms' spelled='max_duration'
budget max_running: running unit='runs at once' taken='a run takes one place' at_once=True
"""


def line(table: str, kind: Kind) -> str:
    derived = [name for name in ("of_usage", "is_money") if getattr(kind, name)]
    given = msgspec.structs.asdict(kind).items()
    stated = [f"{name}={value!r}" for name, value in given if name != "name" and value not in (None, False)]
    return " ".join([table, f"{kind.name}:", kind.counts, *derived, *stated])


def test_the_tables_in_full() -> None:
    lines = [line("limit", kind) for kind in LIMITS.values()] + [line("budget", kind) for kind in BUDGETS.values()]
    assert lines == TABLES.strip().splitlines()


LAST_ROW = '    max_turns: Annotated[LimitValue, LimitKind(unit="turns", projected="turn")] = None\n'
ONE_MORE = '    max_reasoning_tokens: Annotated[LimitValue, LimitKind(unit="tokens of reasoning")] = None\n'

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
from proctor.policies import parse_policies, preflight
from proctor.policies.events import RunStarted, TokenUsageUpdated

WRITTEN = "{name: thrifty, locked: true, limits: {max_reasoning_tokens: {max: 10, warn_at: 0.5}}}"
(policy,) = parse_policies(WRITTEN)
assert "max_reasoning_tokens" in json_schema()["$defs"]["Limits"]["properties"]

(note,) = preflight(policy, Capabilities(gate="all", usage="at_end"))
assert note.message.startswith("`max_reasoning_tokens: 10`, once reached, ends the run once the run is over"), note
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
"""


def test_one_more_limit_is_one_more_row(tmp_path: Path) -> None:
    script = tmp_path / "one_more.py"
    script.write_text(f"LAST_ROW, ONE_MORE = {LAST_ROW!r}, {ONE_MORE!r}\n{WITH_ONE_MORE}")
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
