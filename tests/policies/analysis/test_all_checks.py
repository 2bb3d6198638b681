"""Preflight finds these defects in a stack and shows a witness for each; satisfiable policies are not rejected."""

import re
from pathlib import Path
from typing import Any

import pytest

from proctor.policies import Capabilities, PolicyViolationError, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings, PreflightFinding
from proctor.policies.analysis.findings import CODES
from proctor.policies.events.run_context import tool


def findings_on(*documents: dict[str, Any], capabilities: Capabilities | None = None) -> Findings:
    stack = [p for n, d in enumerate(documents) for p in parse_policies({"version": 1, "name": f"p{n}", **d})]
    return preflight(merge_policies(stack), capabilities)


def refusal_codes(*documents: dict[str, Any], capabilities: Capabilities | None = None) -> list[str]:
    """The codes of the findings that reject the stack."""
    return [finding.code for finding in findings_on(*documents, capabilities=capabilities).refusals]


def finding_with(code: str, findings: Findings) -> PreflightFinding:
    """The only finding with this code."""
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


def test_check_raises_one_error_that_names_every_finding() -> None:
    with pytest.raises(PolicyViolationError) as raised:
        findings_on({"tool_rules": [{"allow": []}], "limits": {"max_turns": 0}}).check()

    assert raised.value.code == "policy_violation"
    assert [finding.code for finding in raised.value.findings] == ["zero_limit", "empty_allow_list"]
    assert "`max_turns` is 0" in str(raised.value)
    assert "the allow list is empty" in str(raised.value)


def test_reports_do_not_make_check_raise() -> None:
    findings = findings_on(rules({"type": "forbidden_sequence", "sequence": ["a", "b"]}))

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
def test_allow_lists_without_a_common_name_are_rejected(documents: list[dict[str, Any]], code: str | None) -> None:
    """Globs intersect, aliases belong to their policy, and lists that may not apply are ignored."""
    assert refusal_codes(*documents) == ([code] if code else [])


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
def test_an_allow_entry_that_an_earlier_policy_or_its_own_denies_is_rejected(
    documents: list[dict[str, Any]], refuses: bool
) -> None:
    """A deny in a later policy narrows the list. A deny of some names, some inputs or some runs leaves the rest
    allowed.
    """
    assert refusal_codes(*documents) == (["denied_allow_entry"] if refuses else [])


NAMES = ("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_duration_ms", "max_idle_ms", "max_turns")


def test_a_limit_of_zero_is_rejected_if_it_leaves_nothing_to_do() -> None:
    """The finding uses the author's spelling. A run without calls, or without costs, is a valid run."""
    for name in NAMES:
        finding = finding_with("zero_limit", findings_on({"limits": {name: 0}}))
        assert (finding.policy, finding.rule) == ("p0", name)
    for written in ({"max_idle": "0s"}, {"max_idle_ms": 0}):
        message = finding_with("zero_limit", findings_on({"limits": written})).message
        assert message.startswith("`max_idle` or `max_idle_ms` is 0")
    assert [findings_on({"limits": {name: 0}}) for name in ("max_tool_calls", "max_cost_usd")] == [[], []]
    assert refusal_codes({"limits": {"max_turns": 0}}, {"limits": {"max_turns": 5}}) == []
    assert refusal_codes({"limits": {"max_turns": 0}, "locked": True}, {"limits": {"max_turns": 5}}) == ["zero_limit"]


@pytest.mark.parametrize(("policy", "capabilities", "refuses"), [
    ({}, None, True),
    ({}, Capabilities(reports_cost=True), False),
    ({}, Capabilities(model="no-such-model"), True),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, Capabilities(model="m1"), False),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, Capabilities(model="zz-no"), True),
    ({"prices": {"m*": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}}, None, False),
    ({"unpriced": "warn"}, None, False),
])  # fmt: skip
def test_a_cost_limit_without_a_price_is_rejected_if_the_policy_says_so(
    policy: dict[str, Any], capabilities: Capabilities | None, refuses: bool
) -> None:
    """The policy says `unpriced: reject`."""
    document = {"limits": {"max_cost_usd": 1}, "unpriced": "reject", **policy}

    assert refusal_codes(document, capabilities=capabilities) == (["unpriced"] if refuses else [])


@pytest.mark.parametrize(("gate", "refuses"), [("all", False), ("some", True), ("none", True)])
def test_required_enforcement_is_rejected_unless_every_call_is_gated(gate: Any, refuses: bool) -> None:
    """Without an adapter, preflight doesn't know the gate and reports nothing."""
    document = {"enforcement": "required"}

    assert refusal_codes(document, capabilities=Capabilities(gate=gate)) == (["cannot_gate"] if refuses else [])
    assert refusal_codes(document) == []


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
def test_a_tool_that_can_never_be_called_is_rejected_with_its_witness(
    document: dict[str, Any], witness: tuple[str, ...]
) -> None:
    """Cycles, denied prerequisites and contradictory orders, over rules and nets."""
    findings = findings_on(document)

    assert {finding.code for finding in findings.refusals} == {"never_callable"}
    assert findings.refusals[0].witness == witness


def test_tools_that_only_a_star_matches_are_not_called_by_it() -> None:
    """`*` is the tools that the policy names, too, and `prepare` can be called."""
    strict = {"type": "sequence", "tools": ["prepare", "approve", "*"], "strict": True}
    found = finding_with(
        "never_callable", findings_on(rules(strict, {"type": "max_calls", "tool": "approve", "max": 0}))
    )

    assert found.message.startswith("`any other tool` can never be called: ")


@pytest.mark.parametrize(("document", "witness"), [
    (rules(before(["u", "v"], "r", id="r"), before("v", "u", id="u"), before("u", "v", id="v")),
        ("`r` needs `u` (`r`)", "`u` needs `v` (`u`)", "`v` needs `u` (`v`)")),
    (rules(before(["u", "v"], "w", id="w"), before(["v", "w"], "u", id="u"), before(["u", "w"], "v", id="v")),
        ("`u` needs `v` (`u`)", "`v` needs `u` (`v`)")),
])  # fmt: skip
def test_a_cycle_is_reported_even_if_the_paths_into_it_branch(
    document: dict[str, Any], witness: tuple[str, ...]
) -> None:
    """So is a tool that only depends on a tool of the cycle."""
    witnesses = [finding.witness for finding in findings_on(document) if finding.code == "never_callable"]

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
        net(  # three jobs at once run unasked, the fourth needs approval
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
def test_a_tool_that_some_order_or_some_input_allows_is_not_rejected(document: dict[str, Any]) -> None:
    """Preflight assumes that some input satisfies each condition, and that a rule with `when` may be absent."""
    assert refusal_codes(document) == []


@pytest.mark.parametrize("wanting", [
    {"type": "require", "tool": "x"},
    {"type": "require", "tool": ["x", "y"]},
    {"type": "count", "tool": "x", "min": 2},
    {"type": "count", "tool": "x", "exact": 1},
    {"type": "eventually", "tool": "x", "within": 3},
])  # fmt: skip
def test_a_required_tool_must_be_callable(wanting: dict[str, Any]) -> None:
    """A denied tool never can be. A rule that warns, a maximum or an alternative leaves a possible run."""
    denied = [{"deny": ["x", "y"]}]

    assert refusal_codes(rules(wanting, tool_rules=denied)) == ["never_satisfied"]
    assert refusal_codes(rules(wanting | {"action": "warn"}, tool_rules=denied)) == []
    assert refusal_codes(rules(wanting | {"tool": ["x", "z"]}, tool_rules=denied)) == []
    none, one = ({"max_tool_calls": {"max": most, "action": "deny"}} for most in (0, 1))  # of each run
    assert (refusal_codes(rules(wanting, limits=none)), refusal_codes(rules(wanting, limits=one))) == (
        ["never_satisfied"],
        [],
    )


def test_required_calls_must_fit_into_the_calls_of_a_session() -> None:
    """Their prerequisites count; optional calls do not."""
    chain = [before("a", "b"), before("b", "c")]
    few, enough = ({"max_tool_calls": {"max": most, "action": "deny", "scope": "session"}} for most in (2, 3))

    assert refusal_codes(rules(*chain, {"type": "require", "tool": "c"}, limits=few)) == ["never_satisfied"]
    assert refusal_codes(rules(*chain, {"type": "require", "tool": "c"}, limits=enough)) == []
    assert refusal_codes(rules(*chain, limits=few)) == []


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
def test_requirements_that_no_single_run_can_satisfy_are_rejected(document: dict[str, Any]) -> None:
    """Each can be satisfied alone, and all of them if any one rule of the witness is removed."""
    numbered = [rule | {"id": f"r{n}"} for n, rule in enumerate(document["rules"])]
    witness = " ".join(finding_with("never_satisfied", findings_on({"rules": numbered})).witness)
    named = [rule for rule in numbered if f"`{rule['id']}`" in witness]

    assert len(named) > 1
    for rule in named:
        assert refusal_codes({"rules": [other for other in numbered if other != rule]}) == []


@pytest.mark.parametrize("document", [
    rules(wants("a"), wants("b"), never("a", "b")),
    rules(wants("a"), wants("b"), never("a", "b"), never("b", "a") | {"action": "warn"}),
    rules(wants("a"), wants("b"), never("a", "b"), never("b", "a") | {"when": [TENANT]}),
    rules(wants("a"), {"type": "require", "tool": ["b", "a"]}, never("a", "b"), never("b", "a")),
    rules({"type": "after", "trigger": "a", "then": "b"}, never("a", "b")),
    rules(*(wants(f"t{n}") for n in range(20)), *(never(f"t{n + 1}", f"t{n}") for n in range(19))),
    rules(*(wants(f"t{n}") for n in range(20)), *(never(f"t{n}", f"t{n + 1}") for n in range(19))),
])  # fmt: skip
def test_requirements_that_some_order_of_calls_satisfies_are_not_rejected(document: dict[str, Any]) -> None:
    """One order is enough. Rules that only warn, or that apply to some runs, do not count."""
    assert [finding.code for finding in findings_on(document) if finding.code in ("never_satisfied", "gave_up")] == []


def test_too_many_requirements_to_try_every_order_are_reported() -> None:
    """Preflight reports that it gave up, and rejects nothing."""
    pairs = [(f"t{n}", f"t{(n * 7) % 20}") for n in range(2, 20)]
    document = rules(*(wants(f"t{n}") for n in range(20)), *(never(a, b) for a, b in pairs if a != b))
    finding = finding_with("gave_up", findings_on(document))

    assert finding.severity == "report"
    assert len(finding.witness) == 20


def test_the_witness_leads_from_a_required_tool_to_the_deny_of_its_prerequisite() -> None:
    findings = findings_on(rules({"type": "require", "tool": "x"}, before("a", "x"), tool_rules=[{"deny": ["a"]}]))

    assert finding_with("never_satisfied", findings).witness == (
        "`x` needs `a` (`before-1`)",
        "`a` is never allowed (`deny-1`)",
    )


def test_a_transition_that_an_earlier_one_always_preempts_is_rejected() -> None:
    """The first declared transition fires, so a later one with more inputs never does."""
    findings = findings_on(net({"tools": ["a"]}, {"inputs": ["p"], "tools": ["a"]}, initial_marking={"p": 1}))

    assert "`t1`" in finding_with("dead_transition", findings).message


def test_an_unbounded_net_is_rejected_with_the_transitions_that_repeat() -> None:
    """The witness is the prefix, then the cycle."""
    grows = (
        {"inputs": ["p"], "outputs": ["q"], "tools": ["a"]},
        {"inputs": ["q"], "outputs": ["q", "r"], "tools": ["b"]},
        {"inputs": ["r"], "outputs": ["r"], "tools": ["c"]},
    )
    finding = finding_with("unbounded_net", findings_on(net(*grows, initial_marking={"p": 1})))

    assert finding.witness == ("t0", "t1")
    assert "`r` gains tokens" in finding.message
    assert refusal_codes(net(*grows, initial_marking={"p": 1}, capacity={"r": 5})) == []


def test_a_net_with_too_many_markings_is_reported() -> None:
    spending = [{"inputs": [place], "tools": [place]} for place in "abcdef"]
    findings = findings_on(net(*spending, initial_marking=dict.fromkeys("abcdef", 9)))

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
def test_doubtful_rules_are_reported_with_their_witness(
    documents: list[dict[str, Any]], code: str, witness: tuple[str, ...]
) -> None:
    """They are reported, not rejected."""
    findings = findings_on(*documents)

    assert findings.refusals == ()
    assert finding_with(code, findings).witness == witness


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
def test_rules_that_decide_something_are_not_reported(documents: list[dict[str, Any]]) -> None:
    """Nor are rules that a later policy happens to cover."""
    assert findings_on(*documents) == []


def test_the_tools_of_an_agent_say_which_names_its_calls_have() -> None:
    """The agent's shell tool is `bash`, and no other tool is."""
    agent = Capabilities(gate="all", tools=(tool("Shell", "bash", "command"), "Look"))
    deny = {"deny": ["bash"], "action": "deny"}

    def codes(*allowed: str) -> list[str]:
        return [each.code for each in findings_on({"tool_rules": [{"allow": [*allowed]}, deny]}, capabilities=agent)]

    assert (codes("Shell"), codes("Look")) == ([], ["shadowed"])


@pytest.mark.parametrize(("allowed", "wanted", "codes"), [
    ("Shell", "bash", []), ("bash", "Shell", []), ("Look", "bash", ["never_satisfied"]),
])  # fmt: skip
def test_a_required_tool_may_be_allowed_by_any_name_of_its_calls(allowed: str, wanted: str, codes: list[str]) -> None:
    """A call of `Shell` is also named `bash`, and an allow list may use either name."""
    agent = Capabilities(gate="all", tools=(tool("Shell", "bash", "command"), "Look"))
    document = rules({"type": "require", "tool": wanted}, tool_rules=[{"allow": [allowed]}])

    assert [each.code for each in findings_on(document, capabilities=agent)] == codes


def test_aliases_that_differ_only_in_case_stand_for_all_their_tools_in_preflight_and_in_the_monitor() -> None:
    """`check` is denied, so `Verify` can't be satisfied by it; but `Verify` still comes before `Refund`."""
    document = rules(
        before("Identify", "Refund"),
        aliases={"Identify": ["Verify"], "identify": ["Check"]},
        tool_rules=[{"deny": ["check"]}],
    )

    assert refusal_codes(document) == []
    assert refusal_codes({**document, "tool_rules": [{"deny": ["check", "verify"]}]}) == ["never_callable"]


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
def test_every_way_to_write_a_deny_has_the_same_findings(denier: dict[str, Any]) -> None:
    """An allow entry that it denies is rejected, and so is an allow list that it leaves empty, unless the list only
    warns. The denied tool itself is not reported as impossible; a tool that depends on it is.
    """
    allowing = {"tool_rules": [*denier.get("tool_rules", ()), {"allow": ["bash", "read"]}]}
    needing = rules(*denier.get("rules", ()), before("bash", "push"))

    assert refusal_codes({**denier, **allowing}) == ["denied_allow_entry"]
    assert refusal_codes(denier, {"tool_rules": [{"allow": ["bash", "read"]}]}) == ["denied_allow_entry"]
    assert refusal_codes({"tool_rules": [{"allow": ["bash", "read"]}]}, denier) == []
    assert refusal_codes(denier) == []
    assert (
        finding_with("never_callable", findings_on({**denier, **needing}))
        .witness[1]
        .startswith("`bash` is never allowed")
    )
    only = {"tool_rules": [{"allow": ["bash"]}]}

    assert refusal_codes(only, denier) == ["nothing_left"]
    assert refusal_codes(
        {"tool_rules": [{"allow": ["bash", "read"]}]}, {"tool_rules": [{"allow": ["bash"]}]}, denier
    ) == ["nothing_left"]
    assert refusal_codes({"tool_rules": [{"allow": ["bash"], "action": "warn"}]}, denier) == []
    assert refusal_codes(only, {"tool_rules": [{"deny": ["bash"], "action": "request_approval"}]}) == []
    assert refusal_codes(only, {"tool_rules": [{"deny": [{"tool": "bash", "where": [WHERE]}]}]}) == []


@pytest.mark.parametrize("more", [{"key": "$.id"}, {"of": "attempted"}])
def test_a_minimum_that_denied_attempts_or_no_key_satisfy_is_not_rejected(more: dict[str, Any]) -> None:
    """A count per key needs no calls if the key never has a value. Attempts count even if they are denied."""
    wanted = {"type": "count", "tool": "a", "min": 2, **more}

    assert refusal_codes(rules(wanted, tool_rules=[{"deny": ["a"]}])) == []
    assert refusal_codes(rules(wanted, {"type": "max_calls", "tool": "a", "max": 1})) == []
    assert refusal_codes(rules({"type": "count", "tool": "a", "min": 2}, tool_rules=[{"deny": ["a"]}])) != []


def test_the_table_of_finding_codes_matches_the_sources() -> None:
    sources = Path(__file__).parents[3] / "policies" / "analysis"
    text = "".join(path.read_text() for path in sources.glob("*.py"))

    assert set(re.findall(r'finding\(\s*"(\w+)"', text)) | {"loosened", "loosened_limit"} == set(CODES)
