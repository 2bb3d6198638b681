"""Budgets: how they are written, merged, checked and evaluated (docs: Shared budgets)."""

import json
from typing import Any

import pytest

from proctor.policies import Budget, Policy, compile_policy, loosened, merge_policies, parse_policies, preflight
from proctor.policies.errors import PolicyError
from proctor.policies.events import BudgetReserved, RunStarted, TokenUsageUpdated
from proctor.policies.events.run_context import Capabilities, RunContext
from proctor.policies.stack.merge import effective_budgets

WHOLE = """
name: org
budgets:
  - {name: team, max_cost_usd: 500, per: $.labels.team, window: month, warn_at: [0.8, 0.5], reserve: 2}
  - {name: hours, max_duration: 10h, window: 24h, per: [$.tenant, $.user]}
  - {name: places, max_running: 5}
  - {name: session, max_total_tokens: 1000, window: session, action: deny}
"""


def accounts(text: str, **context: Any) -> list[tuple[str, str, str, str, float]]:
    monitor = compile_policy(merge_policies(parse_policies(text))).monitor(RunContext(**context))
    return [(c.budget, c.key, c.counts, c.window, c.max) for c in monitor.budgets]


def test_the_account_of_a_budget_is_keyed_by_the_context() -> None:
    """The key has the values at `per`, or the session if the window is `session`."""
    found = accounts(WHOLE, tenant="acme", user=None, labels={"team": "web"}, session_id="s")

    assert found == [
        ("org/team", '$.labels.team="web"', "cost_usd", "month", 500),
        ("org/hours", '$.tenant="acme", $.user=null', "duration_ms", "86400000", 36_000_000),
        ("org/places", "", "running", "", 5),
        ("org/session", '$.session_id="s"', "total_tokens", "", 1000),
    ]


@pytest.mark.parametrize("format", ["yaml", "json", "toml"])
def test_an_amount_is_a_number_or_a_percentage_of_an_allowance(format: str) -> None:
    """In every format. If two policies define the budget, the smaller amount applies."""
    budget = {"name": "plan", "max_total_tokens": "80%", "allowance": 2_000_000, "window": "5h", "per": "$.user"}
    text = {
        "yaml": f"name: o\nbudgets: [{json.dumps(budget)}]",
        "json": json.dumps({"name": "o", "budgets": [budget]}),
        "toml": 'name = "o"\n[[budgets]]\n' + "\n".join(f"{k} = {json.dumps(v)}" for k, v in budget.items()),
    }[format]
    plain = parse_policies({"name": "o", "budgets": [{**budget, "max_total_tokens": 1_600_000}]})

    assert parse_policies(text, format=format) == plain
    stack = merge_policies(
        [*plain, *parse_policies({"name": "o", "budgets": [{**budget, "max_total_tokens": "70%"}]})]
    )
    monitor = compile_policy(stack).monitor(RunContext(user="ana"))
    assert [(c.key, c.window, c.max) for c in monitor.budgets] == [('$.user="ana"', "18000000", 1_400_000)]


def test_a_key_identifies_its_values_and_when_selects_the_runs() -> None:
    """The order of a label's parts makes no difference, and no value can forge another key."""
    team = "{name: o, budgets: [{name: b, max_tool_calls: 3, per: $.labels.team}]}"
    both = "{name: o, budgets: [{name: b, max_tool_calls: 3, per: [$.user, $.tenant]}]}"
    prod = "{name: o, budgets: [{name: b, max_tool_calls: 3, when: [{path: $.labels.env, in: [prod]}]}]}"
    teams: tuple[Any, ...] = ({"a": 1, "b": [2]}, {"b": [2], "a": 1})

    assert {accounts(team, labels={"team": team_})[0][1] for team_ in teams} == {'$.labels.team={"a": 1, "b": [2]}'}
    forged = accounts(both, user='a", $.tenant="b', tenant="c")
    assert forged[0][1] == r'$.user="a\", $.tenant=\"b", $.tenant="c"'
    assert [len(accounts(prod, labels={"env": env})) for env in ("dev", "prod")] == [0, 1]


@pytest.mark.parametrize(("written", "says"), [
    ("{name: a}", "counts one thing, this one gives none"),
    ("{name: a, max_cost_usd: 1, max_tool_calls: 1}", "gives `max_cost_usd` and `max_tool_calls`"),
    ("{name: a, max_cost_usd: 1, window: weekly}", "is not a window; use `session`, `day`, `week`, `month`, or a"),
    ("{name: a, max_total_tokens: 80%}", "is a part of an `allowance`, and there is none"),
    ("{name: a, max_total_tokens: 80%, allowance: all}", "expected a number, got the text `all`"),
    ("{name: a, max_total_tokens: 101%, allowance: 100}", "is more than the whole `allowance`"),
    ("{name: a, max_total_tokens: 101, allowance: 100}", "is more than the whole `allowance`"),
    ("{name: a, max_total_tokens: most, allowance: 100}", "expected a number, got the text `most`"),
    ("{name: a, max_cost_usd: 1, window: 5s}", "too short"),
    ("{name: a, max_cost_usd: 1, window: 40000d}", "without one a budget never starts anew"),
    ("{name: a, max_running: 1, window: day}", "no window of time"),
    ("{name: a, max_running: 1, reserve: 1}", "nothing to reserve"),
    ("{name: a, max_tool_calls: 1, reserve: 1}", "nothing to reserve"),
    ("{name: a, max_cost_usd: 1, reserve: 2}", "no run could start"),
    ("{name: a, max_cost_usd: 1, per: labels.team}", "a path starts with `$`"),
    ("{name: a, max_cost_usd: 1, warn_at: 1.5}", "at most 1"),
    ("{name: a, max_cost_usd: -1}", "at least 0"),
    ("{name: a, max_cost_usd: 1, wndow: day}", "did you mean `window`"),
    ("{name: a, max_duration: soon}", "expected a duration with its unit"),
    ("{name: a, max_cost_usd: 1}, {name: a, max_cost_usd: 2}", "the name `a` is taken"),
])  # fmt: skip
def test_a_mistake_in_a_budget_is_reported_with_its_position(written: str, says: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policies(f"name: o\nbudgets: [{written}]")

    assert says in str(raised.value)
    assert str(raised.value).startswith("2:")


def test_every_budget_of_a_stack_applies() -> None:
    """A second budget of the same name weakens nothing. Of one budget defined twice, the stricter
    definition applies.
    """
    org = Policy(name="org", locked=True, budgets=[Budget(name="b", max_cost_usd=5, action="deny")])
    again = Policy(name="org", budgets=[Budget(name="b", max_cost_usd=50)])
    team = Policy(name="team", budgets=[Budget(name="b", max_cost_usd=50)])
    found = {e.id: (e.budget.max, e.action) for e in effective_budgets(merge_policies([org, again, team]))}

    assert found == {"org/b": (5, "cancel"), "team/b": (50, "cancel")}
    assert [(each.name, each.given, each.holds) for each in loosened(merge_policies([org, team]))] == [
        ("budgets.b", "50", "5")
    ]


def test_a_locked_cost_budget_is_not_weakened_by_lower_prices() -> None:
    org = "{name: org, locked: true, budgets: [{name: b, max_cost_usd: 5}]}"
    team = "{name: team, prices: {m: {input_usd_per_mtok: 0, output_usd_per_mtok: 0}}}"
    stack = merge_policies([*parse_policies(org), *parse_policies(team)])

    assert [each.name for each in loosened(stack)] == ["prices.m"]


def test_preflight_reports_the_effect_of_each_budget() -> None:
    """It rejects a run without the context value that a budget needs, and a budget of zero."""
    stack = merge_policies(parse_policies(WHOLE + "  - {name: none, max_total_tokens: 0}\n"))
    found = preflight(
        stack, Capabilities(gate="some", usage="none"), RunContext(tenant="t", user="u", session_id="s")
    )
    codes = [(f.rule, f.code) for f in found if f.policy == "org"]

    assert ("team", "context_missing") in codes
    assert ("none", "zero_budget") in codes
    assert ("team", "uncounted_budget") in codes
    assert ("places", "budget_effect") in codes
    assert {f.severity for f in found if f.code in ("context_missing", "zero_budget")} == {"refuse"}


@pytest.mark.parametrize(("action", "asked_for", "answer", "found"), [
    ("cancel", "usage", "cancel", ["cancel"]),
    ("deny", "usage", "deny", ["deny"]),
    ("deny", "start", "deny", ["cancel"]),
    ("request_approval", "call", "request_approval", []),
    ("warn", "call", "allow", ["warn"]),
])  # fmt: skip
def test_calls_are_denied_until_the_budget_can_be_reserved(
    action: Any, asked_for: str, answer: str, found: list[str]
) -> None:
    """The next reservation of the store allows calls again, and so does a new run."""
    from proctor.policies import ToolCall

    policy = Policy(name="o", budgets=[Budget(name="b", max_tool_calls=2, action=action)])
    monitor = compile_policy(policy).monitor(RunContext())
    monitor.observe(RunStarted(run_id="r"))
    refusal = BudgetReserved(budget="o/b", granted=False, asked_for=asked_for, used=2, max=2)

    assert [v.action for v in monitor.observe(refusal)] == found
    assert monitor.propose(ToolCall(id="1", name="a")).action == answer
    restored = compile_policy(policy).restore(monitor.snapshot())
    assert restored.propose(ToolCall(id="2", name="a")).action == answer
    assert monitor.observe(BudgetReserved(budget="o/b", used=1, max=2)) == []
    assert monitor.propose(ToolCall(id="3", name="a")).action == "allow"
    restored.observe(RunStarted(run_id="next"))
    assert restored.propose(ToolCall(id="4", name="a")).action == "allow"


def test_a_cost_budget_names_the_models_without_a_price() -> None:
    policy = Policy(name="o", budgets=[Budget(name="b", max_cost_usd=2)], unpriced="reject")
    monitor = compile_policy(policy).monitor(RunContext())
    monitor.observe(RunStarted(run_id="r"))
    (violation,) = monitor.observe(TokenUsageUpdated(model="nobody-knows", input_tokens=1))

    assert (violation.details["budget"], violation.details["unpriced"]) == ("o/b", ["nobody-knows"])
    assert "there is no price for nobody-knows" in violation.message
