"""Checks a stack by itself: rules that do nothing, tools that can never be called, ends never reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from proctor.policies import merge_policies
from proctor.policies.policy import Allow, Deny, members_of
from proctor.policies.rules.lists import Allowlist, Blocklist
from proctor.policies.rules.response import Eventually, Require
from proctor.policies.stack.clauses import clauses_of

from .proofs import ProofRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proctor.policies import Policy, Proved, Refuted, Unknown
    from proctor.policies.stack.clauses import Clause

_LISTS = (Allow, Deny, Allowlist, Blocklist)
_GLOB = frozenset("*?[")


class Prover(Protocol):
    """`verify` with what its questions share."""

    def __call__(self, stack: Policy, **question: Any) -> Proved | Refuted | Unknown: ...


class PlacedClause(NamedTuple):
    """A clause, and where it is written: in which policy, in which of its lists, at which place."""

    clause: Clause
    member: int
    field: str
    at: int


def sanity(policies: Sequence[Policy], prove: Prover) -> Iterator[ProofRecord]:
    """A record for each rule, each tool that a rule about order names, and each tool that a run must call.

    `refuted` is a finding. A rule that only warns is left out: it never decides.
    """
    whole = merge_policies(list(policies))
    policies = members_of(whole)
    everywhere = list(placed(policies))
    for each in everywhere:
        if each.clause.action != "warn":
            yield _rule_record(policies, everywhere, each, prove)
    for tool in _ordered_tools(everywhere):
        yield _tool_record(policies, whole, everywhere, tool, prove)


def placed(policies: Sequence[Policy]) -> Iterator[PlacedClause]:
    """Every rule, list and net of a stack."""
    clauses = iter(clauses_of(merge_policies(list(policies))))
    for member, policy in enumerate(policies):
        for field in ("tool_rules", "rules", "nets"):
            for index in range(len(getattr(policy, field))):
                yield PlacedClause(next(clauses), member, field, index)


def kept(policies: Sequence[Policy], clauses: Sequence[PlacedClause]) -> Policy:
    """The stack with no rules but these, and without limits where it is about rules alone."""
    places = {(each.member, each.field, each.at) for each in clauses}
    members = []
    for member, policy in enumerate(policies):
        left = {
            field: type(found)(each for n, each in enumerate(found) if (member, field, n) in places)
            for field in ("tool_rules", "rules", "nets")
            if (found := getattr(policy, field)) is not None
        }
        members.append(msgspec.structs.replace(policy, **left))
    return merge_policies(members)


def _rule_record(
    policies: Sequence[Policy], placed: Sequence[PlacedClause], rule: PlacedClause, prove: Prover
) -> ProofRecord:
    """Whether a rule decides anything that the others do not."""
    others = [each for each in placed if each is not rule]
    answer = prove(kept(policies, others), no_looser_than=kept(policies, [rule]))
    question = f"rule {rule.clause.id}"
    if answer.verdict == "unknown":
        return _record(question, "unknown", answer, answer.reason)
    if answer.verdict == "refuted":
        return _record(question, "proved", answer, f"`{rule.clause.id}` decides: without it this would be allowed")
    return _record(question, "refuted", answer, _why_dead(policies, others, rule, prove))


def _why_dead(policies: Sequence[Policy], others: list[PlacedClause], rule: PlacedClause, prove: Prover) -> str:
    id = rule.clause.id
    stack = kept(policies, others)
    for selector in (each for each in rule.clause.roles.all() if each):  # an approval has an empty one
        if prove(stack, reach=selector).verdict == "proved":
            return f"vacuous: no session comes to {', '.join(f'`{n}`' for n in rule.clause.patterns(selector))}"
    alone = kept(policies, [rule])
    for other in others:
        if prove(kept(policies, [other]), no_looser_than=alone).verdict == "proved":
            return f"subsumed: `{other.clause.id}` already stops all that `{id}` stops"
    return f"dead: without `{id}` the same sessions are allowed"


def _ordered_tools(placed: Sequence[PlacedClause]) -> Iterator[str]:
    """The tools that rules other than lists name, each once."""
    names: dict[str, None] = {}
    for each in placed:
        if not isinstance(each.clause.record, _LISTS):
            names |= dict.fromkeys(each.clause.patterns(*each.clause.roles.all()))
    yield from (name for name in names if not _GLOB & set(name))


def _tool_record(
    policies: Sequence[Policy], whole: Policy, placed: Sequence[PlacedClause], tool: str, prove: Prover
) -> ProofRecord:
    """Whether a tool can be called at all; one that a list denies is not meant to be."""
    question = f"callable {tool}"
    answer = prove(whole, reach=tool)
    if answer.verdict == "unknown":
        return _record(question, "unknown", answer, answer.reason)
    if answer.verdict == "refuted":
        return _record(question, "proved", answer, f"`{tool}` can be called")
    lists = [each for each in placed if isinstance(each.clause.record, _LISTS)]
    if prove(kept(policies, lists), reach=tool).verdict == "proved":
        return _record(question, "proved", answer, f"`{tool}` is denied by a list")
    blame = [each.clause.id for each in placed if prove(kept(policies, [each]), reach=tool).verdict == "proved"]
    why = f"`{blame[0]}` always denies it" if blame else "the rules together never allow it"
    required = [each.clause.id for each in placed if _requires(each.clause, tool)]
    end = f"; `{required[0]}` asks for it, so no run can finish" if required else ""
    return _record(question, "refuted", answer, f"never callable: {why}{end}")


def _requires(clause: Clause, tool: str) -> bool:
    return isinstance(clause.record, Require | Eventually) and tool in clause.patterns(clause.record.tool)


def _record(question: str, verdict: str, answer: Proved | Refuted | Unknown, reason: str) -> ProofRecord:
    return ProofRecord(
        question=question, verdict=verdict, session=answer.session, explored=answer.explored, reason=reason
    )
