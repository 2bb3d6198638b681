"""`verify` answers questions about whole sessions: each kind, both verdicts, and unknown.

The answers are compared with known ones (`questions.yaml`) and with brute force on the monitor.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from reference.certificates import check

from proctor.policies import Check, Proved, Refuted, Unknown, load_policies, merge_policies, parse_policies, verify
from proctor.policies.analysis import session_search
from proctor.policies.analysis.explorer import shortest
from proctor.policies.analysis.questions import OWN_NAMES
from proctor.policies.events.run_context import RunContext, Tool
from proctor.policies.policy import Policy
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.values.paths import compile_path
from tests.fuzz.broken_policies import distinguish, variants
from tests.fuzz.proof_pairs import pair
from tests.fuzz.proofs import compared, sanity_compared

EXAMPLES = Path(__file__).parents[3] / "examples"


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    [made] = parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules), **more})
    return made


def deny(**where: Any) -> dict[str, Any]:
    """A tool rule that denies payments whose amount satisfies this."""
    return {"deny": [{"tool": "pay", "where": [{"path": "$.amount", **where}]}]}


TESTED = {"type": "before", "first": "test", "then": "push"}
COUNT = {"type": "count", "tool": "push", "max": 2}


def test_two_stacks_are_proved_equal_or_refuted() -> None:
    """The refutation names the stack that allows more."""
    same = verify(policy(COUNT), same_as=policy({"type": "max_calls", "tool": "push", "max": 2}))
    assert isinstance(same, Proved)
    other = verify(policy(tool_rules=[deny(gt=100)]), same_as=[policy(tool_rules=[deny(gte=100)])])
    assert isinstance(other, Refuted)
    assert other.session[0]["input"] == {"amount": 100}


def test_a_call_is_reachable_by_a_session_or_proved_unreachable() -> None:
    """The session may include approvals."""
    asks = policy({**TESTED, "first": "human-approval"})
    reached = verify(asks, reach="push")
    assert isinstance(reached, Refuted)
    assert reached.session[-1]["decision"] == "request_approval"
    assert isinstance(verify(policy(TESTED, tool_rules=[{"deny": ["test"]}]), reach="push"), Proved)
    main = {"tool": "push", "where": [{"path": "$.branch", "equals": "main"}]}
    found = verify(policy(TESTED), reach=main)
    assert [step["tool"] for step in found.session] == ["test", "push"]
    assert isinstance(verify(policy(TESTED), reach="push", tools=["push"]), Proved)


@pytest.mark.parametrize(
    ("tools", "taken"), [(["run"], True), ([Tool(name="run", acts=("bash",))], False), (None, True)]
)
def test_an_answer_about_a_portable_name_says_if_no_known_tool_has_it(tools: Any, taken: bool) -> None:
    """In the table, `bash` is the agent's tool `run`."""
    answer = verify(policy(tool_rules=[{"allow": ["run"]}]), reach="bash", tools=tools)

    assert isinstance(answer, Proved if taken else Refuted)
    assert (OWN_NAMES in answer.explored["bounded"]) is taken


def test_two_versions_of_a_policy_are_told_apart_in_an_answer() -> None:
    """They have the same name, so only an answer that says which of them allows more is one."""
    strict, loose = policy({**COUNT, "max": 1}), policy({**COUNT, "max": 2})
    name = strict.name
    answers = [verify(loose, no_looser_than=strict), verify(loose, same_as=strict), verify(strict, same_as=loose)]

    assert [answer.reason.split(": rule")[0] for answer in answers] == [
        f"a session that `{name}` allows is denied by the other `{name}`",
        f"`{name}` allows what the other `{name}` does not",
        f"the other `{name}` allows what `{name}` does not",
    ]


def test_every_context_is_searched_unless_one_is_given() -> None:
    """A rule for some runs does not hold for all runs."""
    some = policy({**COUNT, "when": [{"path": "$.tenant", "equals": "acme"}]})
    assert isinstance(verify(some, keeps=policy(COUNT)), Refuted)
    assert isinstance(verify(some, keeps=policy(COUNT), context=RunContext(tenant="acme")), Proved)
    many = policy(*({**COUNT, "when": [{"path": f"$.labels.l{n}", "equals": "x"}]} for n in range(8)))
    unknown = verify(many, keeps=many)
    assert isinstance(unknown, Unknown)
    assert "context" in unknown.reason
    assert isinstance(verify(many, keeps=many, context=RunContext(labels={"l1": "x"})), Proved)


def test_unsupported_rules_give_unknown_with_the_reason() -> None:
    """Python checks and conditions on earlier outputs, unless both stacks have the same rule."""
    checks = Policy(name="p", on_violation="deny", rules=[Check(check=bool)])
    answer = verify(policy(), keeps=checks)
    assert isinstance(answer, Unknown)
    assert "Python" in answer.reason
    assert isinstance(verify(checks, keeps=checks), Unknown), "it may warn, and the call runs"
    assert isinstance(verify(checks, same_as=checks), Proved)
    where = [{"path": "$.to", "not_in": {"output_of": ["users"], "path": "$.id"}}]
    listed = policy(tool_rules=[{"deny": [{"tool": "mail", "where": where}]}])
    assert isinstance(verify(listed, keeps=policy({**TESTED, "first": "users", "then": "mail"})), Unknown)
    assert isinstance(verify(listed, keeps=listed), Proved)
    more = policy({**COUNT, "max": 3})
    assert isinstance(verify(policy(COUNT), keeps=more, steps=1), Unknown)
    assert isinstance(verify(policy(COUNT), keeps=more, should_stop=lambda: True, steps=1), Unknown)


def test_states_followed_together_count_as_steps() -> None:
    """Memory and time grow with the states that the search follows together, so these must use up its steps."""
    loop = {"type": "loop", "window": 4, "threshold": 3, "tool": ["a", "b"], "key": "$.k"}
    stack = policy({"type": "require", "tool": "b"}, loop)

    got = verify(stack, no_looser_than=policy({**loop, "window": 3}), steps=800_000)

    assert isinstance(got, Unknown)
    assert got.explored["states"] < 2_000, "all the steps there are led to 200,000, which took minutes"


@pytest.mark.parametrize("other", ["$[*]", "$"])
def test_keys_with_overlapping_values_are_not_proved_equivalent(other: str) -> None:
    """A count per value anywhere denies calls that share `b`; a count per `a` allows them."""
    one, two = (policy({**COUNT, "key": key}) for key in ("$.a", other))

    assert [verify(a, no_looser_than=b).verdict for a, b in ((one, two), (two, one))] == ["unknown", "unknown"]
    assert isinstance(verify(one, no_looser_than=policy({**COUNT, "key": "$.a[*]"})), Proved)


@pytest.mark.parametrize("action", ["cancel", "deny", "request_approval", "warn"])
@pytest.mark.parametrize("limit", ["max_cost_usd", "max_tool_calls", "max_running"])
def test_a_budget_may_be_used_up_by_other_runs(limit: str, action: str) -> None:
    """The stack with the budget keeps it. A stack without it is refuted by a call for which nothing may be left."""
    budget = policy(budgets=[{"name": "b", limit: 5, "action": action}])
    less = policy(budgets=[{"name": "b", limit: 4, "action": "cancel"}])

    assert isinstance(verify(policy(), no_looser_than=budget), Proved if action == "warn" else Refuted)
    found = verify(policy(), keeps=budget)
    assert isinstance(found, Refuted)
    assert {"budget": "p/b"} in found.session[-1]["before"]
    assert isinstance(verify(less, no_looser_than=budget), Proved)
    assert isinstance(verify(budget, no_looser_than=less), Refuted)


@pytest.mark.parametrize(("key", "shown"), [({}, ""), ({"key": "team of ana"}, " of team of ana")])
def test_a_budget_may_have_any_name_and_key(key: dict[str, str], shown: str) -> None:
    [budget] = parse_policies({"name": "rules of ops", "budgets": [{"name": "b", "max_tool_calls": 5, **key}]})
    found = verify(policy(), no_looser_than=budget)

    assert isinstance(found, Refuted), found.reason
    assert found.session[-1]["before"] == [{"budget": f"rules of ops/b{shown}"}]


def test_verify_takes_exactly_one_question() -> None:
    wrong: list[dict[str, Any]] = [{}, {"keeps": policy(), "reach": "a"}, {"reach": 7}, {"keeps": "p.yaml"}]
    for arguments in [*wrong, {"reach": "a", "tools": []}]:
        with pytest.raises(ValueError, match=r"question|expected"):
            verify(policy(), **arguments)


def test_a_rule_of_both_stacks_is_proved_without_a_search() -> None:
    """The rules are identical, however large their state space is."""
    keyed = {"type": "count", "tool": "pay", "max": 9, "key": "$.to"}
    stack = policy(TESTED, {**keyed, "id": "nine"}, {"type": "loop", "window": 9, "threshold": 8})
    answer = verify(stack, no_looser_than=policy(keyed), steps=100)
    assert isinstance(answer, Proved), answer.reason
    assert answer.explored["states"] == 0


def test_a_direction_that_is_too_large_does_not_hide_a_refutation_of_the_other() -> None:
    """`same_as` compares both directions. One needs too many steps; the other is refuted."""
    mail = {"type": "count", "tool": "mail"}
    strict = policy(
        {**mail, "max": 10},
        {**mail, "max": 2, "key": "$.to"},
        {**mail, "max": 3, "within_turns": 10},
        {"type": "blocklist", "tools": ["z"]},
    )
    loose = policy({**mail, "max": 9, "within_turns": 40})
    assert isinstance(verify(strict, no_looser_than=loose, steps=50_000), Unknown)
    for one, other in ((strict, loose), (loose, strict)):
        assert isinstance(verify(one, same_as=other, steps=100_000), Refuted)


def test_a_certificate_that_was_tampered_with_is_rejected() -> None:
    """It lacks a state, a class of calls, or a rule of the stack."""
    [certificate] = verify(policy(TESTED), keeps=policy({**TESTED, "first_must": "started"})).certificates
    assert check(certificate) == []
    for state in certificate.states:
        assert check(certificate._replace(states=certificate.states - {state})), state
    product = certificate.product
    assert check(certificate._replace(product=product._replace(calls=product.calls[1:])))
    assert check(certificate._replace(product=product._replace(stack=product.stack[:0])))


@pytest.mark.parametrize("name", ["coding_agent", "deployment", "patient_data", "payments"])
def test_a_rule_removed_from_an_example_is_noticed(name: str) -> None:
    """Each policy is as strict as itself. Without one of its rules it is weaker, or provably equal."""
    whole = merge_policies(load_policies(EXAMPLES / name / "policy.yaml"))
    assert isinstance(verify(whole, same_as=whole), Proved)
    for n, rule in enumerate(whole.rules):
        [member] = load_policies(EXAMPLES / name / "policy.yaml")
        rules = tuple(each for m, each in enumerate(member.rules) if m != n)
        answer = verify(msgspec.structs.replace(member, rules=rules), no_looser_than=whole)
        same = (name, rule.id) == ("deployment", "verify-after")  # this rule only warns
        assert isinstance(answer, Proved if same else Refuted), rule.id


def test_a_search_expands_no_state_as_far_away_as_the_goal() -> None:
    """Of several goals, the first of the nearest is the answer."""
    looked_at: list[int] = []

    def steps(at: int) -> Iterator[tuple[str, tuple[int, int], int | None]]:
        looked_at.append(at)
        yield from ((f"to {at * 2 + n}", (1, 0), at * 2 + n) for n in (0, 1))
        yield from [("far", (2, 0), None), ("near", (1, 0), None)] if at == 2 else []

    assert shortest(1, steps).steps == ["to 2", "near"]
    assert looked_at == [1, 2, 3]


def befores(*orders: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"type": "before", "first": first, "then": then} for first, then in orders]


CHECKS = [f"check{n}" for n in range(16)]
NEEDED: dict[str, tuple[Policy, int]] = {
    "sixteen checks": (policy(*befores(*((check, "push") for check in CHECKS))), 17),
    "checks that need others": (
        policy(*befores(*((check, "push") for check in CHECKS[:6]), *((f"{c} first", c) for c in CHECKS[:6]))), 13
    ),
    "a call for all of them": (policy(*befores(*(("test", name) for name in CHECKS[:6]), ("test", "push"))), 2),
    "nets": (policy(nets=[f"require {check} before push" for check in CHECKS]), 17),
    "checks of the same thing": (
        policy(*({**rule, "key": "$.id"} for rule in befores(*((check, "push") for check in CHECKS[:6])))), 7
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_a_call_that_needs_many_others_is_reached_without_every_order_of_them(name: str) -> None:
    """Of sixteen calls there are 65,536 sets, and the search looked at all of them."""
    stack, calls = NEEDED[name]
    answer = verify(stack, reach="push", steps=1_000_000)

    assert isinstance(answer, Refuted), answer.reason
    assert len(answer.session) == calls


def test_a_call_that_the_property_forbids_later_may_serve_several_rules_before() -> None:
    """It breaks nothing yet, and is one call in place of four: it was counted as four to come."""
    checks = [{"type": "before", "first": ["save", check], "then": "open"} for check in CHECKS[:4]]
    forbids = policy({"type": "never_after", "trigger": "open", "forbidden": ["save", "send"]})
    answer = verify(policy(*checks, *befores(("sign", "save"))), keeps=forbids)

    assert isinstance(answer, Refuted)
    assert [call["tool"] for call in answer.session[:3]] == ["sign", "save", "open"]
    assert len(answer.session) == 4


@pytest.mark.parametrize("number", range(40))
def test_looking_ahead_changes_neither_an_answer_nor_its_length(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only changes which states the search looks at first."""
    question = pair(random.Random(f"ahead {number}"))
    answers = []
    for fewest in (1, 1_000):
        monkeypatch.setattr(session_search, "FEWEST_PARTS", fewest)
        answers.append(verify(question.stack, **question.arguments, steps=200_000))
    one, other = (each.verdict for each in answers)
    lengths = {len(answer.session) for answer in answers}

    assert one == other or "unknown" in (one, other)
    assert len(lengths) == 1 or one != other or answers[0].explored["bounded"] != answers[1].explored["bounded"]


def test_importing_the_policies_does_not_import_the_search() -> None:
    code = "import sys, proctor.policies; print('proctor.policies.analysis.questions' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_a_rule_that_warns_but_asks_for_approval_counts_in_a_comparison() -> None:
    """`before` with `human-approval` as its `first` asks whatever its action is, so a stack without it is weaker."""
    asks = policy({"type": "before", "first": "human-approval", "then": "pay", "action": "warn"})

    assert isinstance(verify(policy(), no_looser_than=asks), Refuted)
    assert isinstance(verify(asks, no_looser_than=asks), Proved)


TOO_LARGE = (
    {"path": "$.x", "length": 500_000_000},
    *({"path": f"$.x{at}", "equals": 1} for at in ("[99999999]", "[999]" * 4)),
)


@pytest.mark.parametrize("condition", TOO_LARGE)
def test_an_input_too_large_to_build_gives_unknown(condition: dict[str, Any]) -> None:
    allowed = policy(tool_rules=[{"allow": [{"tool": "a", "where": [condition]}]}])

    assert isinstance(verify(allowed, reach="a"), Unknown)


def test_a_call_in_text_form_is_not_a_selector() -> None:
    """It would be read as the name of a tool that does not exist."""
    with pytest.raises(ValueError, match=r"`send\(\)` is a call"):
        verify(policy(), reach="send()")


@pytest.mark.parametrize("path", ["$.x[-1]", "$.x[-3]", "$.x[2]", "$.x[-2].y[-2]"])
def test_a_list_index_from_either_end_can_be_reached(path: str) -> None:
    """The session has a list that is long enough."""
    allowed = policy(tool_rules=[{"allow": [{"tool": "a", "where": [{"path": path, "equals": 1}]}]}])

    assert isinstance(verify(allowed, reach="a"), Refuted)


def test_a_number_of_a_denied_text_length_is_still_a_number() -> None:
    """Its digits have the length of the denied text."""
    texts = policy(tool_rules=[deny(type="string", length=6)])

    assert isinstance(verify(texts, no_looser_than=policy(tool_rules=[deny(length=6)])), Refuted)


def test_a_number_used_as_a_key_is_distinguished_from_classes_of_other_values() -> None:
    """A few values stand for all that the conditions can't distinguish, so the search stays small."""
    each = {"type": "count", "tool": "pay", "max": 1, "key": "$.to"}
    seven = {"tool": "pay", "where": [{"path": "$.to", "equals": 7}]}
    stack = policy(each, {"type": "blocklist", "tools": [seven]})
    answer = verify(stack, no_looser_than=policy({**each, "tool": seven}), steps=100_000)
    assert isinstance(answer, Proved), answer.reason
    assert [check(certificate) for certificate in answer.certificates] == [[]]
    assert isinstance(verify(policy({**each, "max": 2}), no_looser_than=policy({**each, "tool": seven})), Refuted)


@pytest.mark.parametrize("path", ["$.tenant", "$.labels.env", "$.labels.teams[*]"])
@pytest.mark.parametrize("operator", ["equals", "not_equals"])
def test_the_context_of_a_counterexample_has_every_value_that_a_when_reads(path: str, operator: str) -> None:
    """Without one, no run starts. The value may be null."""
    rule = {"type": "count", "tool": "pay", "max": 1}
    when = {**rule, "when": [{"path": path, operator: "x"}]}
    stack, base = (when, rule) if operator == "equals" else ({**rule, "max": 2}, when)
    answer = verify(policy(stack), no_looser_than=policy(base))

    assert isinstance(answer, Refuted)
    values = compile_path(path)(answer.context)
    assert values
    assert "x" not in values


QUESTIONS: list[dict[str, Any]] = yaml.load(Path(__file__).with_name("questions.yaml").read_text(), yaml.CSafeLoader)


def read(written: Any) -> Policy:
    """One policy, or several as a stack. A policy without a name is called `p`."""
    documents = written if isinstance(written, list) else [written]
    named = [{"name": "p", "on_violation": "deny", **each} if isinstance(each, dict) else each for each in documents]
    return merge_policies([policy for each in named for policy in parse_policies(each, file="p.yaml")])


@pytest.mark.parametrize("question", QUESTIONS, ids=[each["it"] for each in QUESTIONS])
def test_the_answer_matches_the_table(question: dict[str, Any]) -> None:
    """The certificates of a proof are valid; a counterexample is as short as possible."""
    [kind] = {"keeps", "no_looser_than", "same_as", "reach"} & question.keys()
    subject: Any = question[kind] if kind == "reach" else read(question[kind])
    context = RunContext(**question["context"]) if "context" in question else None
    answer = verify(read(question["stack"]), context=context, **{kind: subject})
    calls = sum(1 for call in answer.session if call["tool"])

    assert (answer.verdict, question.get("calls", calls)) == (question["answer"], calls), answer.reason
    assert bool(answer.certificates) == (answer.verdict == "proved")
    assert [check(each) for each in answer.certificates] == [[] for _ in answer.certificates]


LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""The number of single stacks in a long run. If unset, some small ones are used."""


@pytest.mark.parametrize("seeds", [range(n, n + 8) for n in range(0, 32, 8)], ids=str)
def test_generated_questions_have_the_same_answers_by_brute_force(seeds: range) -> None:
    """No counterexample to a proof, no shorter one than a refutation's, and few unknowns."""
    answers = []
    for seed in seeds:
        rng = random.Random(seed)
        answers.append(compared(pair(rng), rng, depth=3)[0].verdict)
    assert answers.count("unknown") <= 1


def test_findings_on_a_single_stack_hold_by_brute_force() -> None:
    """Rules that are subsumed, vacuous or dead, and tools that can't be called."""
    findings: set[str] = set()
    for seed in range(LONG) or range(6, 46):
        rng = random.Random(f"alone {seed}")
        question = pair(rng)
        if LONG or 2 <= len(list(clauses_of(question.stack))) <= 3:
            findings.update(sanity_compared(question, rng, depth=2))
    assert (
        {"never callable", "subsumed", "vacuous"}
        <= findings
        <= {"cannot finish", "dead", "never callable", "subsumed", "vacuous"}
    )


@pytest.mark.parametrize("name", ["no-push", "org", "known-accounts"])
def test_a_mutated_policy_is_distinguished_from_its_original(name: str) -> None:
    """Every variant of a few policies. The long run `policies` compares the variants of all."""
    answers = {variant.way: distinguish(variant) for variant in variants() if variant.policy == name}
    assert set(answers.values()) <= {"refuted", "no policy"}, answers
