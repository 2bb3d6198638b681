"""Tools that no clause denies and that the clauses together never let through."""

from __future__ import annotations

from collections.abc import Iterator

from ...stack.clauses import Clause
from ..alphabet.call_classes import CallClass
from ..alphabet.names import ANY_OTHER
from ..findings import PreflightFinding, finding
from ..search.saturation import Saturation, Step


def never_callable(possible: Saturation) -> Iterator[PreflightFinding]:
    """Tools that could be called as far as any one clause goes, but not with all of them."""
    reported: set[str] = set()
    for kind in possible.kinds.all:
        if kind in possible.found or kind in possible.barred or not _is_tool(kind, possible):
            continue
        label = possible.kinds.label(kind)
        if reported and label == ANY_OTHER:
            continue  # shut out with the others
        steps = possible.why_never(kind)
        circle = [step.kind for step in steps] if steps[-1].wanted == kind else []
        if label in reported:
            continue
        reported.update([label, *map(possible.kinds.label, circle)])
        core = possible.cores.get(kind)
        yield finding(
            "never_callable",
            steps[0].clause,
            f"`{label}` can never be called: {why(possible, steps)}",
            witness=witness(possible, steps),
            suggestion=_advice(label, bool(circle), core),
        )


def why(possible: Saturation, steps: list[Step]) -> str:
    """The steps in a sentence."""
    core = _core(possible, steps[-1])
    words = [_reason(possible, step) for step in steps]
    if len(words) > 4:
        words = [*words[:2], "so on", words[-1]]
    return ", and ".join(words) + (f" ({'; '.join(clause.says() for clause in core)})" if core else "")


def witness(possible: Saturation, steps: list[Step]) -> tuple[str, ...]:
    """The steps in words, each with the rule behind it; an impossible order by its rules."""
    found: list[str] = []
    for step in steps:
        core = _core(possible, step)
        found += [c.says() for c in core] if core else [f"{_reason(possible, step)} (`{step.clause.id}`)"]
    return tuple(found)


def _core(possible: Saturation, step: Step) -> list[Clause]:
    return possible.cores.get(step.kind, []) if step.wanted is None else []


def _reason(possible: Saturation, step: Step) -> str:
    name = f"`{possible.kinds.label(step.kind)}`"
    if step.wanted is not None:
        return f"{name} needs `{possible.kinds.label(step.wanted)}`"
    if step.kind in possible.cores:
        return f"{name} fits in no order of calls"
    return f"{name} is kept out" if step.kind in possible.barred else f"{name} is refused whatever comes before"


def _advice(label: str, circle: bool, core: list[Clause] | None) -> str:
    if circle:
        return "break the circle"
    if core:
        return f"loosen {' or '.join(f'`{clause.id}`' for clause in core)}"
    return f"allow what `{label}` needs, or deny it outright"


def _is_tool(kind: CallClass, possible: Saturation) -> bool:
    """Whether a kind is all calls of a name: a virtual name, or a plain one."""
    if not kind.facets:
        return True
    if any(isinstance(facet, bytes) for facet in kind.facets):
        return False
    return CallClass(kind.name) in possible.found
