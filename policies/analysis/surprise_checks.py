"""Rules that hold less than they seem to, as each one is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from ..language.conditions import Condition, all_in, as_written
from ..language.selectors import ToolWhere
from ..language.shell_commands import NamedCommand
from ..rules.net_shorthand import refilled
from ..rules.petri_net import Net
from ..rules.rule import items_of, times
from ..stack.clauses import Clause
from ..values.globs import matcher
from .findings import PreflightFinding, finding


def surprise_findings(clauses: Iterable[Clause]) -> Iterator[PreflightFinding]:
    """Rules whose wording suggests more than they enforce."""
    for clause in clauses:
        yield from _virtual_evidence(clause)
        yield from _links(clause)
        yield from _options(clause)
        yield from _starts_full(clause)
        yield from _none_in_context(clause)


def _virtual_evidence(clause: Clause) -> Iterator[PreflightFinding]:
    """A virtual name says that a text was found, not that it was done: `echo git test` matches `git test`."""
    matches = matcher(clause.patterns(*clause.roles.evidence))
    found = dict.fromkeys(virtual.name for virtual in clause.scope.virtual_names if matches(virtual.name))
    if found:
        yield finding(
            "virtual_evidence",
            clause,
            f"{', '.join(f'`{name}`' for name in found)} is found by search in a call's input: as evidence "
            "it is only as good as its pattern (`echo git test` matches `git test`)",
            witness=tuple(found),
            suggestion="anchor the pattern, or take a tool of its own as evidence",
        )


def _conditions(clause: Clause) -> Iterator[Condition]:
    wheres = (item.where for each in clause.roles.all() for item in items_of(each) if isinstance(item, ToolWhere))
    return (condition for where in wheres for condition in all_in(where))


def _options(clause: Clause) -> Iterator[PreflightFinding]:
    """`runs` names an option of which no table tells the other spellings."""
    texts = (text for c in _conditions(clause) if c.runs is not UNSET for text in as_written(c.runs))
    named = [text for text in dict.fromkeys(texts) if not NamedCommand(text).understood]
    if named:
        yield finding(
            "unknown_options",
            clause,
            f"{', '.join(f'`runs: {text}`' for text in named)} names an option that is not known: it is matched as"
            " it is written, letters behind one dash in any order, and not in another spelling (`-f` and `--force`)",
            witness=tuple(named),
            suggestion="name every spelling, or the command without options",
        )


def _links(clause: Clause) -> Iterator[PreflightFinding]:
    """`within` looks nothing up: a path inside a directory may be a link that leads out of it."""
    named = dict.fromkeys(c.within for c in _conditions(clause) if c.within is not UNSET)
    if named:
        yield finding(
            "links_not_followed",
            clause,
            f"{', '.join(f'`within: {name}`' for name in named)} compares paths as text: a link can lead out of it",
            witness=tuple(named),
            suggestion="deny `runs: [ln]`, so that no link is made, and look at the links that the workspace brings",
        )


def _starts_full(clause: Clause) -> Iterator[PreflightFinding]:
    """`limit a to 1 per b`: the first call of a needs no call of b."""
    limit = refilled(clause.record.name) if clause.line and isinstance(clause.record, Net) else None
    if limit is not None and limit.calls:
        tool, per = limit.tool, limit.per
        yield finding(
            "starts_full",
            clause,
            f"it starts full: `{tool}` may be called {times(limit.calls)} before any `{per}`, and each `{per}` that "
            "succeeds allows as many again",
            witness=(f"{tool} -> {tool} (refused) -> {per} -> {tool}",) if limit.calls == 1 else (),
            suggestion=f"if no `{tool}` is to come before a `{per}`, add `require {per} before {tool}`",
        )


def _none_in_context(clause: Clause) -> Iterator[PreflightFinding]:
    """A context of None is compared with nothing: `not_equals` does not hold for it either."""
    found = [(name, path) for name, path in _negated(clause.record.when) if clause.action != "warn"]
    if found:
        negated = dict.fromkeys(f"`{name}` at `{path}`" for name, path in found)
        paths = dict.fromkeys(path for _, path in found)
        yield finding(
            "none_in_context",
            clause,
            f"its `when` has {' and '.join(negated)}, which does not hold for a context of None: the rule is absent "
            "there",
            witness=tuple(f"{path}: None" for path in paths),
            suggestion=f"write `not: [{{path: {found[0][1]}, {found[0][0].removeprefix('not_')}: ...}}]`, which "
            "holds for None too",
        )


def _negated(conditions: Iterable[Condition]) -> Iterator[tuple[str, str]]:
    """The conditions that want another value than one, by operator and path."""
    for condition in conditions:
        if condition.any_of is not UNSET:
            yield from _negated(condition.any_of)
        elif condition.path is not UNSET:
            path = condition.path
            yield from ((name, path) for name, _ in condition.operators() if name in ("not_equals", "not_in"))
