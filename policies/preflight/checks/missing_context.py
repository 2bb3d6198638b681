"""Fields of the run's context that a `when` asks for and nobody gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...language.conditions import paths_in
from ...policy import Policy, members_of
from ...stack.budgets import effective_budgets
from ...stack.clauses import Clause, clauses_of
from ...stream.calls import RunContext
from ...values.paths import compile_path
from ..findings import Findings, PreflightFinding, finding


def missing_context(policy: Policy, context: RunContext) -> Findings:
    """What a run's context leaves out that its policy asks for; the rest of preflight is the same for every run."""
    if effective_budgets(policy):
        return Findings(context_findings(policy, clauses_of(policy), context))
    written = (c for m in members_of(policy) for c in (*m.tool_rules, *m.rules, *m.nets) if not isinstance(c, str))
    return Findings(context_findings(policy, clauses_of(policy), context) if any(c.when for c in written) else ())


def context_findings(
    policy: Policy, clauses: Iterable[Clause], context: RunContext | None
) -> Iterator[PreflightFinding]:
    """The rules of which nobody can say whether they hold for the run; None is a value like any other."""
    if context is None:
        return
    document = msgspec.to_builtins(context)
    references: list[tuple[Clause | tuple[str, str], str, Iterator[str]]]
    references = [(clause, "when", paths_in(clause.record.when)) for clause in clauses]
    for entry in effective_budgets(policy):
        named = (entry.policy, entry.budget.name)
        references += [(named, "when", paths_in(entry.budget.when)), (named, "per", iter(entry.budget.paths))]
    for about, part, paths in references:
        missing = [path for path in dict.fromkeys(paths) if not compile_path(path)(document)]
        if missing:
            fields = " and ".join(f"`{path}`" for path in missing)
            yield finding(
                "context_missing",
                about,
                f"its `{part}` asks for {fields}, which the run's context leaves out",
                witness=missing,
                suggestion="give it, or None for none",
            )
