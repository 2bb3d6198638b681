"""Questions about every session that a stack allows, answered by a proof or a session."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ..errors import PolicyError, Violation, wrong_type
from ..events.run_context import PORTABLE, RunContext, Tool
from ..language.conditions import Condition, all_in
from ..language.facts import NoCall
from ..language.predicates import compile_when
from ..language.selectors import ToolWhere
from ..language.shell_commands import commands_of
from ..monitor.compiled_policy import CompiledPolicy, compile_policy
from ..policy import SCOPES, Approval, Deny, Policy, members_of, virtual_tools_of
from ..rules.python_check import CheckMachine
from ..stack.clauses import Clause
from ..stack.merge import checked_stack, merge_policies
from ..values.globs import is_plain
from ..values.json_values import json_words, text_of
from ..values.paths import compile_path, path_steps
from ..values.work_budget import Work
from .components import Standard
from .findings import Proved, Refuted, Unknown
from .played_rule import PlayedRule, PropertyPart, Setting, Side
from .refinement import Implication, NothingCertificate, implied
from .values import are_covered, atoms_of, candidates, depend_on_directories, documents, is_member, literals

PLACES: tuple[dict[str, str], ...] = ({}, {"workspace": "/workspace", "home": "/home/user"})
"""The directories of a run, unknown and known."""
SHELLS: tuple[dict[str, str], ...] = ({}, {"shell": "bash"})
"""The shells that read a command line each in its own way."""
MOST_CONTEXTS = 64
OBJECTS = ("$.labels", "$.metadata")
"""The paths of a context that have objects alone."""
ONE_CONTEXT = "every run of a session has the same context"
ONLY_TOOLS = "the agent has no other tools"
OWN_NAMES = "each tool goes by its own name alone, and by no portable one"
NOT_SHORTEST = "some rules were not searched for a shorter session"


def answer(
    stack: Policy | Sequence[Policy],
    questions: dict[str, Any],
    tools: Iterable[str | Tool] | None,
    context: RunContext | None,
    work: Work,
) -> Proved | Refuted | Unknown:
    """Answer the one of the questions that is not None; see `verify`."""
    given = {name: value for name, value in questions.items() if value is not None}
    if len(given) != 1:
        raise ValueError(
            f"`verify` answers one question a call: give one of {', '.join(questions)}; got {[*given] or 'none'}"
        )
    inquiry = Inquiry(merged(stack), _tools(tools), context, work)
    [(question, about)] = given.items()
    if question == "reach":
        return inquiry.reach(about)
    other = merged(about)
    if question == "same_as":
        return _alike(inquiry, other)
    if question == "keeps":
        return Direction(inquiry, other, Standard(True)).whole_answer()
    return inquiry.no_looser(other).whole_answer()


def _alike(inquiry: Inquiry, other: Policy) -> Proved | Refuted | Unknown:
    """Whether two policies decide alike: neither allows what the other does not."""
    mine = inquiry.stack
    back = inquiry._replace(stack=other)
    name = _distinct_name(other, mine)
    there = inquiry.no_looser(other, f"`{mine.name}` allows what {name} does not")
    here = back.no_looser(mine, f"{name} allows what `{mine.name}` does not")
    for rest in (False, True):
        for direction in (there, here):
            direction.search(rest=rest)
            if direction.refuted is not None:
                direction.search(rest=True)
                return direction.answer()
    found = [there.answer(), here.answer()]
    unknown = next((each for each in found if isinstance(each, Unknown)), None)
    if unknown is not None:
        return unknown
    return Proved(
        reason=f"`{mine.name}` and {name} decide alike in every session",
        explored=_together(each.explored for each in found),
        certificates=[certificate for each in found for certificate in each.certificates],
    )


def _distinct_name(other: Policy, stack: Policy) -> str:
    """The name of the policy that a stack is compared with, also if both have the same, as two versions have."""
    return f"the other `{other.name}`" if other.name == stack.name else f"`{other.name}`"


def merged(policies: Policy | Sequence[Policy]) -> Policy:
    """A policy, or policies as one stack."""
    if isinstance(policies, Policy):
        return policies
    if isinstance(policies, tuple | list) and policies:
        return policies[0] if len(policies) == 1 and isinstance(policies[0], Policy) else merge_policies(policies)
    raise ValueError(wrong_type("a policy, or a list of policies", policies))


def _tools(given: Iterable[str | Tool] | None) -> tuple[str | Tool, ...] | None:
    if given is None:
        return None
    tools = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not tools or not all(isinstance(each, str | Tool) for each in tools):
        raise ValueError(wrong_type("a list of tools", given))
    if pattern := next((each for each in tools if isinstance(each, str) and not is_plain(each)), None):
        raise ValueError(f"`{pattern}` is a pattern: name each tool, or none for any")
    return tools


def side(compiled: CompiledPolicy, context: RunContext) -> Side:
    """A policy as the search sees it, under one context. Checks in Python, which may agree, are left out."""
    program = compiled.for_context(context)
    rules = {rule.id: PlayedRule(rule) for rule in program.rules}
    kept = (rule for rule in program.rules if not isinstance(rule.machine, CheckMachine))
    return Side(program.with_rules(kept), rules, tuple(program.limits.entries))


class Inquiry(NamedTuple):
    """A stack, and what its questions share."""

    stack: Policy
    tools: tuple[str | Tool, ...] | None
    context: RunContext | None
    work: Work

    def contexts(self, clauses: Sequence[Clause], programs: Sequence[CompiledPolicy]) -> tuple[list[RunContext], str]:
        """One context for each set of rules that `when` conditions may leave, and why there may be more, if so."""
        shells = SHELLS if _use(clauses, "runs") and _differ_by_shell(clauses) else SHELLS[:1]
        if self.context is not None:
            shells = shells if self.context.shell is msgspec.UNSET else SHELLS[:1]
            return [msgspec.structs.replace(self.context, **shell) for shell in shells], ""
        places = PLACES if _use(clauses, "within") else PLACES[:1]
        tested: dict[str, list[Any]] = {}
        for clause in clauses:
            for path, atom in atoms_of(clause.record.when):
                tested.setdefault(path, []).append(atom)
        choices = {
            path: _distinguished(path, candidates(atoms, [{}]), clauses)
            for path, atoms in tested.items()
            if is_member(path_steps(path))
        }
        made, everything = documents(choices, 5_000)
        found: dict[Any, RunContext] = {}
        for document, place, shell in itertools.product(made, places, shells):
            try:
                context = msgspec.convert({**document, **place, **shell}, RunContext)
            except msgspec.ValidationError:
                continue
            left = tuple(frozenset(r.number for r in each.for_context(context).rules) for each in programs)
            found.setdefault((left, *place, *shell), context)
        if not everything or len(found) > MOST_CONTEXTS:
            return [], "`when` conditions tell too many contexts apart: give one"
        missed = next((path for path in tested if not _is_covered(path, tested)), None)
        gap = f"not every `{missed}` that a `when` tells apart was looked at: give a context" if missed else ""
        return list(found.values()) or [RunContext()], gap

    def no_looser(self, other: Policy, words: str = "") -> Direction:
        """Whether every session that the stack allows is allowed by another policy."""
        return Direction(self, other, Standard(False, _wider_approvals(self.stack, other)), words)

    def reach(self, selector: Any) -> Proved | Refuted | Unknown:
        """Whether a call that a selector means can ever be allowed."""
        deny = read_selector(selector)
        members = members_of(self.stack)
        aliases: dict[str, tuple[str, ...]] = {}
        for name, tools in ((name, tools) for member in members for name, tools in member.aliases.items()):
            aliases[name] = (*aliases.get(name, ()), *tools)
        virtual = [each for member in members for each in virtual_tools_of(member)]
        property = Policy(
            name="reach", tool_rules=[deny], aliases=aliases, virtual_tools=virtual, on_violation="cancel"
        )
        got = Direction(self, property, Standard(True)).whole_answer()
        if isinstance(got, Refuted):
            return msgspec.structs.replace(got, reason=f"{deny.words().removeprefix('no ')} can be called")
        if isinstance(got, Proved):
            return msgspec.structs.replace(got, reason=f"no session comes to {deny.words().removeprefix('no ')}")
        return got


class Direction:
    """The search for a session that a stack allows and that does not keep a policy; part by part of the policy.

    `refuted` is the shortest that was found, and in which context.
    """

    def __init__(self, inquiry: Inquiry, property: Policy, standard: Standard, words: str = "") -> None:
        self._stack, self._property, self._standard, self._words = inquiry.stack, property, standard, words
        self._name = _distinct_name(property, inquiry.stack)
        self._work = inquiry.work
        self._found: list[Implication] = []
        self._open: list[tuple[Setting, PropertyPart]] = []
        self._ended: list[Implication] = []
        self.refuted: tuple[Implication, RunContext] | None = None
        table = [each for each in inquiry.tools or () if isinstance(each, Tool)]
        programs = [compile_policy(policy, tools=table) for policy in (inquiry.stack, property)]
        given = inquiry.tools and tuple(each for each in inquiry.tools if isinstance(each, str) or not each.is_family)
        every = [rule.clause for program in programs for rule in program.rules]
        contexts, gap = inquiry.contexts(every, programs)
        for context in contexts:
            mine, other = (side(program, context) for program in programs)
            stated = inquiry.context or RunContext()
            setting = Setting(mine, other.program, context, stated, given, inquiry.work, standard)
            if (nothing := NothingCertificate(other, standard)).holds():
                self._found.append(Implication("proved", "", certificate=nothing))
            self._open += [(setting, each) for each in other.parts(standard)]
        if gap:
            self._found.append(Implication("unknown", gap))
        self._found += [Implication("proved", "", bounded=(each,)) for each in _bounds(inquiry, every)]

    def whole_answer(self) -> Proved | Refuted | Unknown:
        """Search, and answer."""
        self.search(rest=False)
        self.search(rest=True)
        return self.answer()

    def search(self, *, rest: bool) -> None:
        """Look at what is open. First each part has an even share of a quarter of the work, so that what is easily
        found is found; then of the `rest`.
        """
        todo, self._open, self._ended = self._open, [], []
        for n, (setting, part) in enumerate(todo):
            deepest = None if self.refuted is None else self.refuted[0].length - 1
            if deepest is not None and deepest < 0:
                return
            with self._work.share(len(todo) - n if rest else 4 * len(todo)):
                got = implied(setting, part, deepest)
            if got.ended:
                self._open.append((setting, part))
                self._ended.append(got)
            else:
                self._found.append(got)
            if got.verdict == "refuted":
                self.refuted = (got, setting.context)

    def answer(self) -> Proved | Refuted | Unknown:
        found = [*self._found, *self._ended]
        explored = _together(
            {"classes": e.classes, "states": e.states, "depth": e.depth, "bounded": list(e.bounded)} for e in found
        )
        unknown = next((each for each in found if each.verdict == "unknown"), None)
        if self.refuted is not None:
            got, context = self.refuted
            assert got.replayed is not None
            assert got.replayed.found is not None
            if unknown is not None:
                explored["bounded"].append(NOT_SHORTEST)
            return Refuted(
                reason=self._breach(got.replayed.session, got.replayed.found),
                session=got.replayed.session,
                violation=got.replayed.found,
                events=got.replayed.events,
                context=msgspec.to_builtins(context),
                explored=explored,
            )
        if unknown is not None:
            return Unknown(reason=unknown.reason, explored=explored)
        proof = f"every session that `{self._stack.name}` allows keeps {self._name}"
        certificates = [each.certificate for each in found if each.certificate is not None]
        return Proved(reason=proof, explored=explored, certificates=certificates)

    def _breach(self, session: Sequence[Mapping[str, Any]], found: Violation) -> str:
        """What a session breaks of the policy, in words."""
        at_end = ", at the end" if found.at_end else ""
        held = session and session[-1]["decision"] == "request_approval"
        words = self._standard.widened if held and not found.at_end and self._standard.widened else self._words
        broken = "breaks" if self._standard.strict else "is denied by"
        says = words or f"a session that `{self._stack.name}` allows {broken} {self._name}"
        return f"{says}: rule `{found.rule}`{at_end}: {found.message}"


def read_selector(selector: Any) -> Deny:
    """A deny list of what a selector means, or is. Raises ValueError for anything else."""
    if isinstance(selector, Deny):
        return selector
    items = selector if isinstance(selector, tuple | list) else (selector,)
    try:
        made = [msgspec.convert(each, ToolWhere) if isinstance(each, dict) else each for each in items]
        if not made or not all(isinstance(each, str | ToolWhere) for each in made):
            raise ValueError(wrong_type("a selector: a tool's name, or `{tool, where}`, or a list of them", selector))
        if called := next((each for each in items if isinstance(each, str) and "(" in each), None):
            raise ValueError(f"`{called}` is a call; a selector is a tool's name, or `{{tool, where}}`")
        deny = Deny(made)
        checked_stack(Policy(name="reach", tool_rules=[deny]))
    except PolicyError as error:
        raise ValueError(f"not a selector: {error.problems[0].message}") from None
    except msgspec.ValidationError as error:
        raise ValueError(f"not a selector: {json_words(error)}") from None
    else:
        return deny


def _bounds(inquiry: Inquiry, clauses: Sequence[Clause]) -> Iterator[str]:
    """What an answer takes for granted, in words."""
    if inquiry.tools is not None:
        yield ONLY_TOOLS
    is_portable = any(name.casefold() in PORTABLE for clause in clauses for name in clause.names)
    if is_portable and not any(isinstance(each, Tool) for each in inquiry.tools or ()):
        yield OWN_NAMES
    if any(clause.record.when for clause in clauses):
        yield ONE_CONTEXT


def _use(clauses: Iterable[Clause], operator: str) -> bool:
    return any(name == operator for clause in clauses for _, (name, _) in atoms_of(clause.conditions))


def _differ_by_shell(clauses: Iterable[Clause]) -> bool:
    """Whether a text that conditions name runs other commands in one shell than in another."""
    named = literals([atom for clause in clauses for _, atom in atoms_of(clause.conditions)])
    return any(commands_of(text, "sh") != commands_of(text, "bash") for text in map(text_of, named))


def _is_covered(path: str, tested: dict[str, list[Any]]) -> bool:
    """Whether the contexts that were tried meet every set of the conditions at a path."""
    steps = path_steps(path)
    within = any(other != path and path_steps(other)[: len(steps)] == steps for other in tested)
    if within or not steps or any(kind != "key" for kind, _ in steps):
        return False
    if path in OBJECTS and any(name != "exists" for name, _ in tested[path]):
        return False
    return are_covered(tested[path]) and not depend_on_directories(tested[path], RunContext())


def _distinguished(path: str, values: Iterable[Any], clauses: Iterable[Clause]) -> list[Any]:
    """The values that a context may have at a path, one of those that the conditions at it do not tell apart; not
    none, as a run whose context lacks what a `when` asks for does not start.
    """
    values_at = compile_path(path)
    leaves = [leaf for clause in clauses for leaf in all_in(list(clause.record.when)) if leaf.path == path]
    tests = [compile_when([each]) for leaf in leaves for each in (leaf, Condition(not_=(leaf,)))]
    found: dict[Any, Any] = {}
    for value in sorted(values, key=lambda each: each is not None):
        [document], _ = documents({path: [value]}, 1)
        if not values_at(document):
            continue
        with suppress(msgspec.ValidationError):
            facts = [NoCall(msgspec.convert({**place, **document}, RunContext)) for place in PLACES]
            found.setdefault(tuple(holds(document, each) for holds in tests for each in facts), value)
    return list(found.values())


def _wider_approvals(stack: Policy, property: Policy) -> str:
    """Why an approval of a stack may be given by more people, or for more calls, than one of a policy; "" if not."""
    mine, other = stack.approval or Approval(), property.approval or Approval()
    name = _distinct_name(property, stack)
    if SCOPES.index(mine.scope) > SCOPES.index(other.scope):
        return f"approval: one yes may cover a `{mine.scope}` in `{stack.name}`, and not in {name}"
    if other.approvers is not None and (mine.approvers is None or not {*mine.approvers} <= {*other.approvers}):
        return f"approval: people may answer for `{stack.name}` who may not for {name}"
    if other.four_eyes and not mine.four_eyes:
        return f"approval: whoever started a run may answer for `{stack.name}`, and not for {name}"
    return ""


def _together(figures: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several searches as one."""
    figures = list(figures)
    return {
        "classes": max((each["classes"] for each in figures), default=0),
        "states": sum(each["states"] for each in figures),
        "depth": max((each["depth"] for each in figures), default=0),
        "bounded": list(dict.fromkeys(text for each in figures for text in each["bounded"])),
    }
