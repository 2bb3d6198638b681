"""Rules that decide nothing: another one denies the same calls as strictly, or no call meets their conditions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import UNSET

from ..events.calls import STRICTNESS, rule_name
from ..language.conditions import Condition, all_in, has_references
from ..language.predicates import condition_words
from ..language.selectors import ToolWhere, items_of
from ..policy import Policy
from ..rules.petri_net import Net
from ..rules.rule import Cap, Rule
from ..stack.clauses import Clause, clauses_of
from ..stack.merge import checked_stack, merge_policies, names_alone
from ..values.work_budget import OutOfWork, Work
from .explorer import ClauseGraph, clause_graphs
from .findings import PreflightFinding, finding
from .values import atoms_of

if TYPE_CHECKING:
    from .call_classes import CallClass, CallClasses, NameReach


WORDS = ("id", "reason", "description", "tell_model", "action")
"""Fields that do not change what a rule is about."""
MOST_COMPARED = 1_000_000
"""The most steps of comparing one stack's conditions: some seconds."""
_NEGATIVE = frozenset({"not_equals", "not_in"})


def shadow_findings(
    clauses: Sequence[Clause], kinds: CallClasses, graphs: Sequence[ClauseGraph]
) -> Iterator[PreflightFinding]:
    """The rules that never decide anything, each with the first one that does so for it."""
    if not kinds.names.complete:
        return
    redundancy = _Redundancy(clauses, kinds, graphs)
    for n, clause in enumerate(clauses):
        candidates = redundancy.candidates(n)
        kinds.work.spend(1 + len(candidates))
        for m in candidates:
            other = clauses[m]
            if n != m and redundancy.covers(m, n) and not (n < m and redundancy.covers(n, m)):
                yield finding(
                    "shadowed",
                    clause,
                    f"it never decides anything: {other.words()} denies the same calls",
                    witness=(clause.words(), other.words()),
                    suggestion="remove it",
                )
                break


class _Redundancy:
    """The calls each clause denies, by its number."""

    def __init__(self, clauses: Sequence[Clause], kinds: CallClasses, graphs: Sequence[ClauseGraph]) -> None:
        self._clauses = clauses
        self._kinds = kinds
        self._graphs: dict[str, list[ClauseGraph]] = {clause.id: [] for clause in clauses}
        for graph in graphs:
            self._graphs[graph.clause.id].append(graph)
        self._denied_kinds = [self._always_denied(clause) for clause in clauses]
        self._restricted_kinds = [self._restricted(clause) for clause in clauses]
        self._caps = [self._cap(clause) for clause in clauses]
        self._subject = [_subject(clause, kinds) for clause in clauses]
        self._denying: defaultdict[CallClass, list[int]] = defaultdict(list)
        """The clauses that deny each kind of call."""
        self._alike: defaultdict[object, list[int]] = defaultdict(list)
        """The clauses of one kind that reach the same calls, and those that cap the same."""
        for m, denied in enumerate(self._denied_kinds):
            for kind in denied:
                self._denying[kind].append(m)
            for key in self._keys(m):
                self._alike[key].append(m)

    def candidates(self, n: int) -> Sequence[int]:
        """The clauses that may cover clause `n`, in their order."""
        found = {m for key in self._keys(n) for m in self._alike[key]}
        if restricted := self._restricted_kinds[n]:
            found.update(self._denying[next(iter(restricted))])  # whoever denies all of them denies this one
        return sorted(found)

    def _keys(self, n: int) -> Iterator[object]:
        """What is equal for clauses that decide alike, and for those that cap the same calls."""
        if (subject := self._subject[n]) is not None:
            yield subject[0], subject[2]  # of its fields some have no hash
        if (cap := self._caps[n]) is not None:
            yield tuple(cap[1]), cap[2]

    def covers(self, m: int, n: int) -> bool:
        """Whether clause `m` denies all that clause `n` does, as strictly."""
        other, clause = self._clauses[m], self._clauses[n]
        if STRICTNESS[other.action] < STRICTNESS[clause.strictest] or other.member > clause.member:
            return False  # what a later policy adds makes no earlier rule idle
        if self._subject[m] is not None and self._subject[m] == self._subject[n]:
            return True
        if not other.always:
            return False
        restricted = self._restricted_kinds[n]
        return restricted is not None and (restricted <= self._denied_kinds[m] or self._tighter(m, n))

    def _always_denied(self, clause: Clause) -> frozenset[CallClass]:
        """The kinds of calls that a clause denies, whatever came before."""
        denied = frozenset(kind for graph in self._graphs[clause.id] for kind in graph.always_denied(self._kinds))
        if not clause.profile.allows:
            return denied
        listed = self._kinds.listed(clause)
        return frozenset(kind for kind in denied if listed.isdisjoint(self._kinds.goes_by(kind.name)))

    def _restricted(self, clause: Clause) -> frozenset[CallClass] | None:
        """The kinds of calls that a clause may deny; None if it does more than that, or there are none."""
        if (
            isinstance(clause.record, Net)
            or clause.profile.obligation is not None
            or clause.profile.requires_attempts
        ):
            return None
        if any(not graph.shared.may_end(state) for graph in self._graphs[clause.id] for state in graph.shared.states):
            return None
        if allows := clause.profile.allows:
            reaches = [
                reach for tools in allows for reach in self._kinds.reaches(tools, clause.scope, virtual_names=())
            ]
            return frozenset(self._kinds.all) - self._kinds.meeting(tuple(reaches)) or None
        reached = [self._kinds.of(selector, clause) for selector in clause.profile.restricts]
        return frozenset().union(*reached) if reached and all(reached) else None

    def _tighter(self, m: int, n: int) -> bool:
        """Whether clause `n` is a cap, and clause `m` caps the same calls at no more."""
        mine, others = self._caps[n], self._caps[m]
        if mine is None or others is None or mine[0].each or mine[1:] != others[1:]:
            return False
        return others[0].most <= mine[0].most and others[0][2:] == mine[0][2:]

    def _cap(self, clause: Clause) -> tuple[Cap, Sequence[frozenset[CallClass]], str | None] | None:
        """The cap that a clause is, with the kinds of calls it counts, and its key."""
        caps = clause.profile.caps
        if len(caps) != 1:
            return None
        return caps[0], [self._kinds.of(tool, clause) for tool in caps[0].tools], clause.key


def _subject(clause: Clause, kinds: CallClasses) -> tuple[object, ...] | None:
    """A rule without its id and texts: equal for rules that decide alike."""
    if isinstance(clause.record, Net):
        return None
    record = msgspec.structs.asdict(clause.record)
    fields = tuple((name, value) for name, value in record.items() if name not in WORDS)
    reaches: tuple[tuple[NameReach, ...], ...] = tuple(kinds.reaches(s, clause.scope) for s in clause.profile.all())
    return (type(clause.record), fields, reaches, repr(fields))  # without their text, 1 is True


def evasion_findings(
    clauses: Iterable[Clause], kinds: CallClasses, graphs: Iterable[ClauseGraph]
) -> Iterator[PreflightFinding]:
    """Rules that can be evaded; those with a key by calls of one value."""
    by_clause: dict[str, list[ClauseGraph]] = {}
    for graph in graphs:
        by_clause.setdefault(graph.clause.id, []).append(graph)
    for clause in clauses:
        if isinstance(clause.record, Rule):
            of_clause: Iterable[ClauseGraph] = by_clause.get(clause.id, ())
            if clause.key is not None:
                record = msgspec.structs.replace(clause.record, key=None)
                keyless = clause._replace(record=record, profile=record.profile())
                of_clause = clause_graphs([keyless], kinds)
            yield from _adjacency(clause, clause.record, of_clause)


def _adjacency(clause: Clause, rule: Rule, graphs: Iterable[ClauseGraph]) -> Iterator[PreflightFinding]:
    """Rules that deny a call only right after another one."""
    for graph in graphs:
        if path := graph.shared.evasion:
            chain = [graph.calls_of(mask) for mask in path]
            yield finding(
                "evaded_by_one_call",
                clause,
                f"{' -> '.join(chain)} is denied only without another call in between: any other call evades it",
                witness=(*chain[:-1], "any other call", chain[-1]),
                suggestion="say `adjacency: any`" if hasattr(rule, "adjacency") else "",
            )


Denials: TypeAlias = Sequence[tuple[Clause, frozenset[str]]]
"""Clauses, each with the names that it denies whatever the input."""


def allow_findings(
    clauses: tuple[Clause, ...], kinds: CallClasses, graphs: Sequence[ClauseGraph]
) -> Iterator[PreflightFinding]:
    lists = [clause for clause in clauses if clause.profile.allows]
    empty = [clause for clause in lists if not _tools(clause)]
    for clause in empty:
        yield finding(
            "empty_allow_list",
            clause,
            "the allow list is empty: no tool could be called",
            suggestion="list the tools that may be called",
        )
    if empty or not kinds.names.complete:
        return
    denials = _denials(kinds, graphs)
    found = [finding for clause in lists for finding in _denied_entries(clause, denials, kinds)]
    binding = [clause for clause in lists if clause.binds]
    apart = list(_no_common_name(binding, kinds))
    yield from apart
    yield from found
    if binding and not apart and not found:
        yield from _fully_denied(binding, denials, kinds)


def _tools(clause: Clause) -> Sequence[str | ToolWhere]:
    return [item for selector in clause.profile.allows for item in items_of(selector)]


def _no_common_name(lists: list[Clause], kinds: CallClasses) -> Iterator[PreflightFinding]:
    """All lists must allow a call; together they allow none."""
    common = frozenset().union(*map(kinds.listed, lists))
    for n, clause in enumerate(lists):
        listed = kinds.listed(clause)
        common = frozenset(name for name in common if not listed.isdisjoint(kinds.goes_by(name)))
        if not common and kinds.names.complete:
            shown = tuple(f"{rule_name(c.policy, c.id)}: {_listed(_tools(c))}" for c in lists[: n + 1])
            yield finding(
                "disjoint_allow_lists",
                clause,
                f"no tool is in all allow lists: {' | '.join(shown)}",
                witness=shown,
                suggestion="a call must be in every allow list of the stack; leave one list, or let them overlap",
            )
            return


def _listed(entries: Iterable[str | ToolWhere]) -> str:
    return ", ".join(f"`{entry if isinstance(entry, str) else entry.tool}`" for entry in entries)


def _denials(kinds: CallClasses, graphs: Sequence[ClauseGraph]) -> Denials:
    """The names that clauses deny; allow lists aside."""
    found: list[tuple[Clause, frozenset[str]]] = []
    for graph in graphs:
        if graph.clause.binds and not graph.is_allow_list:
            always_denied = frozenset(kind.name for kind in graph.always_denied(kinds) if not kind.predicates)
            if always_denied:
                found.append((graph.clause, always_denied))
    return found


def _denied_entries(clause: Clause, denials: Denials, kinds: CallClasses) -> Iterator[PreflightFinding]:
    """Entries of which the same or an earlier policy denies every name."""
    earlier = [(other, denied) for other, denied in denials if other.member <= clause.member]
    all_denied = frozenset().union(*(denied for _, denied in earlier))
    for entry in _tools(clause):
        names = kinds.listed(clause, entry)
        kinds.work.spend(1 + len(names))
        if not names or not names <= all_denied:
            continue
        kinds.work.spend(len(earlier))
        by = [other for other, denied in earlier if denied & names]
        yield finding(
            "denied_allow_entry",
            clause,
            f"{_listed([entry])} is allowed and denied by {_listed(rule_name(o.policy, o.id) for o in by)}",
            witness=tuple(f"{rule_name(o.policy, o.id)}: {_denied(o)}" for o in by),
            suggestion="remove it from one of the two",
        )


def _fully_denied(lists: Sequence[Clause], denials: Denials, kinds: CallClasses) -> Iterator[PreflightFinding]:
    """Lists of which later policies deny all that is in every one."""
    left = frozenset(kinds.names.all).intersection(*map(kinds.listed, lists))
    by = [other for other, denied in denials if denied & left]
    if left and left <= frozenset().union(*(denied for _, denied in denials)):
        yield finding(
            "nothing_left",
            lists[0],
            f"no tool is left: all are denied by {_listed(rule_name(o.policy, o.id) for o in by)}",
            witness=tuple(f"{rule_name(o.policy, o.id)}: {_denied(o)}" for o in by),
            suggestion="leave one tool, or set `max_tool_calls: 0`",
        )


def _denied(clause: Clause) -> str:
    return _listed(item for selector in clause.profile.restricts for item in items_of(selector))


def contradiction_findings(policy: Policy) -> Iterator[PreflightFinding]:
    """The rules with conditions that contradict one another, as far as that is certain, one finding for each set of
    conditions. One more finding says that not all were compared.
    """
    stack = checked_stack(policy)
    names = [merge_policies([member]) for member in names_alone(stack)]
    work, compared, left = Work(MOST_COMPARED), dict[bytes, bool](), 0
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
                    f"no call meets these conditions: {condition_words(conditions)}",
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
    yield from ((each, each.where) for each in clause.wheres if _compares(each.where))
    when: tuple[Condition, ...] = () if isinstance(clause.record, Net) else clause.record.when
    # Numbers and texts are told apart in a context: only what is not negated is met there by no more than here.
    negated = any(c.not_ is not UNSET or any(name in _NEGATIVE for name, _ in c.operators()) for c in all_in(when))
    if _compares(when) and not negated:
        yield ToolWhere(tool="*", where=when), when


def _compares(conditions: Sequence[Condition]) -> bool:
    """Whether two operators look at one path, or one looks for none of all values."""
    if has_references(conditions):
        return False
    paths = Counter(path for path, _ in atoms_of(conditions))
    return any(count > 1 for count in paths.values()) or any(condition.in_ == [] for condition in all_in(conditions))


def _never(names: Policy, where: ToolWhere, work: Work) -> bool:
    """Whether it is proved that the selector means no call, and its tool some."""
    from .questions import answer  # which only `check` needs

    def reached(selector: ToolWhere) -> str:
        return answer(names, {"reach": msgspec.to_builtins(selector)}, None, None, work).verdict

    return reached(where) == "proved" and reached(ToolWhere(tool=where.tool)) == "refuted"
