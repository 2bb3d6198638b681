"""Findings on single stacks and differences of policies, with the expected answers in `rule_proofs.yaml`; and how
questions share time.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.adapters.evaluate import judge_session
from proctor.adapters.evaluate.counterexamples import session_of
from proctor.adapters.evaluate.proofs import Prover, SharedTime, calls_text, record_of
from proctor.adapters.evaluate.rule_proofs import NOT_ASKED, difference_text, differences, sanity
from proctor.policies import Policy, RunContext, compile_policy, parse_policies, verify
from proctor.policies.reading import load

TOOLS = "abcde"


def policy(*rules: dict[str, Any]) -> Policy:
    [made] = parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules)})
    return made


HARD = {
    "stack": policy(*({"type": "count", "tool": tool, "max": 40} for tool in TOOLS)),
    "keeps": policy({"type": "count", "tool": list(TOOLS), "max": 200}),
}
"""A sum that five counts keep together: they have millions of states."""
EASY = {"stack": policy(), "keeps": policy()}


def test_a_question_that_ran_out_of_time_says_that_it_was_shared() -> None:
    """With two others; quick ones are answered anyway. Alone, it has all the time. If someone interrupts, as by
    Ctrl-C, time is not the reason, and all questions stop.
    """
    shared = SharedTime(3, seconds=0)

    assert shared.answer(**HARD).reason.endswith("; 3 questions shared 0 seconds, so ask it alone")
    assert shared.answer(**EASY).verdict == "proved"
    assert shared.number == 2
    for answer in (SharedTime(1, seconds=0).answer(**HARD), SharedTime(2, lambda: True).answer(**HARD)):
        assert answer.verdict == "unknown"
        assert "shared" not in answer.reason


def test_each_question_has_an_equal_share_and_the_rest_goes_to_the_others() -> None:
    """Two hard questions among twenty easy ones end in time, and neither uses the other's share."""
    looks: list[int] = []

    def note() -> bool:
        looks.append(shared.number)
        return False

    shared = SharedTime(22, note, seconds=2)

    for _ in range(20):
        assert shared.answer(**EASY).verdict == "proved"
    assert shared.answer(**HARD).verdict == shared.answer(**HARD).verdict == "unknown"
    assert {21, 22} <= set(looks)


def test_questions_after_the_deadline_are_not_started() -> None:
    """The first rules and tools have answers; nothing is prepared for the others."""
    stack = policy(*({"type": "count", "tool": tool, "max": 1} for tool in TOOLS))
    answers = SharedTime(10)
    found = list(sanity([stack], Prover(answers.answer, lambda: answers.number >= 3)))

    assert SharedTime(1, seconds=-1).over()
    assert answers.number == 3
    assert [record.verdict for record in found] == ["proved"] * 3 + ["unknown"] * 7
    assert {record.reason for record in found[3:]} == {NOT_ASKED}

    answers = SharedTime(10)
    [*shown, last] = differences([stack], [policy()], Prover(answers.answer, lambda: answers.number >= 3))
    assert [difference.verdict for difference in shown] == ["refuted"] * 2
    assert (last.verdict, last.reason, last.rules) == ("unknown", NOT_ASKED, [f"count-{n}" for n in (3, 4, 5)])
    assert "`count-3`, `count-4`, `count-5`: not" in difference_text(last).plain


@pytest.mark.parametrize(("mine", "limits"), [
    ({}, {"max_idle_ms": 2_000}),
    ({}, {"max_duration_ms": {"max": 2_000, "scope": "session"}}),
    ({"max_duration_ms": 1_000}, {"max_duration_ms": {"max": 3_000, "scope": "session"}}),
    ({"max_idle_ms": 1_000}, {"max_duration_ms": 3_000}),
])  # fmt: skip
def test_a_saved_session_keeps_its_duration(mine: dict[str, Any], limits: dict[str, Any]) -> None:
    """Its events have times, so it is evaluated as it was shown."""
    [stack, limited] = read([{"limits": mine, "on_violation": "cancel"}, {"limits": limits}])
    answer = verify(stack, no_looser_than=limited)
    kept = session_of(record_of("limits", answer))

    assert [v.rule for v in judge_session(compile_policy(limited), kept).violations] == [*limits], answer


def test_a_saved_session_has_runs_without_a_call() -> None:
    """What breaks the policy there is shown, too."""
    mine = {"limits": {"max_turns": 1}, "tool_rules": [{"deny": ["*"]}]}
    [stack, limited] = read([mine, {"limits": {"max_turns": {"max": 2, "scope": "session"}}}])
    record = record_of("turns", verify(stack, keeps=limited))

    assert [call["before"] for call in record.session] == [[{"turn": 1, "run": 3}]]
    assert [v.rule for v in judge_session(compile_policy(limited), session_of(record)).violations] == ["max_turns"]


QUESTIONS: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("rule_proofs.yaml").read_text(), yaml.CSafeLoader
)
SANE = [each for each in QUESTIONS if "sane" in each]
CHANGED = [each for each in QUESTIONS if "old" in each]


def read(written: Any) -> list[Policy]:
    documents = written if isinstance(written, list) else [written]
    named = ({"name": f"p{n}", "on_violation": "deny", **each} for n, each in enumerate(documents))
    return [policy for each in named for policy in parse_policies(each, file="p.yaml")]


def prover(question: dict[str, Any]) -> Prover:
    """`verify` in the context of a question, if it has one."""
    return Prover(partial(verify, context=RunContext(**question["context"]) if "context" in question else None))


@pytest.mark.parametrize("question", SANE, ids=[each["it"] for each in SANE])
def test_the_findings_on_a_stack_are_exactly_the_expected_ones(question: dict[str, Any]) -> None:
    """Each with its reason."""
    found = sanity(read(question["sane"]), prover(question))

    assert {each.question: each.reason for each in found if each.verdict != "proved"} == question["finds"]


@pytest.mark.parametrize("question", CHANGED, ids=[each["it"] for each in CHANGED])
def test_every_difference_is_found_once(question: dict[str, Any]) -> None:
    """With a shortest session, and both decisions on its last call."""
    found = differences(read(question["old"]), read(question["new"]), prover(question))
    shown = [
        [each.change, each.rules, len(each.session), each.old and each.old.action, each.new and each.new.action]
        for each in found
    ]

    assert shown == question["differs"]


def test_calls_in_a_row_that_are_alike_are_counted() -> None:
    """A limit of three hundred calls takes no six hundred lines. A call before which something happens is shown."""
    once: dict[str, Any] = {"tool": "pay", "input": {}, "decision": "allow", "outcome": "completed"}
    session = [*[once] * 40, {**once, "before": [{"turn": 2}]}, once, {**once, "outcome": "running"}]

    assert calls_text(session, {}).plain.splitlines() == [
        *("   1. pay()", "        allow, completed", "        ... 39 more calls like it"),
        *("      turn 2 begins", "  41. pay()", "        allow, completed"),
        *("  42. pay()", "        allow, completed", "  43. pay()", "        allow, running"),
    ]


def test_questions_about_the_rules_of_a_stack_check_no_policy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were checked when they were loaded, and each question is about some of their rules."""
    rules = [{"deny": [{"tool": f"t{n}", "where": [{"path": "$.a", "equals": n}]}]} for n in range(4)]
    policies = parse_policies({"name": "p", "on_violation": "deny", "tool_rules": rules})
    checked: list[Any] = []
    monkeypatch.setattr(load, "_policy", lambda *given, **more: checked.append(given))
    records = list(sanity(policies, Prover()))

    assert [record.verdict for record in records] == ["proved"] * 4
    assert checked == []
