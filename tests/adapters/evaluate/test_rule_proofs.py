"""What rules decide, and where two policies differ, answered by hand: `rule_proofs.yaml`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.adapters.evaluate.rule_proofs import differences, sanity
from proctor.policies import Policy, RunContext, parse_policies, verify

QUESTIONS: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("rule_proofs.yaml").read_text(), yaml.CSafeLoader
)
SANE = [each for each in QUESTIONS if "sane" in each]
CHANGED = [each for each in QUESTIONS if "old" in each]


def read(written: Any) -> list[Policy]:
    """One policy, or several."""
    documents = written if isinstance(written, list) else [written]
    named = ({"name": f"p{n}", "on_violation": "deny", **each} for n, each in enumerate(documents))
    return [policy for each in named for policy in parse_policies(each, file="p.yaml")]


def prover(question: dict[str, Any]) -> Any:
    """`verify` in the context of a question, if it has one."""
    return partial(verify, context=RunContext(**question["context"]) if "context" in question else None)


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
