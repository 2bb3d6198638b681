"""Preflight: each finding, with what shows it; and what must not be refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from proctor.policies import Capabilities, PolicyViolationError, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings, PreflightFinding
from proctor.policies.analysis.findings import CODES
from proctor.policies.events.run_context import tool


def found(*documents: dict[str, Any], capabilities: Capabilities | None = None) -> Findings:
    stack = [p for n, d in enumerate(documents) for p in parse_policies({"version": 1, "name": f"p{n}", **d})]
    return preflight(merge_policies(stack), capabilities)


def refused(*documents: dict[str, Any], capabilities: Capabilities | None = None) -> list[str]:
    """The codes of what is refused."""
    return [finding.code for finding in found(*documents, capabilities=capabilities).refusals]


def the(code: str, findings: Findings) -> PreflightFinding:
    """The one finding of a code."""
    (finding,) = [finding for finding in findings if finding.code == code]
    return finding


def rules(*records: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return {"rules": list(records), **policy}


WHERE = {"path": "$.x", "equals": 1}
TENANT = {"path": "$.tenant", "equals": "x"}


def before(first: Any, then: Any, **more: Any) -> dict[str, Any]:
    return {"type": "before", "first": first, "then": then, **more}


def needs(tool: Any, *requires: Any, **more: Any) -> dict[str, Any]:
    return {"type": "precondition", "tool": tool, "requires": list(requires), **more}


def net(*transitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    places = dict.fromkeys(place for t in transitions for s in ("inputs", "outputs") for place in t.get(s, ()))
    named = [{"name": f"t{n}", **t} for n, t in enumerate(transitions)]
    return {"nets": [{"name": "n", "places": list(places), "transitions": named, **more}]}


def test_a_check_that_refuses_names_every_finding() -> None:
    """One error, with all refusals in its text and in `findings`."""
    with pytest.raises(PolicyViolationError) as raised:
        found({"tool_rules": [{"allow": []}], "limits": {"max_turns": 0}}).check()

    assert raised.value.code == "policy_violation"
    assert [finding.code for finding in raised.value.findings] == ["zero_limit", "empty_allow_list"]
    assert "`max_turns` is 0" in str(raised.value)
    assert "the allow list is empty" in str(raised.value)


def test_what_is_only_reported_does_not_raise() -> None:
    """Reports come after refusals and stop nothing."""
    findings = found(rules({"type": "forbidden_sequence", "sequence": ["a", "b"]}))

    findings.check()
    assert [finding.severity for finding in findings] == ["report"]


@pytest.mark.parametrize(("documents", "code"), [
    ([{"tool_rules": [{"allow": []}]}], "empty_allow_list"),
    ([rules({"type": "allowlist", "tools": []})], "empty_allow_list"),
    ([{"tool_rules": [{"allow": ["read"]}, {"allow": ["write"]}]}], "disjoint_allow_lists"),
    ([{"tool_rules": [{"allow": ["re*"]}]}, {"tool_rules": [{"allow": ["*[!e]"]}, {"allow": ["???"]}]}], None),
    ([{"tool_rules": [{"allow": ["read*"]}]}, {"tool_rules": [{"allow": ["*file"]}]}], None),
    ([{"tool_rules": [{"allow": ["a*b"]}]}, {"tool_rules": [{"allow": ["b*"]}]}], "disjoint_allow_lists"),
    ([{"tool_rules": [{"allow": ["READ"]}]}, {"tool_rules": [{"allow": ["read"]}]}], None),
    ([{"tool_rules": [{"allow": ["A"]}], "aliases": {"A": ["x"]}}, {"tool_rules": [{"allow": ["x"]}]}], None),
    ([{"tool_rules": [{"allow": ["A"]}], "aliases": {"A": ["x"]}}, {"tool_rules": [{"allow": ["A"]}]}],
        "disjoint_allow_lists"),
    ([{"tool_rules": [{"allow": ["a"]}, {"allow": ["b"], "action": "warn"}]}], None),
    ([{"tool_rules": [{"allow": ["a"]}, {"allow": ["b"], "when": [TENANT]}]}], None),
])  # fmt: skip
def test_allow_lists_must_have_a_name_in_common(documents: list[dict[str, Any]], code: str | None) -> None:
    """Globs intersect, aliases belong to their policy, lists that may not hold do not count."""
    assert refused(*documents) == ([code] if code else [])


@pytest.mark.parametrize(("documents", "refuses"), [
    ([{"tool_rules": [{"allow": ["bash"]}, {"deny": ["bash"]}]}], True),
    ([{"tool_rules": [{"deny": ["bash"]}, {"allow": ["bash", "read"]}]}], True),
    ([{"tool_rules": [{"deny": ["mcp__*"]}]}, {"tool_rules": [{"allow": ["mcp__x", "read"]}]}], True),
    ([{"tool_rules": [{"allow": ["mcp__x", "read"]}]}, {"tool_rules": [{"deny": ["mcp__*"]}]}], False),
    ([{"tool_rules": [{"allow": ["mcp__*"]}, {"deny": ["mcp__x__delete*"]}]}], False),
    ([{"tool_rules": [{"allow": ["ab*", "read"]}, {"deny": ["a*", "b*"]}]}], True),
    ([{"tool_rules": [{"allow": ["[ab]x", "read"]}, {"deny": ["ax", "bx"]}]}], True),
    ([{"tool_rules": [{"allow": ["[abc]x", "read"]}, {"deny": ["ax", "bx"]}]}], False),
    ([{"tool_rules": [{"allow": ["bash"]}, {"deny": ["bash"], "action": "request_approval"}]}], False),
    ([{"tool_rules": [{"allow": ["bash"]}, {"deny": [{"tool": "bash", "where": [WHERE]}]}]}], False),
    ([{"tool_rules": [{"allow": ["bash"]}, {"deny": ["bash"], "when": [TENANT]}]}], False),
])  # fmt: skip
def test_an_allow_entry_must_not_be_denied_by_the_same_or_an_earlier_policy(
    documents: list[dict[str, Any]], refuses: bool
) -> None:
    """A later deny narrows; a deny of some names, of some inputs, or for some runs leaves the rest."""
    assert refused(*documents) == (["denied_allow_entry"] if refuses else [])


NAMES = ("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_duration_ms", "max_idle_ms", "max_turns")


def test_a_limit_of_zero_is_refused_where_it_holds_and_nothing_can_be_done() -> None:
    """Named as its author may have written it; a run without calls, or one that is free, is one like any other."""
    for name in NAMES:
        finding = the("zero_limit", found({"limits": {name: 0}}))
        assert (finding.policy, finding.rule) == ("p0", name)
    for written in ({"max_idle": "0s"}, {"max_idle_ms": 0}):
        message = the("zero_limit", found({"limits": written})).message
        assert message.startswith("`max_idle` or `max_idle_ms` is 0")
    assert [found({"limits": {name: 0}}) for name in ("max_tool_calls", "max_cost_usd")] == [[], []]
    assert refused({"limits": {"max_turns": 0}}, {"limits": {"max_turns": 5}}) == []
    assert refused({"limits": {"max_turns": 0}, "locked": True}, {"limits": {"max_turns": 5}}) == ["zero_limit"]


@pytest.mark.parametrize(("policy", "capabilities", "refuses"), [
    ({}, None, True),
    ({}, Capabilities(reports_cost=True), False),
    ({}, Capabilities(model="no-such-model"), True),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, Capabilities(model="m1"), False),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, Capabilities(model="zz-no"), True),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, None, False),
    ({"unpriced": "warn"}, None, False),
])  # fmt: skip
def test_a_cost_limit_wants_a_price_where_the_policy_says_so(
    policy: dict[str, Any], capabilities: Capabilities | None, refuses: bool
) -> None:
    """`unpriced: reject` without a price."""
    document = {"limits": {"max_cost_usd": 1}, "unpriced": "reject", **policy}

    assert refused(document, capabilities=capabilities) == (["unpriced"] if refuses else [])


@pytest.mark.parametrize(("gate", "refuses"), [("all", False), ("some", True), ("none", True)])
def test_required_enforcement_wants_a_gate_for_every_call(gate: Any, refuses: bool) -> None:
    """`enforcement: required`; without an adapter nothing is known."""
    document = {"enforcement": "required"}

    assert refused(document, capabilities=Capabilities(gate=gate)) == (["cannot_gate"] if refuses else [])
    assert refused(document) == []


@pytest.mark.parametrize(("document", "witness"), [
    (rules(before("a", "b"), before("b", "a")), ("`a` needs `b` (`before-2`)", "`b` needs `a` (`before-1`)")),
    ({"nets": ["require a before b"], **rules(needs("a", {"prior": "b"}))},
        ("`b` needs `a` (`require a before b`)", "`a` needs `b` (`precondition-1`)")),
    (rules(needs("a", {"prior": {"tool": "b", "where": [WHERE]}}),
        needs({"tool": "b", "where": [WHERE]}, {"prior": "a"})),
        ('`a` needs `b where [{"path":"$.x","equals":1}]` (`precondition-1`)',
        '`b where [{"path":"$.x","equals":1}]` needs `a` (`precondition-2`)')),
    (rules(needs("b", {"any_of": [{"prior": "a"}, {"prior": "b"}]}), {"type": "max_calls", "tool": "a", "max": 0}),
        ("`b` needs `a` (`precondition-1`)", "`a` is never allowed (`max_calls-1`)")),
    (rules({"type": "after", "trigger": "a", "then": "b"}, {"type": "immediately_before", "first": "a", "then": "c"}),
        ("`immediately_before-1`: `a` right before `c`", "`after-1`: `b` right after `a`")),
    ({"nets": ["limit a to 1 per session", *net({"inputs": ["p", "p"], "tools": ["c"]},
        {"outputs": ["p"], "tools": ["a"]}, capacity={"p": 2})["nets"]]},
        ("`n`: net `n`", "`limit a to 1 per session`: net `limit a to 1 per session`")),
])  # fmt: skip
def test_a_tool_that_can_never_be_let_through_is_refused(document: dict[str, Any], witness: tuple[str, ...]) -> None:
    """Circles, denied prerequisites, orders that exclude each other; over rules and nets; with what shows it."""
    findings = found(document)

    assert {finding.code for finding in findings.refusals} == {"never_callable"}
    assert findings.refusals[0].witness == witness


@pytest.mark.parametrize(("document", "witness"), [
    (rules(before(["u", "v"], "r", id="r"), before("v", "u", id="u"), before("u", "v", id="v")),
        ("`r` needs `u` (`r`)", "`u` needs `v` (`u`)", "`v` needs `u` (`v`)")),
    (rules(before(["u", "v"], "w", id="w"), before(["v", "w"], "u", id="u"), before(["u", "w"], "v", id="v")),
        ("`u` needs `v` (`u`)", "`v` needs `u` (`v`)")),
])  # fmt: skip
def test_a_circle_is_reported_wherever_the_ways_into_it_branch(
    document: dict[str, Any], witness: tuple[str, ...]
) -> None:
    """A tool that only needs one of the circle is reported too."""
    witnesses = [finding.witness for finding in found(document) if finding.code == "never_callable"]

    assert witness in witnesses


@pytest.mark.parametrize(
    "document",
    [
        rules(before("a", "b"), before("b", "c")),
        rules(before(["a", "b"], "b")),
        rules(before("git-*", "git-push")),
        rules(before("a", "b"), before("b", "a", action="warn")),
        rules(before("a", "b"), before("b", "a", action="request_approval")),
        rules(before("a", "b"), before("b", "a", when=[TENANT])),
        rules(needs("b", {"any_of": [{"prior": "b"}, {"user_said": "go"}]})),
        rules(needs("b", {"any_of": [{"prior": "b"}, {"turns_gte": 2}]})),
        rules(needs("a", {"prior": "b"}), needs({"tool": "b", "where": [WHERE]}, {"prior": "a"})),
        rules({"type": "never_after", "trigger": "a", "forbidden": "b"}, before("b", "a")),
        rules({"type": "forbids_after", "tool": "a", "tools": ["b"]}, before("a", "b", first_must="started")),
        rules({"type": "never_after", "trigger": "a", "forbidden": "b", "key": "$.x"}, before("a", "b")),
        rules({"type": "immediately_before", "first": "a", "then": "c"}, before("b", "c")),
        rules({"type": "sequence", "tools": ["a", "b", "a"]}),
        rules(
            {"type": "immediately_before", "first": "a", "then": "c"},
            {"type": "immediately_before", "first": "b", "then": "c"},
            virtual_tools=[
                {"tool": "bash", "path": "$.command", "match": "x", "as": "a"},
                {"tool": "bash", "path": "$.command", "match": "y", "as": "b"},
            ],
        ),
        rules({"type": "eventually", "tool": "a", "within": 2}, before("b", "a")),
        {"nets": ["limit a to 2 per b", "require a before b"]},
        {"tool_rules": [{"deny": ["rm"]}], "nets": ["block rm", "limit push to 0 per session"]},
        rules({"type": "max_calls", "tool": "rm", "max": 0}),
        rules({"type": "forbidden_sequence", "sequence": ["rm"]}),
        net(
            {"inputs": ["p"], "outputs": ["q"], "tools": ["a"]},
            {"inputs": ["q"], "tools": ["b"], "type": "manual"},
            initial_marking={"p": 1},
        ),
        net({"inputs": ["p"], "tools": ["a"]}, {"outputs": ["p"], "tools": ["a"]}),
        net(  # three jobs at once run by themselves, the fourth asks
            {"inputs": ["slot"], "outputs": ["slot"], "tools": ["job"], "deferred": True},
            {"type": "manual", "tools": ["job"]},
            initial_marking={"slot": 3},
        ),
        rules(
            {"type": "after", "trigger": "a", "then": "b", "key": "$.x"},
            {"type": "immediately_before", "first": "a", "then": "c"},
        ),
        rules(
            *(
                {"type": "allowlist", "tools": [{"tool": "a", "where": [{"path": path, "lte": 5}]}, other]}
                for path, other in (("$.x", "b"), ("$.y", "c"))
            )
        ),
        net(
            {"inputs": ["p"], "outputs": ["q"], "tools": ["a"]},
            {"inputs": ["q"], "outputs": ["p"], "tools": ["b"]},
            initial_marking={"p": 1},
        )
        | {"virtual_tools": [{"tool": "a", "path": "$.line", "match": "^ls", "as": "b"}]},
        net({"inputs": ["p"], "tools": ["a"]}, initial_marking={"p": 1}, free_tools=[{"tool": "a", "where": [WHERE]}])
        | rules({"type": "count", "tool": "a", "min": 2}),
    ],
)
def test_what_some_order_or_some_input_lets_through_is_not_refused(document: dict[str, Any]) -> None:
    """Conditions count as met by some input, what holds only for some runs as absent."""
    assert refused(document) == []


@pytest.mark.parametrize("wanting", [
    {"type": "require", "tool": "x"},
    {"type": "require", "tool": ["x", "y"]},
    {"type": "count", "tool": "x", "min": 2},
    {"type": "count", "tool": "x", "exact": 1},
    {"type": "eventually", "tool": "x", "within": 3},
])  # fmt: skip
def test_a_required_tool_must_be_callable(wanting: dict[str, Any]) -> None:
    """Denied, it never can be called; a warning, a maximum or another way leave a run possible."""
    denied = [{"deny": ["x", "y"]}]

    assert refused(rules(wanting, tool_rules=denied)) == ["never_satisfied"]
    assert refused(rules(wanting | {"action": "warn"}, tool_rules=denied)) == []
    assert refused(rules(wanting | {"tool": ["x", "z"]}, tool_rules=denied)) == []
    none, one = ({"max_tool_calls": {"max": most, "action": "deny"}} for most in (0, 1))  # of each run
    assert (refused(rules(wanting, limits=none)), refused(rules(wanting, limits=one))) == (["never_satisfied"], [])


def test_what_is_required_must_fit_into_the_calls_of_a_session() -> None:
    """With what it needs before it; what is not required may stay away."""
    chain = [before("a", "b"), before("b", "c")]
    few, enough = ({"max_tool_calls": {"max": most, "action": "deny", "scope": "session"}} for most in (2, 3))

    assert refused(rules(*chain, {"type": "require", "tool": "c"}, limits=few)) == ["never_satisfied"]
    assert refused(rules(*chain, {"type": "require", "tool": "c"}, limits=enough)) == []
    assert refused(rules(*chain, limits=few)) == []


def never(trigger: str, forbidden: str) -> dict[str, Any]:
    return {"type": "never_after", "trigger": trigger, "forbidden": forbidden}


def apart(*tools: str) -> dict[str, Any]:
    return {"type": "forbidden_sequence", "sequence": list(tools), "adjacency": "any"}


def wants(tool: str) -> dict[str, Any]:
    return {"type": "require", "tool": tool}


COMPLETED = {"type": "count", "min": 1, "of": "completed"}
TOGETHER_IMPOSSIBLE = [
    rules(wants("a"), wants("b"), never("a", "b"), never("b", "a")),
    rules(wants("a"), wants("b"), apart("a", "b"), apart("b", "a")),
    rules(wants("a"), wants("b"), wants("c"), never("a", "b"), never("b", "c"), never("c", "a")),
    rules(*(wants(f"t{n}") for n in range(20)), never("t7", "t8"), never("t8", "t7")),
    rules(wants("a"), {"type": "after", "trigger": "a", "then": "b"}, never("a", "b")),
    rules(wants("a"), {"type": "after", "trigger": "a", "then": "a"}),
    rules({"type": "count", "tool": "a", "min": 2}, apart("a", "a")),
    rules(wants("a"), {"type": "eventually", "tool": "b", "within": 1}, never("b", "a")),
    rules(COMPLETED | {"tool": "a"}, COMPLETED | {"tool": "b"},
        {"type": "forbids_after", "tool": "a", "tools": ["b"]},
        {"type": "forbids_after", "tool": "b", "tools": ["a"]}),
]  # fmt: skip


@pytest.mark.parametrize("document", TOGETHER_IMPOSSIBLE)
def test_demands_that_no_one_run_can_meet_are_refused(document: dict[str, Any]) -> None:
    """Each can be met alone; without any one rule of the witness the others can be met together."""
    numbered = [rule | {"id": f"r{n}"} for n, rule in enumerate(document["rules"])]
    witness = " ".join(the("never_satisfied", found({"rules": numbered})).witness)
    named = [rule for rule in numbered if f"`{rule['id']}`" in witness]

    assert len(named) > 1
    for rule in named:
        assert refused({"rules": [other for other in numbered if other != rule]}) == []


@pytest.mark.parametrize("document", [
    rules(wants("a"), wants("b"), never("a", "b")),
    rules(wants("a"), wants("b"), never("a", "b"), never("b", "a") | {"action": "warn"}),
    rules(wants("a"), wants("b"), never("a", "b"), never("b", "a") | {"when": [TENANT]}),
    rules(wants("a"), {"type": "require", "tool": ["b", "a"]}, never("a", "b"), never("b", "a")),
    rules({"type": "after", "trigger": "a", "then": "b"}, never("a", "b")),
    rules(*(wants(f"t{n}") for n in range(20)), *(never(f"t{n + 1}", f"t{n}") for n in range(19))),
    rules(*(wants(f"t{n}") for n in range(20)), *(never(f"t{n}", f"t{n + 1}") for n in range(19))),
])  # fmt: skip
def test_demands_that_some_order_of_calls_meets_are_not_refused(document: dict[str, Any]) -> None:
    """One way will do, and what only warns or holds for some runs stands in nobody's way."""
    assert [finding.code for finding in found(document) if finding.code in ("never_satisfied", "gave_up")] == []


def test_too_many_demands_to_try_every_order_are_reported() -> None:
    """Preflight says that it cannot tell, and refuses nothing."""
    pairs = [(f"t{n}", f"t{(n * 7) % 20}") for n in range(2, 20)]
    document = rules(*(wants(f"t{n}") for n in range(20)), *(never(a, b) for a, b in pairs if a != b))
    finding = the("gave_up", found(document))

    assert finding.severity == "report"
    assert len(finding.witness) == 20


def test_a_required_tool_that_needs_a_denied_one_shows_the_way() -> None:
    """The witness goes from the requirement to the deny."""
    findings = found(rules({"type": "require", "tool": "x"}, before("a", "x"), tool_rules=[{"deny": ["a"]}]))

    assert the("never_satisfied", findings).witness == (
        "`x` needs `a` (`before-1`)",
        "`a` is never allowed (`deny-1`)",
    )


def test_a_transition_that_another_one_always_precedes_is_refused() -> None:
    """The first declared fires, so one after it that asks for more never does."""
    findings = found(net({"tools": ["a"]}, {"inputs": ["p"], "tools": ["a"]}, initial_marking={"p": 1}))

    assert "`t1`" in the("dead_transition", findings).message


def test_a_net_that_grows_without_bound_is_refused_with_what_repeats() -> None:
    """The lead, then the transitions that can repeat forever."""
    grows = (
        {"inputs": ["p"], "outputs": ["q"], "tools": ["a"]},
        {"inputs": ["q"], "outputs": ["q", "r"], "tools": ["b"]},
        {"inputs": ["r"], "outputs": ["r"], "tools": ["c"]},
    )
    finding = the("unbounded_net", found(net(*grows, initial_marking={"p": 1})))

    assert finding.witness == ("t0", "t1")
    assert "`r` gains tokens" in finding.message
    assert refused(net(*grows, initial_marking={"p": 1}, capacity={"r": 5})) == []


def test_a_net_with_too_many_markings_is_reported() -> None:
    """Preflight says where it gave up."""
    spending = [{"inputs": [place], "tools": [place]} for place in "abcdef"]
    findings = found(net(*spending, initial_marking=dict.fromkeys("abcdef", 9)))

    assert [finding.code for finding in findings] == ["gave_up"]


@pytest.mark.parametrize(("documents", "code", "witness"), [
    ([rules({"type": "forbidden_sequence", "sequence": ["a", "b"]})], "evaded_by_one_call",
        ("`a`", "any other call", "`b`")),
    ([rules(before("git-test", "push"), nets=['map bash.command "git test" as git-test'])], "virtual_evidence",
        ("git-test",)),
    ([{"nets": ["require git-test before push", 'map bash.command "git test" as git-test']}], "virtual_evidence",
        ("git-test",)),
    ([{"tool_rules": [{"deny": [{"tool": "write", "where": [{"not": [{"path": "$.path", "within": "."}]}]}]}]}],
        "links_not_followed", (".",)),
    ([{"tool_rules": [{"deny": ["ba*"]}]}, rules(before("x", "bash"))], "shadowed",
        ("`before-1`: `x` before `bash`", "`deny-1`: no `ba*`")),
    ([rules({"type": "max_calls", "tool": "x", "max": 5}, {"type": "count", "tool": "X", "max": 3})], "shadowed",
        ("`max_calls-1`: `x` at most 5 times", "`count-1`: `X` at most 3 times")),
    ([net({"inputs": ["p", "p"], "tools": ["x"]}, initial_marking={"p": 4}) | rules({"type": "max_calls", "tool": "x",
        "max": 2})], "shadowed", ("`max_calls-1`: `x` at most 2 times", "`n`: net `n`")),
    ([rules(before("x", "y")), rules(before("x", "y"))], "shadowed",
        ("`p1/before-1`: `x` before `y`", "`p0/before-1`: `x` before `y`")),
])  # fmt: skip
def test_what_is_doubtful_is_reported(documents: list[dict[str, Any]], code: str, witness: tuple[str, ...]) -> None:
    """Reported, with what shows it, and not refused."""
    findings = found(*documents)

    assert findings.refusals == ()
    assert the(code, findings).witness == witness


@pytest.mark.parametrize("documents", [
    [rules({"type": "forbidden_sequence", "sequence": ["a", "b"], "adjacency": "any"})],
    [rules(before("bash", "push"), nets=['map bash.command "git test" as git-test'])],
    [rules(before("x", "bash")), {"tool_rules": [{"deny": ["ba*"]}]}],
    [{"tool_rules": [{"deny": ["bash"], "action": "warn"}]}, rules(before("x", "bash"))],
    [{"tool_rules": [{"deny": ["bash"], "action": "warn"}]},
        rules({**before("human-approval", "bash"), "action": "warn"})],
    [{"tool_rules": [{"allow": ["run_shell_command"]}, {"deny": ["bash"]}]}],
    [{"tool_rules": [{"allow": ["bash"]}, {"deny": ["run_shell_command"]}]}],
    [{"tool_rules": [{"allow": ["bash"]}]}, {"tool_rules": [{"allow": ["run_shell_command"]}]}],
    [rules({"type": "count", "tool": "bash", "min": 1}, tool_rules=[{"allow": ["run_shell_command"]}])],
    [rules(before("bash", "deploy"), tool_rules=[{"allow": ["run_shell_command", "deploy"]}])],
    [rules({"type": "max_calls", "tool": "x", "max": 5}, {"type": "count", "tool": "x", "max": 7, "min": 1})],
    [rules({"type": "count", "tool": "x", "min": 1, "of": "attempted"}, tool_rules=[{"deny": ["x"]}])],
    [rules(*({"type": "provenance", "tool": "x", "path": "$.to", "from": ["user_message"], "except": [each]}
        for each in (1, True)))],
])  # fmt: skip
def test_what_holds_is_not_reported(documents: list[dict[str, Any]]) -> None:
    """Rules that decide something, or that a later policy only happens to cover."""
    assert found(*documents) == []


def test_by_which_names_calls_go_is_known_of_the_tools_of_an_agent() -> None:
    """Its shell is `bash`, and no other tool of it is."""
    agent = Capabilities(gate="all", tools=(tool("Shell", "bash", "command"), "Look"))
    deny = {"deny": ["bash"], "action": "deny"}

    def codes(*allowed: str) -> list[str]:
        return [each.code for each in found({"tool_rules": [{"allow": [*allowed]}, deny]}, capabilities=agent)]

    assert (codes("Shell"), codes("Look")) == ([], ["shadowed"])


@pytest.mark.parametrize(("allowed", "wanted", "codes"), [
    ("Shell", "bash", []), ("bash", "Shell", []), ("Look", "bash", ["never_satisfied"]),
])  # fmt: skip
def test_what_must_be_called_may_be_allowed_by_another_name_of_its_calls(
    allowed: str, wanted: str, codes: list[str]
) -> None:
    """A call of `Shell` goes by `bash` too, and any name admits it."""
    agent = Capabilities(gate="all", tools=(tool("Shell", "bash", "command"), "Look"))
    document = rules({"type": "require", "tool": wanted}, tool_rules=[{"allow": [allowed]}])

    assert [each.code for each in found(document, capabilities=agent)] == codes


def test_aliases_that_differ_only_in_case_stand_for_all_their_tools_at_judging_and_at_preflight() -> None:
    """What works is not refused: `check` is denied, and `Verify` still comes before `Refund`."""
    document = rules(
        before("Identify", "Refund"),
        aliases={"Identify": ["Verify"], "identify": ["Check"]},
        tool_rules=[{"deny": ["check"]}],
    )

    assert refused(document) == []
    assert refused({**document, "tool_rules": [{"deny": ["check", "verify"]}]}) == ["never_callable"]


DENIERS = [
    {"tool_rules": [{"deny": ["bash"]}]},
    {"nets": ["block bash"]},
    {"nets": ["limit bash to 0 per session"]},
    rules({"type": "blocklist", "tools": ["bash"]}),
    rules({"type": "count", "tool": "bash", "max": 0}),
    rules({"type": "count", "tool": "bash", "exact": 0}),
    rules({"type": "count", "tool": "bash", "max": 0, "of": "attempted", "within_turns": 2, "key": "$.x"}),
    rules({"type": "max_calls", "tool": "bash", "max": 0}),
    rules({"type": "max_parallel", "tool": "bash", "max": 0}),
    rules({"type": "loop", "tool": "bash", "threshold": 1, "window": 3}),
    rules({"type": "forbidden_sequence", "sequence": ["bash"]}),
    rules({"type": "forbidden_sequence", "sequence": ["bash"], "adjacency": "any", "key": "$.x"}),
]


@pytest.mark.parametrize("denier", DENIERS)
def test_what_counts_as_denied_is_one_answer(denier: dict[str, Any]) -> None:
    """However it is written: an allow entry it denies is refused, a tool it denies is not called impossible, and what
    only needs that tool is; so is an allow list of which it leaves no tool, and not one that only warns.
    """
    allowing = {"tool_rules": [*denier.get("tool_rules", ()), {"allow": ["bash", "read"]}]}
    needing = rules(*denier.get("rules", ()), before("bash", "push"))

    assert refused({**denier, **allowing}) == ["denied_allow_entry"]
    assert refused(denier, {"tool_rules": [{"allow": ["bash", "read"]}]}) == ["denied_allow_entry"]
    assert refused({"tool_rules": [{"allow": ["bash", "read"]}]}, denier) == []
    assert refused(denier) == []
    assert the("never_callable", found({**denier, **needing})).witness[1].startswith("`bash` is never allowed")
    only = {"tool_rules": [{"allow": ["bash"]}]}

    assert refused(only, denier) == ["nothing_left"]
    assert refused({"tool_rules": [{"allow": ["bash", "read"]}]}, {"tool_rules": [{"allow": ["bash"]}]}, denier) == [
        "nothing_left"
    ]
    assert refused({"tool_rules": [{"allow": ["bash"], "action": "warn"}]}, denier) == []
    assert refused(only, {"tool_rules": [{"deny": ["bash"], "action": "request_approval"}]}) == []
    assert refused(only, {"tool_rules": [{"deny": [{"tool": "bash", "where": [WHERE]}]}]}) == []


@pytest.mark.parametrize("more", [{"key": "$.id"}, {"of": "attempted"}])
def test_a_minimum_that_refused_attempts_or_no_value_at_all_meet_is_not_called_unsatisfiable(
    more: dict[str, Any],
) -> None:
    """A key of which no value ever comes owes nothing; an attempt counts, refused or not."""
    wanted = {"type": "count", "tool": "a", "min": 2, **more}

    assert refused(rules(wanted, tool_rules=[{"deny": ["a"]}])) == []
    assert refused(rules(wanted, {"type": "max_calls", "tool": "a", "max": 1})) == []
    assert refused(rules({"type": "count", "tool": "a", "min": 2}, tool_rules=[{"deny": ["a"]}])) != []


def test_every_code_of_a_finding_is_in_the_table() -> None:
    """And no other: the sources name each code of the table once or more, and none beside it."""
    sources = Path(__file__).parents[3] / "policies" / "analysis"
    text = "".join(path.read_text() for path in sources.glob("*.py"))

    assert set(re.findall(r'finding\(\s*"(\w+)"', text)) | {"loosened", "loosened_limit"} == set(CODES)
