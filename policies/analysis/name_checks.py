"""Checks of what each line says: names that the agent does not have, and rules that hold less than they seem to."""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from unicodedata import normalize

import msgspec
from msgspec import UNSET

from ..events.run_context import PORTABLE, Capabilities, RunContext, Tool
from ..language.conditions import Condition, as_written, paths_in
from ..language.selectors import HUMAN, Selector, items_of
from ..language.shell_commands import NamedCommand
from ..monitor.program import Program
from ..policy import Allow, Deny, Policy, members_of
from ..rules.lists import Allowlist, Blocklist
from ..rules.net_shorthand import refilled, required
from ..rules.petri_net import Net
from ..rules.precedence import Before
from ..rules.rule import times
from ..stack.clauses import Clause, clauses_of
from ..stack.merge import effective_budgets
from ..values.globs import is_plain, matcher
from ..values.paths import compile_path
from ..values.work_budget import Work
from .findings import Findings, PreflightFinding, Severity, finding

ALIKE = 0.7
"""How much a name must be like a known one to be taken for it, where there may be others."""

_FIRST_KEY = re.compile(r"""\$(?:\.|\[\s*['"])([^.\[\]'"]+)""")


def unknown_names(
    policy: Policy,
    clauses: Iterable[Clause],
    capabilities: Capabilities | None,
    work: Work,
    alike: float = 0,
    tools_alike: float = ALIKE,
) -> Iterator[PreflightFinding]:
    """Names in clauses that no tool of a known agent has; with required enforcement no run starts. `alike`: how
    much an input must be like a known one, `tools_alike` a tool, where there may be others.
    """
    if capabilities is None or not capabilities.table:
        return
    members, clauses = members_of(policy), list(clauses)
    own = _own_tools(clauses) if capabilities.other_tools else frozenset()
    for clause in clauses:
        required = members[clause.member].enforcement == "required"
        yield from _tools(clause, capabilities, required, own, work, tools_alike)
        yield from _inputs(clause, capabilities, "refuse" if required else None, alike)
        yield from _in_part(clause, capabilities.table)


def _own_tools(clauses: Sequence[Clause]) -> frozenset[str]:
    """The names that an allow list has and another clause repeats: tools unknown here, rather than misspelt."""
    named = [(clause.record, set(clause.names)) for clause in clauses]
    count = Counter(name for _, names in named for name in names)
    return frozenset(
        name for record, names in named if isinstance(record, Allow) for name in names if count[name] > 1
    )


def _tools(
    clause: Clause, capabilities: Capabilities, required: bool, own: frozenset[str], work: Work, alike: float
) -> Iterator[PreflightFinding]:
    """The names that are no tool's; where there may be other tools, only those that look misspelt."""
    tools = capabilities.table
    offered, named = _names(tools) | {HUMAN}, dict.fromkeys(clause.names)
    work.spend(len(named) * len(offered))
    unknown = [p for p in named if p not in own and not _meant(p, clause, tools)]
    work.spend(len(unknown) * len(offered) * 10)
    near = {name: _nearest(name, offered, alike if capabilities.other_tools else 0.6) for name in unknown}
    unknown = [name for name in unknown if name.casefold() not in capabilities.elsewhere]
    if capabilities.other_tools:
        unknown = [name for name in unknown if near[name] and is_plain(name) and name.casefold() not in PORTABLE]
    if unknown:
        close = list(dict.fromkeys(name for each in unknown for name in near[each]))
        certain = required and any(is_plain(name) and name.casefold() not in PORTABLE for name in unknown)
        yield finding(
            "unknown_tool",
            clause,
            f"no tool is called {_listed(unknown)}",
            witness=unknown,
            suggestion=f"did you mean {_listed(close)}?" if close else "",
            severity="refuse" if certain else None,
        )


def denies(clause: Clause) -> bool:
    """Whether the clause does nothing but keep tools out: a name that is no tool's keeps out nothing."""
    if isinstance(clause.record, Net):
        return clause.line and clause.record.name.split()[:1] == ["block"]
    return isinstance(clause.record, Deny | Blocklist)


def _inputs(
    clause: Clause, capabilities: Capabilities, severity: Severity | None, alike: float
) -> Iterator[PreflightFinding]:
    """The inputs that none of the tools meant has."""
    for selector, path in _input_paths(clause):
        key = _FIRST_KEY.match(path)
        patterns = clause.scope.patterns(selector)
        if key is None or (capabilities.other_tools and not all(map(is_plain, patterns))):
            continue
        meant = [tool for pattern in patterns for tool in _meant(pattern, clause, capabilities.table)]
        inputs = [_known_inputs(tool) for tool in meant]
        if inputs and all(inputs) and not any(key[1] in names for names in inputs):
            close = _nearest(key[1], {name for names in inputs for name in names}, alike or 0.6)
            if alike and not close:
                continue
            yield finding(
                "unknown_input",
                clause,
                f"{_listed(patterns)} has no input `{key[1]}`",
                witness=(path,),
                suggestion=f"did you mean {_listed(close)}?" if close else "",
                severity=severity,
            )


def _in_part(clause: Clause, tools: Sequence[Tool]) -> Iterator[PreflightFinding]:
    """The tools that a clause means by a portable name, and whose calls it can evaluate only in part; not a tool
    beside one that is understood, if only what is in the act's own input is not: a line of PowerShell beside Bash.
    """
    patterns = dict.fromkeys(clause.names)
    meant = {tool.name: tool for pattern in patterns for tool in _meant(pattern, clause, tools)}
    understood = {act for tool in meant.values() if not tool.unclear for act in tool.every_act}
    for tool in [tool for tool in meant.values() if tool.unclear]:
        act = tool.every_act[0]
        if act in understood and set(tool.unclear) <= {*PORTABLE[act]} & {*tool.takes}:
            continue
        lacking = [name for name in tool.unclear if name not in tool.takes]
        why = [f"lacks {_listed(lacking)}"] if lacking else []
        if unknown := [name for name in tool.unclear if name in tool.takes]:
            why.append(f"takes {_listed(unknown)}, which proctor does not understand")
        yield finding(
            "understood_in_part",
            clause,
            f"`{tool.name}` counts as `{act}`, but {' and '.join(why)}: `deny: [{act}]` matches it, `allow` does not",
            witness=tool.unclear,
            suggestion=f"name `{tool.name}` and its own inputs in the policy",
        )


def _input_paths(clause: Clause) -> Iterator[tuple[Selector, str]]:
    """The paths into inputs that a clause looks at, each with the tools whose input it is."""
    yield from clause.record.inputs()
    yield from ((each.tool, path) for each in clause.wheres for path in paths_in(each.where))


def _meant(pattern: str, clause: Clause, tools: Sequence[Tool]) -> list[Tool]:
    """The tools that a name matches: their own names, what they do, or a virtual name of their calls."""
    matches = matcher([pattern])
    virtual = [v.of_tool for v in clause.scope.virtual_names if matches(v.name)]
    return [tool for tool in tools if any(_goes_by(tool, each) for each in (matches, *virtual))]


def _goes_by(tool: Tool, matches: Callable[[str], bool]) -> bool:
    return any(map(matches, (tool.name, *tool.synonyms, *tool.every_act)))


def _names(tools: Iterable[Tool]) -> set[str]:
    named = (tool for tool in tools if not tool.is_family)
    return {name for tool in named for name in (tool.name, *tool.synonyms, *tool.every_act)}


def _known_inputs(tool: Tool) -> set[str]:
    """The inputs of a tool by any name; none where it is not known what it takes."""
    if not tool.takes:
        return set()
    portable = [name for act in tool.every_act for name in PORTABLE.get(act, ())]
    return {*tool.takes, *tool.inputs, *portable}


def _nearest(name: str, candidates: Iterable[str], alike: float = 0.6) -> list[str]:
    folded = {each.casefold(): each for each in sorted(candidates)}
    return [folded[each] for each in difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=alike)]


def _listed(names: Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


_UNSEEN = r"[\x00-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
_TWO_ALPHABETS = r"[A-Za-z][\u0370-\u052f]|[\u0370-\u052f][A-Za-z]"
_COMMAND = "(?:not|git|rm|mv|npm|pip|curl|docker|kubectl|sudo) "
_OTHERS = re.compile(
    rf"[(){{}}|,\\^$;<>\"'`]|^[!/]|^\.\*|^\s|\s$|^{_COMMAND}|^\[[^\]-]{{3,}}\]$|{_UNSEEN}|{_TWO_ALPHABETS}",
    re.IGNORECASE,
)
"""Signs of a client's permission, of alternatives, of a regular expression; quotes; blanks at an edge; a command; a
list in quotes; what nobody sees.
"""


def odd_names(clauses: Iterable[Clause], capabilities: Capabilities | None) -> Iterator[PreflightFinding]:
    """Names that hold nothing, as no tool goes by them."""
    offered = _names(capabilities.table) if capabilities else set()
    for clause in clauses:
        own = {*offered, *(virtual.name for virtual in clause.scope.virtual_names)}
        named = (name for name in dict.fromkeys(clause.names) if name not in own)
        odd = [name for name in named if _OTHERS.search(name) or normalize("NFKC", name) != name]
        if odd:
            yield finding(
                "odd_name",
                clause,
                f"{', '.join(ascii(name) for name in odd)} is not a name that a tool can have: it is compared as a"
                " whole, with `*`, `?` and `[abc]`",
                witness=tuple(odd),
                suggestion="list several names; look into an input with `{tool: ..., where: [...]}`",
            )


def adapter_findings(
    policy: Policy, clauses: Sequence[Clause], capabilities: Capabilities | None
) -> Iterator[PreflightFinding]:
    """The parts of a stack that an adapter cannot enforce; nothing if its capabilities are not known."""
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
    """For each policy the rules that deny, and those that ask, where nothing is held."""
    found: dict[tuple[str, str], list[str]] = {}
    for clause in clauses:
        if clause.strictest != "warn" and not _compiled(clause, capabilities.compiles):
            found.setdefault((clause.policy, _effect_too_late(clause)), []).append(clause.id)
    for (policy, effect), ids in found.items():
        yield finding(
            "only_observed",
            (policy, ""),
            f"the adapter holds {_held(capabilities.gate)} before they run; these rules can {effect}: "
            + ", ".join(f"`{id}`" for id in ids),
            witness=tuple(ids),
        )


def _effect_too_late(clause: Clause) -> str:
    """What a rule can do about a call that was not held, after `can`."""
    if not clause.denies:
        return "only signal: the run continues"
    if clause.action == "deny" and getattr(clause.record, "unpreventable", None) == "warn":
        return "only record it: the run continues"
    return "cancel the run once they see it"


def _compiled(clause: Clause, parts: Sequence[str]) -> bool:
    """Whether the adapter's own launch options can keep the calls out."""
    if not isinstance(clause.record, Allow | Deny):
        return False
    named = all(isinstance(item, str) for item in items_of(clause.record.tools))
    return ("allow" if isinstance(clause.record, Allow) else "deny") in parts and clause.always and named


def missing_context(compiled: Program, context: RunContext) -> Findings:
    """The fields that a policy needs of a run's context and that are missing: preflight's part for each run."""
    if not (compiled.is_conditional or compiled.budgets):
        return Findings()
    policy = compiled.policy
    return Findings(context_findings(policy, clauses_of(policy), context))


def context_findings(
    policy: Policy, clauses: Iterable[Clause], context: RunContext | None
) -> Iterator[PreflightFinding]:
    """The rules of which it is unknown whether they apply to the run; None is a value like any other."""
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


def surprise_findings(clauses: Iterable[Clause]) -> Iterator[PreflightFinding]:
    """Rules whose wording suggests more than they enforce."""
    clauses = list(clauses)
    orders = set(_orders(clauses))
    for clause in clauses:
        yield from _virtual_evidence(clause)
        yield from _links(clause)
        yield from _options(clause)
        yield from _starts_full(clause, orders)
        yield from _none_in_context(clause)


def _virtual_evidence(clause: Clause) -> Iterator[PreflightFinding]:
    """A virtual name says that a text was found, not that it was done: `echo git test` matches `git test`."""
    matches = matcher(clause.patterns(*clause.profile.evidence))
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


def _options(clause: Clause) -> Iterator[PreflightFinding]:
    """`runs` names an option of which no table tells the other spellings; an allow list then allows none of them."""
    if isinstance(clause.record, Allow | Allowlist):
        return
    texts = (text for c in clause.conditions if c.runs is not UNSET for text in as_written(c.runs))
    named = [text for text in dict.fromkeys(texts) if not NamedCommand(text).understood]
    if named:
        yield finding(
            "unknown_options",
            clause,
            f"{', '.join(f'`runs: {text}`' for text in named)} names an option that proctor does not know: only"
            " this spelling matches, with letters behind one dash in any order, and no other (`-f` for `--force`)",
            witness=tuple(named),
            suggestion="name every spelling, or the command without options",
        )


def _links(clause: Clause) -> Iterator[PreflightFinding]:
    """`within` looks nothing up: a path inside a directory may be a link that leads out of it."""
    named = dict.fromkeys(c.within for c in clause.conditions if c.within is not UNSET)
    if named:
        yield finding(
            "links_not_followed",
            clause,
            f"{', '.join(f'`within: {name}`' for name in named)} compares paths as text: a link can lead outside",
            witness=tuple(named),
            suggestion="deny `runs: [ln]`, and check the links that the workspace already has",
        )


def _orders(clauses: Iterable[Clause]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Of every rule that denies one action before another, in every run: the names of the first and of the other."""
    for clause in clauses:
        if clause.denies and not clause.record.when:
            found = _sides(clause)
            if found is not None:
                first, then = found
                yield clause.patterns(first), clause.patterns(then)


def _sides(clause: Clause) -> tuple[Selector, Selector] | None:
    record = clause.record
    if isinstance(record, Net):
        return required(record.name) if clause.line else None
    if not isinstance(record, Before) or clause.key is not None:
        return None
    always = all(isinstance(item, str) for item in items_of(record.then))
    return (record.first, record.then) if always else None


def _starts_full(clause: Clause, orders: Container[object]) -> Iterator[PreflightFinding]:
    """`limit a to 1 per b`: the first call of a needs no call of b, unless another rule requires it."""
    limit = refilled(clause.record.name) if clause.line and isinstance(clause.record, Net) else None
    if limit is not None and limit.calls and (clause.patterns(limit.per), clause.patterns(limit.tool)) not in orders:
        tool, per = limit.tool, limit.per
        yield finding(
            "starts_full",
            clause,
            f"it starts full: `{tool}` may be called {times(limit.calls)} before any `{per}`, and each `{per}` that "
            "succeeds allows as many again",
            witness=(f"{tool} -> {tool} (denied) -> {per} -> {tool}",) if limit.calls == 1 else (),
            suggestion=f"if no `{tool}` is to come before a `{per}`, add `require {per} before {tool}`",
        )


def _none_in_context(clause: Clause) -> Iterator[PreflightFinding]:
    """A context of None is compared with nothing: `not_equals` does not hold for it either."""
    found = [(name, path) for name, path in _negated(clause.record.when) if clause.strictest != "warn"]
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
