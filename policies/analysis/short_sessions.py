"""Short sessions, tried one by one on the monitors: for rules that the search over states cannot follow.

It proves nothing. Calls share one value at every path that a rule compares with another, and differ from that in one
input at a time.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..language.conditions import is_argument, is_output, output_ref
from ..language.selectors import ToolWhere
from ..rules.machine import Machine
from ..rules.per_key import without_key
from ..rules.provenance import Provenance
from ..rules.rule import Rule, items_of
from ..values.globs import matcher
from ..values.regexes import Regex
from ..values.work_budget import OutOfWork
from .call_classes import NameUniverse
from .components import InputClass, overlaps
from .replaying import replay
from .session_search import ASKING, FAILED, RUNNING, SessionStep
from .values import MISSING, atoms_of, candidates, documents, samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..events.run_context import RunContext, Tool
    from ..monitor.program import Program
    from ..values.work_budget import Work
    from .alphabet import PlayedRule
    from .replaying import Replayed
    from .values import Atom

SHARED, ANOTHER = "id1", "id2"
"""What all calls may carry where a rule compares them, and what is not that."""
MOST_CALLS = 3
MOST_SESSIONS = 4_000
MOST_VALUES = 4
"""How many values of one path are tried."""
MOST_OUTPUTS = 4


class ShortSessions:
    """The sessions of a few calls that some rules name."""

    def __init__(
        self, played: Sequence[PlayedRule], given: Sequence[str | Tool] | None, context: RunContext, work: Work
    ) -> None:
        self._played, self._given, self._context, self._work = played, given, context, work

    def broken(self, stack: Program, property: Program, *, strict: bool, deepest: int | None) -> Replayed | None:
        """A session that the stack lets through and the property does not keep; None if none was found."""
        most = MOST_CALLS if deepest is None else min(deepest, MOST_CALLS)
        settles = any(_settles(rule.machine) for rule in property.rules)
        left = MOST_SESSIONS
        try:
            letters = [*self._letters()]
            layer = [[*opening] for opening in self._openings()]
            for _ in range(most):
                following = []
                for steps, letter in itertools.product(layer, letters):
                    tried = [*steps, letter]
                    self._work.spend(ASKING * len(tried))
                    got = replay(tried, stack, property, self._context, strict=strict)
                    left -= 1
                    if not got.broken and settles and _is_through(got, tried):
                        ended = replay([*tried, SessionStep("finish")], stack, property, self._context, strict=strict)
                        got = ended if ended.broken else got
                    if got.broken:
                        return got
                    if left <= 0:
                        return None
                    if _is_through(got, tried):
                        following.append(tried)
                layer = following
        except OutOfWork:
            return None
        return None

    def _openings(self) -> Iterator[list[SessionStep]]:
        """What a user may have written before."""
        yield []
        phrases = list(dict.fromkeys(p for each in self._played for p in each.rule.machine.phrases))
        sources = (each.clause.record for each in self._played)
        if phrases or any(isinstance(each, Provenance) and "user_message" in each.from_ for each in sources):
            texts = [next(iter(samples(phrase)), "") for phrase in phrases]
            yield [SessionStep("user", text=" ".join([*texts, f"please use {SHARED}"]))]

    def _letters(self) -> Iterator[SessionStep]:
        numbers = itertools.count()
        unreturned = (FAILED, RUNNING) if any(overlaps(each.rule.machine) for each in self._played) else (FAILED,)
        for name in self._names():
            outputs = tuple(self._outputs(name))
            for input in self._inputs(name):
                call = InputClass(next(numbers), name, input, outputs)
                yield from (SessionStep("call", call, outcome=n) for n in (*range(len(outputs)), *unreturned))

    def _names(self) -> list[str]:
        if self._given is not None:
            return [each if isinstance(each, str) else each.name for each in self._given]
        patterns = [p for each in self._played for p in each.clause.patterns(*each.clause.roles.all())]
        patterns += [tool for each in self._played for reference in _references(each) for tool in reference.tools]
        universe = NameUniverse(patterns, self._work)
        return [universe.label(name) if name in universe.plain else name for name in universe.all]

    def _naming(self, name: str) -> Iterator[PlayedRule]:
        """The rules that name a tool."""
        for each in self._played:
            if matcher(each.clause.patterns(*each.clause.roles.all()))(name):
                yield each

    def _inputs(self, name: str) -> list[dict[str, Any]]:
        atoms: dict[str, list[Atom]] = {}
        shared: dict[str, None] = {}
        for each in self._naming(name):
            record, scope = each.clause.record, each.clause.scope
            for where in each.wheres:
                if not matcher(scope.expand(where.tool))(name):
                    continue
                for path, atom in atoms_of(where.where):
                    if is_argument(atom[1]) or is_output(atom[1]):
                        shared |= {path: None} | ({atom[1]["arg"]: None} if is_argument(atom[1]) else {})
                    else:
                        atoms.setdefault(path, []).append(atom)
            shared |= dict.fromkeys(_compared(each))
            if isinstance(record, Rule) and record.key is not None:
                shared[record.key] = None
        choices = {path: candidates(found)[:MOST_VALUES] for path, found in atoms.items()}
        choices |= {path: [SHARED, *choices.get(path, ()), ANOTHER, MISSING] for path in shared}
        return [each for each in _one_by_one(choices) if isinstance(each, dict)]

    def _outputs(self, name: str) -> list[Any]:
        """What a tool may return: the shared value, and what meets a requirement."""
        choices: dict[str, list[Any]] = {}
        texts: list[str] = []
        for each in self._played:
            scope = each.clause.scope
            for prior in each.requirements:
                if not matcher(scope.patterns(prior.prior))(name):
                    continue
                for path, atom in atoms_of(prior.output):
                    refers = is_argument(atom[1]) or is_output(atom[1])
                    choices[path] = [SHARED, ANOTHER] if refers else candidates([atom])[:2]
                for same in prior.same:
                    if same.prior_output_path:
                        choices[same.prior_output_path] = [SHARED, ANOTHER]
                    texts += _supplying(same.prior_output_regex) if same.prior_output_regex else ()
            for reference in _references(each):
                if matcher(reference.tools)(name):
                    choices[reference.path] = [SHARED, ANOTHER]
            record = each.clause.record
            for source in record.from_ if isinstance(record, Provenance) else ():
                if not isinstance(source, str) and matcher(scope.patterns(source.tool))(name):
                    choices |= {source.path: [SHARED, ANOTHER]} if source.path else {}
                    texts += _supplying(source.regex) if source.regex else ()
        made = [each for each in _one_by_one(choices) if each != {}] if choices else []
        return ["done", *made[:MOST_OUTPUTS], *texts[:MOST_OUTPUTS]]


def _is_through(got: Replayed, steps: list[SessionStep]) -> bool:
    calls = sum(1 for step in steps if step.kind == "call")
    return len(got.session) == calls and got.session[-1]["outcome"] != "denied"


def _settles(machine: Machine) -> bool:
    return type(without_key(machine)).settle is not Machine.settle


def _compared(rule: PlayedRule) -> Iterator[str]:
    """The paths of inputs whose values it compares with those of other calls."""
    yield from rule.bound_paths
    for prior in rule.requirements:
        yield from (same.prior_path for same in prior.same if isinstance(same.prior_path, str))
        yield from (atom[1]["arg"] for _, atom in atoms_of(prior.output) if is_argument(atom[1]))
        for item in items_of(prior.prior):
            if isinstance(item, ToolWhere):
                yield from (atom[1]["arg"] for _, atom in atoms_of(item.where) if is_argument(atom[1]))


def _references(rule: PlayedRule) -> Iterator[Any]:
    conditions = [c for where in rule.wheres for c in where.where]
    conditions += [c for prior in rule.requirements for c in prior.output]
    for _, (_, operand) in atoms_of(conditions):
        if is_output(operand):
            yield output_ref(operand, rule.clause.scope.expand)


def _supplying(pattern: str) -> list[str]:
    """Texts that a pattern reads the shared value from."""
    regex = Regex(pattern)
    made = (text.replace(each, SHARED) for text in samples(pattern) for each in regex.values([text]) if each)
    return [text for text in made if list(regex.values([text])) == [SHARED]][:1]


def _one_by_one(choices: dict[str, list[Any]]) -> Iterator[Any]:
    """A document with the first value of each path; then with others of one path; then an empty one."""
    first = {path: values[:1] for path, values in choices.items()}
    made: list[Any] = documents(first, 1)[0]
    for path, values in choices.items():
        made += documents({**first, path: values[1:]}, len(values))[0] if values[1:] else []
    found: dict[str, Any] = {str(each): each for each in [*made, {}]}
    yield from found.values()
