"""What rules decide and where policies differ, answered by hand in `rule_proofs.yaml`; the time questions share."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.adapters.evaluate import judge_session
from proctor.adapters.evaluate.counterexamples import session_of
from proctor.adapters.evaluate.proofs import Prover, SharedTime, record_of
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


def test_a_question_for_which_the_time_was_too_short_says_that_it_was_shared() -> None:
    """With two others; what is quick is answered all the same. Alone it has all the time; of one that somebody stops,
    as Ctrl-C does, the time is not to blame, and all questions stop.
    """
    shared = SharedTime(3, seconds=0)

    assert shared.answer(**HARD).reason.endswith("; 3 questions shared 0 seconds, so ask it alone")
    assert shared.answer(**EASY).verdict == "proved"
    assert shared.number == 2
    for answer in (SharedTime(1, seconds=0).answer(**HARD), SharedTime(2, lambda: True).answer(**HARD)):
        assert answer.verdict == "unknown"
        assert "shared" not in answer.reason


def test_each_question_has_an_even_part_and_what_is_left_goes_to_the_others() -> None:
    """Two hard questions among twenty easy ones end in time, and neither takes the part of the other."""
    looks: list[int] = []

    def note() -> bool:
        looks.append(shared.number)
        return False

    shared = SharedTime(22, note, seconds=2)

    for _ in range(20):
        assert shared.answer(**EASY).verdict == "proved"
    assert shared.answer(**HARD).verdict == shared.answer(**HARD).verdict == "unknown"
    assert {21, 22} <= set(looks)


def test_what_comes_after_the_time_is_not_asked() -> None:
    """Rules and tools that come first have their answers; of the others nothing is even made ready."""
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
def test_a_session_that_takes_too_long_takes_as_long_where_it_is_kept(
    mine: dict[str, Any], limits: dict[str, Any]
) -> None:
    """Its events have their times, so that it is judged as it was shown."""
    [stack, limited] = read([{"limits": mine, "on_violation": "cancel"}, {"limits": limits}])
    answer = verify(stack, no_looser_than=limited)
    kept = session_of(record_of("limits", answer))

    assert [v.rule for v in judge_session(compile_policy(limited), kept).violations] == [*limits], answer


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
def test_no_more_and_no_less_is_found_of_a_stack(question: dict[str, Any]) -> None:
    """Each finding with its reason."""
    found = sanity(read(question["sane"]), prover(question))

    assert {each.question: each.reason for each in found if each.verdict != "proved"} == question["finds"]


@pytest.mark.parametrize("question", CHANGED, ids=[each["it"] for each in CHANGED])
def test_every_difference_is_found_once(question: dict[str, Any]) -> None:
    """With a shortest session, and what each policy answers to its last call."""
    found = differences(read(question["old"]), read(question["new"]), prover(question))
    shown = [
        [each.change, each.rules, len(each.session), each.old and each.old.action, each.new and each.new.action]
        for each in found
    ]

    assert shown == question["differs"]


def test_questions_about_the_rules_of_a_stack_check_no_policy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were checked as they were read, and each question is about some of their rules."""
    rules = [{"deny": [{"tool": f"t{n}", "where": [{"path": "$.a", "equals": n}]}]} for n in range(4)]
    policies = parse_policies({"name": "p", "on_violation": "deny", "tool_rules": rules})
    checked: list[Any] = []
    monkeypatch.setattr(load, "_policy", lambda *given, **more: checked.append(given))
    records = list(sanity(policies, Prover()))

    assert [record.verdict for record in records] == ["proved"] * 4
    assert checked == []
