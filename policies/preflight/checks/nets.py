"""Nets with transitions that never fire, that grow without bound, or that hold nothing back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...rules.nets.machine import NetMachine
from ...rules.nets.written import Net
from ...rules.wording import names
from ...stack.clauses import Clause
from ..alphabet.call_classes import Kinds
from ..findings import PreflightFinding, finding
from ..search.growth import MAX_STATES, Walked, walk
from ..search.system import System


def net_findings(clauses: Iterable[Clause], kinds: Kinds) -> Iterator[PreflightFinding]:
    """What is wrong with the nets of a stack; those of one line are right by their making."""
    for clause in clauses:
        if not isinstance(clause.record, Net):
            continue
        if clause.line:
            yield from _idle(clause, clause.record, kinds)
        else:
            machine = NetMachine(clause.record, clause.scope)
            system = System(clause, machine, kinds, {})
            yield from _found(
                clause, clause.record, walk(machine, {system.mask(*kind) for kind in kinds.all}, kinds.work)
            )


def _idle(clause: Clause, net: Net, kinds: Kinds) -> Iterator[PreflightFinding]:
    """`require a before a`, `limit a to 3 per a`: the tool lets itself through."""
    always = [kinds.of(t.tools, clause) for t in net.transitions if not t.inputs and t.type == "auto"]
    for transition in net.transitions:
        held = kinds.of(transition.tools, clause)
        if transition.inputs and any(held <= free for free in always):
            yield finding(
                "idle_net",
                clause,
                f"`{net.name}` holds nothing back: a call of {names(transition.tools)} lets itself through",
                witness=(f"{names(transition.tools)} is its own condition",),
                suggestion="name another tool",
            )


def _found(clause: Clause, net: Net, walked: Walked) -> Iterator[PreflightFinding]:
    if walked.growth:
        trace = " -> ".join(walked.growth)
        yield finding(
            "unbounded_net",
            clause,
            f"net `{net.name}` grows without bound: {trace} can be repeated for ever, and "
            f"{', '.join(f'`{place}`' for place in walked.growing)} gains tokens each time",
            witness=(*walked.lead, *walked.growth),
            suggestion=f"give `{walked.growing[0]}` a `capacity`",
        )
    elif not walked.complete:
        yield finding(
            "gave_up",
            clause,
            f"net `{net.name}` has more than {MAX_STATES:,} markings: not all were looked at",
        )
    else:
        for n, transition in enumerate(net.transitions):
            if n in walked.fired:
                continue
            seen = ", ".join(f"{p}: {most}" for p, most in zip(net.places, walked.highest, strict=True))
            yield finding(
                "dead_transition",
                clause,
                f"transition `{transition.name}` of net `{net.name}` can never fire",
                witness=(f"takes from {', '.join(transition.inputs) or 'nothing'}", f"at most {seen}"),
                suggestion="give a place it takes from a token, or take the transition away",
            )
