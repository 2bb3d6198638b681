"""Conditions on one place that no value meets together: the rule that has them never applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from ..language.conditions import Condition, all_in, has_references
from ..language.predicates import condition_words
from ..language.selectors import ToolWhere
from ..policy import Policy
from ..rules.petri_net import Net
from ..rules.rule import items_of
from ..stack.clauses import Clause, clauses_of
from ..stack.merge import checked_stack, merge_policies, names_alone
from ..values.work_budget import OutOfWork, Work
from .findings import PreflightFinding, finding
from .questions import answer
from .values import atoms_of

MOST_STEPS = 1_000_000
"""The steps that all questions about one stack take: some seconds."""
_NEGATIVE = frozenset({"not_equals", "not_in"})


def contradictions(policy: Policy) -> Iterator[PreflightFinding]:
    """The rules with conditions that contradict one another, as far as that is certain, one finding for each set of
    conditions. One more finding says that not all were compared.
    """
    stack = checked_stack(policy)
    names = [merge_policies([member]) for member in names_alone(stack)]
    work, compared, left = Work(MOST_STEPS), dict[bytes, bool](), 0
    for clause in clauses_of(stack):
        for where, conditions in _conditions(clause):
            key = msgspec.json.encode((clause.member, where))
            try:
                work.spend()
                if key not in compared:
                    compared[key] = _never(names[clause.member], where, work)
            except OutOfWork:
                left += 1
                continue
            if compared[key]:
                yield finding(
                    "contradictory_conditions",
                    clause,
                    f"no call meets these conditions together: {condition_words(conditions)}",
                    suggestion="write `any_of` for alternatives; as it is they never hold",
                )
    if left:
        yield finding(
            "not_finished",
            (stack.name, ""),
            f"there is too much to compare: {left} sets of conditions were not searched for contradictions",
        )


def _conditions(clause: Clause) -> Iterator[tuple[ToolWhere, Sequence[Condition]]]:
    """The sets of conditions of a clause that could contradict one another, each as a selector."""
    for selector in clause.roles.all():
        for item in items_of(selector):
            if isinstance(item, ToolWhere) and _compares(item.where):
                yield item, item.where
    when: tuple[Condition, ...] = () if isinstance(clause.record, Net) else clause.record.when
    # Numbers and texts are told apart in a context: only what is not negated is met there by no more than here.
    negated = any(c.not_ is not UNSET or any(name in _NEGATIVE for name, _ in c.operators()) for c in all_in(when))
    if _compares(when) and not negated:
        yield ToolWhere(tool="*", where=when), when


def _compares(conditions: Sequence[Condition]) -> bool:
    """Whether two operators look at one path."""
    if has_references(conditions):
        return False
    paths = Counter(path for path, _ in atoms_of(conditions))
    return any(count > 1 for count in paths.values())


def _never(names: Policy, where: ToolWhere, work: Work) -> bool:
    """Whether it is proved that the selector means no call, and its tool some."""

    def reached(selector: ToolWhere) -> str:
        return answer(names, {"reach": msgspec.to_builtins(selector)}, None, None, work).verdict

    return reached(where) == "proved" and reached(ToolWhere(tool=where.tool)) == "refuted"
