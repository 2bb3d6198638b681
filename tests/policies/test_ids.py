"""Ids: every clause of a stack has one of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.policies.policy import Allow, Deny, Policy
from proctor.policies.rules.count import Count
from proctor.policies.rules.net_shorthand import NetLine
from proctor.policies.rules.petri_net import Net
from proctor.policies.rules.response import Require
from proctor.policies.stack.clauses import RuleIds, rule_ids
from proctor.policies.stack.merge import merge_policies


def test_clauses_without_an_id_are_numbered_by_type() -> None:
    """Their number counts the clauses of a type within the policy, from 1."""
    policy = Policy(
        name="p",
        tool_rules=(Deny(("x",)), Allow(("y",)), Deny(("z",))),
        rules=(Require(tool="a"), Count(tool="a", max=1, id="mine"), Count(tool="b", max=1), Require(tool="b")),
        nets=("block rm", NetLine(line="block cp"), Net(name="n", places=("a",))),
    )

    assert rule_ids(policy) == (
        RuleIds(
            tool_rules=("deny-1", "allow-1", "deny-2"),
            rules=("require-1", "mine", "count-2", "require-2"),
            nets=("block rm", "block cp", "n"),
        ),
    )


def test_an_id_repeated_in_a_stack_shows_with_its_policy() -> None:
    """Every occurrence of it, and only those."""
    org = Policy(name="org", rules=(Require(tool="a"), Count(tool="a", max=1)))
    team = Policy(name="team", rules=(Require(tool="b"),))
    ids = rule_ids(merge_policies([org, team]))

    assert [each.rules for each in ids] == [("org/require-1", "count-1"), ("team/require-1",)]


def test_ids_that_still_collide_are_numbered() -> None:
    """Two policies may share a name."""
    policy = Policy(name="p", rules=(Require(tool="a", id="r"),))
    ids = rule_ids(merge_policies([policy, policy, policy]))

    assert [each.rules for each in ids] == [("p/r",), ("p/r#2",), ("p/r#3",)]


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
    """Whatever the policies and their rules are called."""
    ids = [id for each in rule_ids(merge_policies(policies)) for id in each.rules]

    assert len(ids) == len(set(ids))
