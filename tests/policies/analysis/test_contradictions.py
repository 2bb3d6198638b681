"""Preflight finds conditions that no call can satisfy together, and reports no others."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.policies import ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies.analysis import redundancy_checks as checked
from proctor.policies.analysis.redundancy_checks import contradiction_findings
from proctor.policies.analysis.void_checks import void_findings


def codes_for_deny(*where: dict[str, Any], **more: Any) -> list[str]:
    """The codes of the findings on a deny with these conditions."""
    rule = {"deny": [{"tool": more.pop("tool", "write"), "where": list(where)}]} if where else more.pop("rule")
    policy = {"name": "p", "on_violation": "deny", "tool_rules": [rule], **more}
    return [each.code for each in contradiction_findings(merge_policies(parse_policies(policy)))]


def at(path: str = "$.a", **operators: Any) -> dict[str, Any]:
    return {"path": path, **operators}


@pytest.mark.parametrize("where", [
    [at(equals="a"), at(equals="b")],
    [at(equals="a"), at(not_equals="a", exists=True), at("$.b", equals=1)],
    [at(equals="a", regex="^b")],
    [{"path": "$.a", "in": ["a", "b"], "not_in": ["a", "b"]}],
    [at(exists=False), at(equals=1)],
    [{"path": "$.a", "in": []}],
    [at(gt=5), at(equals=3)],
    [at(runs="git"), at(equals="ls")],
    [{"any_of": [at(equals="a"), at(equals="b")]}, at(equals="c")],
], ids=repr)  # fmt: skip
def test_conditions_that_no_call_can_satisfy_are_found(where: list[dict[str, Any]]) -> None:
    """A deny with them denies nothing; an allow list with them allows nothing."""
    assert codes_for_deny(*where) == ["contradictory_conditions"]
    assert codes_for_deny(rule={"allow": [{"tool": "write", "where": where}]}) == ["contradictory_conditions"]


@pytest.mark.parametrize(
    "where",
    [
        [at(equals="a"), at("$.b", equals="b")],
        [at(regex="^a"), at(regex="^b")],  # two values of one list
        [at("$.to[*]", equals="a"), at("$.to[*]", equals="b")],
        [at(equals=7), at(equals="07")],  # two numbers in one input
        [at("$.path", equals="a"), at("$.path", not_equals="b")],
        [at(gte=1, lte=5), at(not_equals=3)],
        [at(within="src"), {"not": [at(within="src/x")]}],
        [at(equals={"arg": "$.b"}), at(equals="x")],  # the call decides
        [{"not": [{"path": "$.a", "in": []}]}],  # an absent value is fine
    ],
    ids=repr,
)
def test_conditions_that_some_call_satisfies_are_not_reported(where: list[dict[str, Any]]) -> None:
    """Neither unusual calls nor undecidable conditions are reported."""
    assert codes_for_deny(*where) == []


def test_a_when_that_no_context_satisfies_is_found() -> None:
    """Its rule applies to no run."""
    rule = {"type": "max_calls", "tool": "bash", "max": 1}

    def of(*when: dict[str, Any]) -> list[str]:
        return codes_for_deny(rule={"deny": ["rm"]}, rules=[{**rule, "when": list(when)}])

    assert of(at("$.tenant", equals="a"), at("$.tenant", equals="b")) == ["contradictory_conditions"]
    assert of(at("$.tenant", equals="a"), at("$.user_role", equals="b")) == []
    assert of(at("$.labels.n", equals=7), at("$.labels.n", not_equals="7")) == []  # two types in one context


def virtual(match: str, **more: Any) -> dict[str, Any]:
    return {"virtual_tools": [{"tool": "bash", "path": "$.command", "match": match, "as": "push"}], **more}


def denying(*where: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"tool_rules": [{"deny": [{"tool": "write", "where": list(where)}], **more}]}


@pytest.mark.parametrize(
    ("policy", "codes"),
    [
        (denying(at(regex="a$b")), ["matches_nothing"]),
        (denying({"not": [at(regex="^rm -rf$ ")]}), ["matches_nothing"]),
        (virtual("a^b", nets=["block push"]), ["matches_nothing"]),
        ({"nets": ["map bash.command /$HOME/ as push", "block push"]}, ["matches_nothing"]),
        (denying(at(regex=r"(?m)^\$HOME|a$\n^b|x\b y")), []),
        (denying(at(gt=5), at("$.b", equals=1), at(lt=3)), ["contradictory_conditions"]),
        (denying(at(length_gte=5), at(length_lte=3)), ["contradictory_conditions"]),
        (denying(at("$.a[*]", gt=5), at("$.a[*]", lt=3), at(gt=5), at(lt=8)), []),  # two numbers of one list
        (denying(at(equals="true")), ["taken_literally"]),
        (denying({"path": "$.a", "in": ["5,000", "ok"]}), ["taken_literally"]),
        (denying(at(equals="$.b")), ["taken_literally"]),
        (denying(at(equals=["a", "b"])), ["taken_literally"]),
        (denying(at(equals="yes"), at("$.b", equals=5000), at("$.c", equals="007")), []),
        (denying(at("$.b", equals=1), when=[at("$.tenant", equals=5)]), ["taken_literally"]),
        (denying(at("$.b", equals=1), when=[at("$.role", equals="admin")]), ["context_missing"]),
        (denying(at("$.b", equals=1), when=[at("$.tenant", equals=None), at("$.labels.n", equals=5)]), []),
        (virtual("rm"), ["unused_name"]),
        ({"aliases": {"Identify": ["a"]}, "nets": ["require Identfy before pay"]}, ["unused_name"]),
        (virtual("rm", tool_rules=[{"deny": ["pu*"]}]), []),
        (virtual("rm", nets=[{"line": "block push", "reason": "[x"}], **denying(at(contains="["))), []),
        ({"aliases": {"A": ["B"], "B": ["c"]}, "nets": ["block A"]}, []),
        ({"aliases": {"A": ["b"]}, **denying({"path": "$.a", "not_in": {"output_of": "A"}})}, []),
    ],
    ids=repr,
)
def test_conditions_and_names_without_effect_are_found(policy: dict[str, Any], codes: list[str]) -> None:
    """A pattern that can't match, text that was meant as something else, or a name that nothing uses."""
    policy = {"name": "p", "on_violation": "deny", **policy}

    assert [each.code for each in void_findings(merge_policies(parse_policies(policy)))] == codes


@pytest.mark.parametrize("given", [{"aliases": {"Send": ["send_mail"]}}, {**virtual("push")}])
def test_a_name_that_only_another_policy_gives_a_tool_is_found(given: dict[str, Any]) -> None:
    """Here it is a tool's own name: a deny of it denies nothing. A policy that gives it too means that."""
    name = "push" if "virtual_tools" in given else "send"
    org = {"name": "org", "on_violation": "deny", "tool_rules": [{"deny": ["push", "send"]}], **given}
    team = {"name": "team", "on_violation": "deny", "tool_rules": [{"deny": [name]}]}

    def found(*policies: dict[str, Any]) -> list[str]:
        stack = merge_policies([each for policy in policies for each in parse_policies(policy)])
        return [f"{each.policy}: {each.message}" for each in void_findings(stack) if each.code == "foreign_name"]

    assert found(org, team) == [f"team: `{name}` is an alias or a virtual tool of `org`, and applies only there"]
    assert found(org, {**team, **given}) == []
    assert found(org) == []


@pytest.mark.parametrize(("path", "suggestion"), [
    ("$.user_rol", "did you mean `user_role`?"),
    ("$.role", "did you mean `user_role`?"),
    ("$.shift", "anything of your own is in `$.labels.NAME` or `$.metadata.NAME`"),
])  # fmt: skip
def test_an_unknown_context_field_gets_the_nearest_name_or_the_place_for_custom_fields(
    path: str, suggestion: str
) -> None:
    policy = {"name": "p", "tool_rules": [{"deny": ["x"], "when": [at(path, equals="night")]}]}

    assert [each.suggestion for each in void_findings(merge_policies(parse_policies(policy)))] == [suggestion]


def test_too_many_comparisons_are_reported_as_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_COMPARED", 0)

    assert codes_for_deny(at(equals="a"), at(equals="b")) == ["not_finished"]


VALUES = st.sampled_from(["a", "b", "ab", "7", 7, 7.5, 0, True, None, "", ["a", "b"], [7], {"k": "a"}])
SCALARS = st.sampled_from(["a", "b", "ab", "7", 7, 7.5, 0, True, None])
TEXTS = st.sampled_from(["a", "^a", "b$", "7", "^$"])


def operators(names: tuple[str, ...], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda name, value: at(**{name: value}), st.sampled_from(names), values)


CONDITIONS = st.one_of(
    operators(("equals", "not_equals"), SCALARS),
    operators(("gt", "gte", "lt", "lte"), st.sampled_from([0, 7, 8])),
    operators(("in", "not_in"), st.lists(SCALARS, min_size=1, max_size=2)),
    operators(("regex",), TEXTS),
    operators(("contains",), st.sampled_from(["a", "b"])),
    operators(("exists",), st.booleans()),
    operators(("type",), st.sampled_from(["string", "number", "array", "null"])),
    operators(("length",), st.integers(0, 2)),
)
WHERE = st.lists(st.one_of(CONDITIONS, st.builds(lambda c: {"not": [c]}, CONDITIONS)), min_size=2, max_size=3)


@settings(max_examples=60, deadline=None)
@given(WHERE, st.lists(VALUES, min_size=8, max_size=8))
def test_no_call_satisfies_conditions_that_were_reported(where: list[dict[str, Any]], values: list[Any]) -> None:
    """A deny with these conditions denies none of the sampled calls."""
    policy = {"name": "p", "on_violation": "deny", "tool_rules": [{"deny": [{"tool": "write", "where": where}]}]}
    stack = merge_policies(parse_policies(policy))
    if any(each.code == "contradictory_conditions" for each in contradiction_findings(stack)):
        monitor = compile_policy(stack).monitor()
        inputs = [{}, *({"a": value} for value in values)]
        calls = [ToolCall(id=f"c{n}", name="write", input=input, turn=1) for n, input in enumerate(inputs)]

        assert {monitor.propose(call).action for call in calls} == {"allow"}
