"""Calls that the adapter does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...policy import Allow, Deny, Policy, members_of
from ...rules.wording import items_of
from ...stack.clauses import Clause
from ...stream.calls import Capabilities
from ..findings import PreflightFinding, finding


def adapter_findings(
    policy: Policy, clauses: Sequence[Clause], capabilities: Capabilities | None
) -> Iterator[PreflightFinding]:
    """What an adapter cannot hold of a stack; nothing if it is not known what it can do."""
    if capabilities is None:
        return
    if capabilities.gate != "all":
        yield from _required(policy, capabilities.gate)
        yield from _only_observed(clauses, capabilities)


def _required(policy: Policy, gate: str) -> Iterator[PreflightFinding]:
    for member in members_of(policy):
        if member.enforcement == "required":
            yield finding(
                "cannot_gate",
                (member.name, ""),
                f"`enforcement: required`, but the adapter holds {_held(gate)} before they run",
                witness=(f"gate: {gate}",),
                suggestion="use an adapter that gates every call, or use `enforcement: best_effort`",
            )


def _held(gate: str) -> str:
    return "only some calls" if gate == "some" else "no calls"


def _only_observed(clauses: Iterable[Clause], capabilities: Capabilities) -> Iterator[PreflightFinding]:
    """For each policy the rules that refuse, and those that ask, where nothing is held."""
    found: dict[tuple[str, bool], list[str]] = {}
    for clause in clauses:
        if clause.action != "warn" and not _compiled(clause, capabilities.compiles):
            found.setdefault((clause.policy, clause.refuses), []).append(clause.id)
    for (policy, refuses), ids in found.items():
        effect = "end the run once they see it" if refuses else "only signal: the run continues"
        yield finding(
            "only_observed",
            (policy, ""),
            f"the adapter holds {_held(capabilities.gate)} before they run; these rules can {effect}: "
            + ", ".join(f"`{id}`" for id in ids),
            witness=tuple(ids),
        )


def _compiled(clause: Clause, parts: Sequence[str]) -> bool:
    """Whether the adapter's own launch options can keep the calls out."""
    if not isinstance(clause.record, Allow | Deny):
        return False
    named = all(isinstance(item, str) for item in items_of(clause.record.tools))
    return ("allow" if isinstance(clause.record, Allow) else "deny") in parts and clause.always and named
