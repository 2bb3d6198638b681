"""Merging a stack: which parts are added, which are replaced, and which a locked policy keeps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.policies import Allow, Count, Deny, Limit, Limits, Net, NetLine, Policy, PolicyError, Require
from proctor.policies.events.calls import STRICTNESS
from proctor.policies.stack.clauses import rule_ids
from proctor.policies.stack.merge import effective_action, effective_limits, merge_policies


def policy(name: str = "p", **fields: Any) -> Policy:
    return Policy(name=name, **fields)


def limits_of(*policies: Policy) -> list[tuple[str, float, str, str]]:
    """The limits that apply in a stack: kind, number, policy, action."""
    entries = effective_limits(merge_policies(list(policies)))
    return [(entry.name, entry.limit.max, entry.policy, entry.action) for entry in entries]


def test_names_are_joined_and_clauses_concatenated() -> None:
    """From left to right; each clause keeps its policy."""
    org = policy("org", tool_rules=[Deny(["x"])], rules=[Require(tool="a")], nets=["block rm"])
    team = policy("team", tool_rules=[Allow(["y"])], rules=[Count(tool="b", max=1)])
    stack = merge_policies([org, team])

    assert stack.name == "org + team"
    assert stack.tool_rules == (*org.tool_rules, *team.tool_rules)
    assert stack.rules == (*org.rules, *team.rules)
    assert stack.nets == ("block rm",)
    assert stack.members == (org, team)


def test_a_nested_stack_merges_as_its_policies() -> None:
    """Merging is associative."""
    a, b, c = policy("a"), policy("b", on_violation="deny"), policy("c", on_violation="warn")

    assert merge_policies([a, b, c]) == merge_policies([merge_policies([a, b]), c])


def test_metadata_is_merged_deeply_and_the_later_value_wins() -> None:
    """Mappings are merged; other values are replaced."""
    stack = merge_policies(
        [policy(metadata={"a": {"x": 1, "y": 1}, "b": [1]}), policy(metadata={"a": {"y": 2}, "b": 3})]
    )

    assert stack.metadata == {"a": {"x": 1, "y": 2}, "b": 3}


@pytest.mark.parametrize(("stated", "expected"), [
    ([None, None], None),
    (["warn", None], "warn"),
    (["warn", "deny"], "deny"),
    (["cancel", "deny"], "cancel"),
    (["request_approval", "warn"], "request_approval"),
])  # fmt: skip
def test_the_strictest_stated_action_is_that_of_the_stack(stated: list[Any], expected: str | None) -> None:
    """A policy without an action does not affect others."""
    stack = merge_policies([policy(f"p{n}", on_violation=action) for n, action in enumerate(stated)])

    assert stack.on_violation == expected


@pytest.mark.parametrize(("own", "member", "other", "expected"), [
    ("halt", "warn", "warn", "cancel"),
    ("warn", "cancel", "cancel", "warn"),
    (None, "warn", "deny", "deny"),
    (None, "deny", "warn", "deny"),
    (None, None, "warn", "cancel"),
    (None, None, None, "cancel"),
    (None, "warn", None, "warn"),
])  # fmt: skip
def test_a_clause_has_its_own_action_or_the_strictest_stated_one(
    own: Any, member: Any, other: Any, expected: str
) -> None:
    """Never a weaker one than its own policy's, which is `cancel` if that states none."""
    clause_of = policy("a", on_violation=member)
    stack = merge_policies([clause_of, policy("b", on_violation=other)])

    assert effective_action(clause_of, own, stack) == expected


def test_a_later_limit_replaces_an_earlier_one() -> None:
    """Whether it is looser or stricter."""
    found = limits_of(
        policy("a", limits=Limits(max_turns=3, max_tool_calls=5)), policy("b", limits=Limits(max_turns=9))
    )

    assert found == [("max_tool_calls", 5, "a", "cancel"), ("max_turns", 9, "b", "cancel")]


@pytest.mark.parametrize("locked_first", [True, False])
def test_a_locked_limit_is_a_maximum_anywhere_in_the_stack(locked_first: bool) -> None:
    """A looser value is dropped; a stricter one replaces it."""
    org = policy("org", locked=True, limits=Limits(max_turns=5, max_tool_calls=5))
    team = policy("team", limits=Limits(max_turns=9, max_tool_calls=3))
    found = limits_of(*([org, team] if locked_first else [team, org]))

    assert found == [("max_tool_calls", 3, "team", "cancel"), ("max_turns", 5, "org", "cancel")]


def test_a_run_limit_does_not_replace_a_session_limit() -> None:
    """A session counts all its runs, so its limit covers a run's."""
    session = policy("org", locked=True, limits=Limits(max_turns=Limit(max=5, scope="session")))
    run = policy("team", limits=Limits(max_turns=3))
    loose = policy("team", limits=Limits(max_turns=9))

    assert [entry[1] for entry in limits_of(session, run)] == [5, 3]
    assert [entry[1] for entry in limits_of(session, loose)] == [5]


def test_the_limits_of_the_stack_are_those_reached_first() -> None:
    """The provider gets them at launch."""
    stack = merge_policies([policy(limits=Limits(max_turns=3), locked=True), policy(limits=Limits(max_turns=9))])

    assert stack.limits == Limits(max_turns=Limit(max=3))


def test_a_requirement_of_one_policy_is_one_of_the_stack() -> None:
    """No policy can undo `enforcement: required` and `unpriced: reject`."""
    strict = policy(enforcement="required", unpriced="reject")
    stack = merge_policies([strict, policy(unpriced="warn")])

    assert (stack.enforcement, stack.unpriced) == ("required", "reject")
    assert merge_policies([policy()]).unpriced is None


@pytest.mark.parametrize("policies", [[], None, "p", policy(), [None], ["p"], [policy(), {"name": "p"}]])
def test_a_value_that_is_no_list_of_policies_is_an_error(policies: Any) -> None:
    """An empty list is an error too, not "no policy"."""
    with pytest.raises(PolicyError, match="expected a"):
        merge_policies(policies)


def test_the_problems_of_every_policy_are_reported() -> None:
    """Policies created in Python are checked when they are merged."""
    with pytest.raises(PolicyError) as caught:
        merge_policies([policy(""), policy(limits=Limits(max_turns=-1))])

    assert [problem.path for problem in caught.value.problems] == ["name", "limits.max_turns"]


LIMITED = st.builds(
    lambda name, locked, most, scope, action, default: Policy(
        name=name,
        locked=locked,
        on_violation=default,
        limits=Limits(max_turns=Limit(max=most, scope=scope, action=action)),
    ),
    st.sampled_from("abc"),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from(["run", "session"]),
    st.sampled_from([None, "warn", "request_approval", "deny", "cancel"]),
    st.sampled_from([None, "warn", "request_approval", "deny", "cancel"]),
)


def answer(policies: list[Policy], run: int, session: int) -> int:
    """The strictest action of the stack's limits after this usage in the run and the session."""
    used = {"run": run, "session": session}
    entries = effective_limits(merge_policies(policies))
    exceeded = [STRICTNESS[e.action] for e in entries if used[e.limit.scope] > e.limit.max]
    return max(exceeded, default=0)


@given(st.lists(LIMITED, min_size=1, max_size=4), LIMITED, st.integers(0, 4), st.integers(0, 6), st.integers(0, 3))
def test_adding_a_locked_policy_never_weakens_a_limit(
    policies: list[Policy], added: Policy, place: int, run: int, earlier: int
) -> None:
    """At any position, after any usage."""
    locked = Policy(name=added.name, locked=True, on_violation=added.on_violation, limits=added.limits)
    more = [*policies[:place], locked, *policies[place:]]

    assert answer(policies, run, run + earlier) <= answer(more, run, run + earlier)


@given(st.lists(LIMITED, min_size=1, max_size=5), st.integers(0, 6), st.integers(0, 3))
def test_no_policy_weakens_a_locked_limit(policies: list[Policy], run: int, earlier: int) -> None:
    """A stack decides at least as strictly as each locked policy alone."""
    together = answer(policies, run, run + earlier)

    assert all(answer([p], run, run + earlier) <= together for p in policies if p.locked)


def test_clauses_without_an_id_are_numbered_by_type() -> None:
    """From 1, within each policy."""
    policy = Policy(
        name="p",
        tool_rules=(Deny(("x",)), Allow(("y",)), Deny(("z",))),
        rules=(Require(tool="a"), Count(tool="a", max=1, id="mine"), Count(tool="b", max=1), Require(tool="b")),
        nets=("block rm", NetLine(line="block cp"), Net(name="n", places=("a",))),
    )

    tool_rules, rules = ["deny-1", "allow-1", "deny-2"], ["require-1", "mine", "count-2", "require-2"]
    assert rule_ids(policy) == [[*tool_rules, *rules, "block rm", "block cp", "n"]]


def test_an_id_that_is_not_unique_in_a_stack_is_shown_with_its_policy() -> None:
    """Each clause that has it, and no other. If the policies share a name too, they are numbered."""
    org = Policy(name="org", rules=(Require(tool="a"), Count(tool="a", max=1)))
    team = Policy(name="team", rules=(Require(tool="b"),))
    same = Policy(name="p", rules=(Require(tool="a", id="r"),))

    assert rule_ids(merge_policies([org, team])) == [["org/require-1", "count-1"], ["team/require-1"]]
    assert rule_ids(merge_policies([same] * 3)) == [["p/r"], ["p/r#2"], ["p/r#3"]]


@given(
    st.lists(
        st.builds(
            lambda name, ids: Policy(name=name, rules=tuple(Require(tool="a", id=id) for id in ids)),
            st.sampled_from(["p", "q", "p/p"]),
            st.lists(st.sampled_from([None, "r", "p/r", "require-1", "p/r#2"]), max_size=4, unique=True),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_two_clauses_share_an_id(policies: list[Policy]) -> None:
    """Whatever the names of policies and rules."""
    ids = [id for each in rule_ids(merge_policies(policies)) for id in each]

    assert len(ids) == len(set(ids))
