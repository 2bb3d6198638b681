"""Tools that are possible alone and still fit in no order of calls."""

from collections.abc import Iterable, Iterator, Sequence

from ..rules.rule import LARGEST, names
from ..stack.clauses import Clause
from .call_classes import ANY_OTHER, CallClass
from .explorer import ClauseGraph
from .findings import PreflightFinding, finding
from .reachability import END, BoundExceeded, Product, Saturation, Step


def find_orders(possible: Saturation, graphs: list[ClauseGraph]) -> Iterator[PreflightFinding]:
    """Look for an order in which each kind of call is allowed; those without one are excluded.

    Returns what could not be told, as a finding.
    """
    graphs = [graph for graph in graphs if graph.shared.denies_by_history]
    if all(graph.shared.allows_for_good for graph in graphs):
        return  # what is met once stays met: each clause by itself says it all
    settled: set[CallClass] = set()
    gave_up: list[CallClass] = []
    work = 0
    while True:
        search = Product(graphs, possible.kinds, possible.found, work)
        cores = _first_without_order(possible, search, settled, gave_up)
        work = search.work
        if not cores:
            break
        possible.exclude(cores)
    if gave_up:
        labels = tuple(dict.fromkeys(possible.kinds.label(kind) for kind in gave_up))
        yield finding(
            "gave_up",
            (search.concerned(gave_up[0])[0].clause.policy, ""),
            "there are too many orders of calls to tell whether these can ever be called: "
            + ", ".join(f"`{label}`" for label in labels),
            witness=labels,
        )


def _first_without_order(
    possible: Saturation, search: Product, settled: set[CallClass], gave_up: list[CallClass]
) -> dict[CallClass, list[Clause]]:
    """Kinds that come in no order, with the clauses that leave none; what others need is looked at first."""
    for alike in _unproven(possible, search, settled):
        settled.update(alike)
        try:
            core = search.core(alike[0])
        except BoundExceeded:
            gave_up.append(alike[0])
            continue
        if core is not None:
            return dict.fromkeys(alike, core)
    return {}


def _unproven(possible: Saturation, search: Product, settled: set[CallClass]) -> list[list[CallClass]]:
    """The kinds that calling only what they need does not reach; those that every clause sees alike are together."""
    groups: dict[object, list[CallClass]] = {}
    for kind in possible.found:
        if search.concerned(kind):
            groups.setdefault(search.sight(kind), []).append(kind)
    unproven = []
    for alike in sorted(groups.values(), key=lambda group: -possible.found[group[0]]):
        if settled.intersection(alike):
            continue
        path = possible.path_to(alike[0])
        possible.kinds.work.spend(len(path))
        if search.goes(path):
            settled.update(path)
        else:
            unproven.append(alike)
    return unproven[::-1]


def never_callable(possible: Saturation) -> Iterator[PreflightFinding]:
    """Tools that could be called as far as any one clause goes, but not with all of them."""
    let_through = {possible.kinds.label(kind) for kind in possible.found}
    reported: set[str] = set()
    for kind in possible.kinds.all:
        if kind in possible.found or kind in possible.always_denied or not _is_tool(kind, possible):
            continue
        label = possible.kinds.label(kind)
        if label in let_through or (reported and label == ANY_OTHER):
            continue  # shut out with the others
        steps = possible.why_never(kind)
        circle = [step.kind for step in steps] if steps[-1].wanted == kind else []
        if label in reported:
            continue
        reported.update([label, *map(possible.kinds.label, circle)])
        core = possible.cores.get(kind)
        limited = any(clause.place[0] == "limits" for clause in _core(possible, steps[-1]))
        yield finding(
            "never_callable",
            steps[0].clause,
            f"`{label}` can never be called: {why(possible, steps)}",
            witness=witness(possible, steps),
            suggestion=_advice(label, bool(circle), core),
            severity="report" if limited else "refuse",
        )


def why(possible: Saturation, steps: list[Step]) -> str:
    """Why a kind of call is impossible, in a sentence of these steps."""
    core = _core(possible, steps[-1])
    words = [_reason(possible, step) for step in steps]
    if len(words) > 4:
        words = [*words[:2], "so on", words[-1]]
    return ", and ".join(words) + (f" ({'; '.join(clause.words() for clause in core)})" if core else "")


def witness(possible: Saturation, steps: list[Step]) -> tuple[str, ...]:
    """The steps in words, each with the rule behind it; an impossible order by its rules."""
    found: list[str] = []
    for step in steps:
        core = _core(possible, step)
        found += [c.words() for c in core] if core else [f"{_reason(possible, step)} (`{step.clause.id}`)"]
    return tuple(found)


def _core(possible: Saturation, step: Step) -> list[Clause]:
    return possible.cores.get(step.kind, []) if step.wanted is None else []


def _reason(possible: Saturation, step: Step) -> str:
    name = f"`{possible.kinds.label(step.kind)}`"
    if step.wanted is not None:
        return f"{name} needs `{possible.kinds.label(step.wanted)}`"
    if step.kind in possible.cores:
        return f"{name} fits in no order of calls"
    return (
        f"{name} is never allowed"
        if step.kind in possible.always_denied
        else f"{name} is denied whatever comes before"
    )


def _advice(label: str, circle: bool, core: list[Clause] | None) -> str:
    if circle:
        return "break the circle"
    if core:
        return f"weaken {' or '.join(f'`{clause.id}`' for clause in core)}"
    return f"allow what `{label}` needs, or deny it outright"


def _is_tool(kind: CallClass, possible: Saturation) -> bool:
    """Whether a kind is all calls of a name: a virtual name, or a plain one."""
    if not kind.predicates:
        return True
    if any(isinstance(predicate, bytes) for predicate in kind.predicates):
        return False
    return CallClass(kind.name) in possible.found


def never_satisfied(clauses: Iterable[Clause], possible: Saturation) -> Iterator[PreflightFinding]:
    """The rules that owe a call of which none is possible."""
    for clause in clauses:
        owed = clause.profile.obligation
        if owed is None or not clause.binds:
            continue
        kinds = possible.kinds.of(owed.tool, clause)
        if not kinds or kinds & possible.found.keys() or not possible.kinds.names.complete:
            continue
        when = "" if owed.after is None else f" after {names(owed.after)}"
        steps = possible.why_never(min(kinds, key=lambda kind: (len(kind.predicates), kind.name)))
        yield finding(
            "never_satisfied",
            clause,
            f"{names(owed.tool)} must be called{when} and can never be: {why(possible, steps)}",
            witness=witness(possible, steps),
            suggestion=_suggestion(possible, steps, clause),
            severity="report" if when else "refuse",
        )


def _suggestion(possible: Saturation, steps: list[Step], wanting: Clause) -> str:
    """A suggestion: the clauses of which one has to go."""
    core = possible.cores.get(steps[-1].kind, [])
    ids = dict.fromkeys([*(clause.id for clause in core or [steps[-1].clause]), wanting.id])
    return f"remove {' or '.join(f'`{id}`' for id in ids)}"


def demand_findings(possible: Saturation, graphs: Sequence[ClauseGraph]) -> Iterator[PreflightFinding]:
    """The clauses that together leave no order of calls in which all is called that must be."""
    demands = [graph for graph in graphs if graph.shared.has_obligation]
    concerned = [graph for graph in graphs if graph.shared.denies_by_history or graph.shared.has_obligation]
    search = Product(concerned, possible.kinds, possible.found)
    guess = _one_after_another(demands, possible)
    if not possible.kinds.names.complete or search.goes([*guess, END]) or search.goes([*guess[::-1], END]):
        return
    try:
        core = search.core(END)
    except BoundExceeded:
        yield finding(
            "gave_up",
            (demands[0].clause.policy, ""),
            "there are too many orders of calls to tell whether one run can do all that must be done",
            witness=tuple(demand.clause.words() for demand in demands),
        )
        return
    if core is not None:
        clauses_in_words = tuple(clause.words() for clause in core)
        yield finding(
            "never_satisfied",
            core[0],
            f"no run can do all of this: {'; '.join(clauses_in_words)}",
            witness=clauses_in_words,
            suggestion=f"remove {' or '.join(f'`{clause.id}`' for clause in core)}",
        )


def _one_after_another(demands: Iterable[ClauseGraph], possible: Saturation) -> list[CallClass]:
    """The calls that meet each demand, with what they need before; a first guess."""
    calls: dict[CallClass, int] = {}
    for demand in demands:
        owed = demand.clause.profile.obligation
        possible.kinds.work.spend(len(possible.found))
        wanted = [kind for kind in possible.found if demand.mask(*kind)]
        if wanted:
            kind = min(wanted, key=lambda kind: possible.found[kind])
            calls.update({other: 1 for other in possible.path_to(kind) if other not in calls})
            calls[kind] = max(calls[kind], min(owed.least, LARGEST) if owed is not None else 1)
    return [kind for kind, often in calls.items() for _ in range(often)]
