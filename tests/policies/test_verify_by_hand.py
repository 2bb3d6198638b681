"""Questions to `verify` whose answers were found by thought, and by playing short sessions: `questions.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.policies import Policy, RunContext, merge_policies, parse_policies, verify
from proctor.policies.analysis.certificate import check

QUESTIONS: list[dict[str, Any]] = yaml.load(Path(__file__).with_name("questions.yaml").read_text(), yaml.CSafeLoader)


def read(written: Any) -> Policy:
    """One policy, or several as a stack; those without a name are called `p`."""
    documents = written if isinstance(written, list) else [written]
    named = [{"name": "p", "on_violation": "deny", **each} if isinstance(each, dict) else each for each in documents]
    return merge_policies([policy for each in named for policy in parse_policies(each, file="p.yaml")])


@pytest.mark.parametrize("question", QUESTIONS, ids=[each["it"] for each in QUESTIONS])
def test_the_answer_is_the_right_one(question: dict[str, Any]) -> None:
    """A proof has certificates that hold; a session that refutes is a shortest one."""
    [kind] = {"keeps", "no_looser_than", "same_as", "reach"} & question.keys()
    subject: Any = question[kind] if kind == "reach" else read(question[kind])
    context = RunContext(**question["context"]) if "context" in question else None
    answer = verify(read(question["stack"]), context=context, **{kind: subject})
    calls = sum(1 for call in answer.session if call["tool"])

    assert (answer.verdict, question.get("calls", calls)) == (question["answer"], calls), answer.reason
    assert bool(answer.certificates) == (answer.verdict == "proved")
    assert [check(each) for each in answer.certificates] == [[] for _ in answer.certificates]
