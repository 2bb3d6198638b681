"""`prove:` blocks of policy tests: what every session is expected to keep, or to be able to come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.policies import PolicyError, merge_policies, verify
from proctor.policies.reading.load import load_policies, parse_policies
from proctor.policies.values.model_base import Name, Record

from .proofs import ProofQuestion, ProofRecord, read_call, record_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from proctor.policies import Policy
    from proctor.policies.values.model_base import Complaint

_KINDS = ("property", "no_looser_than", "reach", "unreachable")


class ExpectedProof(Record, frozen=True):
    """One expectation about every session that the policies let through; it has exactly one of the four questions.

    Attributes:
        name: The proof's name; the question if not given.
        property: Rules that every allowed session keeps: a policy file, or the policy itself.
        no_looser_than: A policy file, or several: nothing is allowed that they do not allow.
        reach: A call that some session comes to, as `prove --reach` takes it.
        unreachable: A call that no session comes to.
        tools: The tools that the agent has; any if not given.
    """

    name: Name | None = None
    property: str | dict[str, Any] | None = None
    no_looser_than: Name | Sequence[Name] | None = None
    reach: Name | None = None
    unreachable: Name | None = None
    tools: Sequence[Name] = ()

    def problems(self) -> Iterator[Complaint]:
        """Exactly one question, in a form that can be read."""
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            yield (), f"it has one of {', '.join(f'`{kind}`' for kind in _KINDS)}; here are {len(given)}"
        for kind in ("reach", "unreachable"):
            if (call := getattr(self, kind)) is not None:
                try:
                    read_call(call)
                except PolicyError as error:
                    problem = error.problems[0]
                    yield (kind,), f"{problem.message}: {problem.suggestion}"


class PreparedProof(msgspec.Struct, frozen=True):
    """An expectation with its policies read: the question, the verdict expected, and the tools."""

    name: str
    question: ProofQuestion
    expected: str
    tools: tuple[str, ...]


def prepared(proof: ExpectedProof, folder: Path) -> PreparedProof:
    """Read what an expectation names, relative to `folder`. Raises PolicyError."""
    if proof.property is not None:
        argument: Any = _policy(proof.property, folder)
        text = f"property {proof.property if isinstance(proof.property, str) else argument.name}"
        question, expected = ProofQuestion(kind="property", text=text, argument=argument), "proved"
    elif proof.no_looser_than is not None:
        files = [proof.no_looser_than] if isinstance(proof.no_looser_than, str) else [*proof.no_looser_than]
        argument = merge_policies([each for file in files for each in load_policies(folder / file)])
        text = f"no looser than {' '.join(files)}"
        question, expected = ProofQuestion(kind="no_looser_than", text=text, argument=argument), "proved"
    else:
        call = proof.reach or proof.unreachable or ""
        kind, expected = ("reach", "refuted") if proof.reach is not None else ("unreachable", "proved")
        question = ProofQuestion(kind="reach", text=f"{kind} {call}", argument=read_call(call))
    return PreparedProof(proof.name or question.text, question, expected, tuple(proof.tools))


def _policy(given: str | dict[str, Any], folder: Path) -> Policy:
    if isinstance(given, str):
        return merge_policies(load_policies(folder / given))
    return merge_policies(parse_policies({"name": "property", **given}))


def judge_proof(policy: Policy, proof: PreparedProof) -> ProofRecord:
    """Answer the question of an expectation."""
    answer = verify(policy, tools=proof.tools or None, **proof.question.arguments)
    return record_of(proof.question.text, answer)
