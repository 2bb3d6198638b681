"""The calls that some rules tell apart: names, for each the classes of inputs with an example each, and what calls
return and users write.

Examples are found by trying values from the rules' own conditions and asking the rules themselves. Where that may
have missed a class, calls that meet any other set of conditions are taken to exist too (`phantom`): a proof holds for
them as well, and a session with one is no answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_, or_
from typing import Any, NamedTuple

import msgspec

from ..events.run_context import Tool
from ..language.facts import NamingKind
from ..language.operators import LENGTHS
from ..language.predicates import compile_conditions
from ..language.selectors import ToolWhere, VirtualName, items_of
from ..monitor.program import probe_of
from ..rules.machine import ToolReturn, captured
from ..rules.rule import PriorOutput
from ..values.json_values import given_texts, text_of
from ..values.paths import compile_path, path_steps
from ..values.regexes import Regex
from .call_classes import NameUniverse, ToolKinds
from .components import ANY_OTHER, NEVER_SEEN, InputClass, RuleComponent
from .played_rule import PlayedRule, Setting, SplitComponent
from .values import (
    EQUALITIES,
    MISSING,
    MOST_LITERALS,
    OPAQUE,
    Atom,
    are_covered,
    atoms_of,
    binds,
    candidates,
    depend_on_directories,
    distinct,
    documents,
    equal_texts,
    is_apart,
    is_exact,
    is_member,
    is_simple,
    literals,
    messages_apart,
    placed,
    rows,
    samples,
    text_capturing,
    with_text,
)

MOST_INPUTS = 3_000
"""How many inputs of one tool are tried."""
MOST_LISTS = 80
"""How many lists of texts are tried at one path."""
MOST_OUTPUTS = 400
"""How many outputs of one tool are tried."""
MOST_ASKS = 10
"""How many conditions of one tool may be met independently of each other."""


class _ListOutcomes(NamedTuple):
    """For each condition, read either way: whether all elements of a list meet it, and whether one does."""

    by_all: tuple[bool, ...]
    by_one: tuple[bool, ...]


class _LookedAt(NamedTuple):
    """What rules look at in the inputs of one tool: the operators `tested` at each path, and the paths whose values
    bind calls to others.
    """

    name: str
    tested: dict[str, list[Atom]]
    bound: set[str]


class Alphabet:
    """The classes of calls and the messages of users that some rules tell apart.

    Attributes:
        calls: One example of each class.
        texts: Messages of users.
        gaps: The parts that were not shown to be complete, in words; a proof with gaps is not a proof.
    """

    def __init__(
        self,
        played: Sequence[PlayedRule],
        parts: Sequence[RuleComponent | SplitComponent],
        setting: Setting,
        followed: int,
        *,
        others: bool,
    ) -> None:
        self._played, self._parts, self._stated, self._work = played, parts, setting.stated, setting.work
        self._tools = ToolKinds(setting.stack.program.tools)
        self._numbers = itertools.count(2)
        self._leaf_tests: dict[tuple[str, str], list[tuple[Any, Any, bool]]] = {}
        self._portable: dict[tuple[str, str], str] = {}
        self._listless: set[tuple[str, str]] = set()
        self.values: tuple[Any, ...] = (*(f"id{n + 1}" for n in range(followed)), *((ANY_OTHER,) if others else ()))
        self.calls: list[InputClass] = []
        self.gaps: list[str] = []
        names = self._names(setting.given)
        standing = [*self.values, NEVER_SEEN]
        written = str([each.clause for each in played])
        self.gaps += [f"values with `{each}` in them" for each in (ANY_OTHER, NEVER_SEEN) if each in written]
        self.values += tuple(self._distinguished(names))
        self._replies = Replies(played, parts, self.values, standing, self.gaps)
        self._read_values()
        for name in names:
            self._add(name)
        self.texts = self._replies.messages()

    def _names(self, given: Sequence[str | Tool] | None) -> list[str]:
        if given is not None:
            return [each if isinstance(each, str) else each.name for each in given]
        patterns: list[str] = []
        for each in self._played:
            patterns += each.clause.names
            for virtual in each.clause.scope.virtual_names:
                patterns += [*each.clause.scope.expand(virtual.written.tool), virtual.name]
        universe = NameUniverse(patterns, self._work)
        if not universe.complete:
            self.gaps.append("too many overlapping name patterns")
        return universe.written

    def _conditions(self, name: str) -> Iterator[tuple[str, Atom]]:
        """The operators that decide which slots a call of that name meets."""
        names = self._tools.names(name)
        for each in self._played:
            for virtual in each.virtual_names(names):
                yield virtual.written.path, ("match", virtual.written.match)
            for where in each.clause.wheres:
                if each.means(each.clause.patterns(where.tool), names):
                    yield from atoms_of(where.where)

    def _distinguished(self, names: Sequence[str]) -> Iterator[Any]:
        """More values to follow: those that conditions single out at paths by which calls are bound, as every call,
        output and message may have them.
        """
        found: dict[str, Any] = {}
        for name in names:
            bound = self._bindings(name)
            tested = _by_path((path, atom) for path, atom in self._conditions(name) if path in bound)
            for path, atoms in tested.items():
                met = {self._outcomes(name, path, value) for value in self.values}
                for value in filter(binds, [*literals(atoms)[:MOST_LITERALS], *candidates(atoms)]):
                    outcome = self._outcomes(name, path, value)
                    if outcome not in met or (is_exact(atoms) and value in literals(atoms)):
                        met.add(outcome)
                        found.setdefault(text_of(value), value)
                        found |= {text: text for text in equal_texts(value) if value in literals(atoms)}
        for evidence in (evidence for each in self._played for evidence in each.evidence):
            named = literals([atom for path, atom in atoms_of(evidence.output) if path in evidence.paths])
            found |= {text_of(value): value for value in named[:MOST_LITERALS]}
        yield from found.values()

    def _bindings(self, name: str) -> set[str]:
        """The paths whose values bind calls of that name to others."""
        names = self._tools.names(name)
        found = set()
        for each in self._played:
            clause = each.clause
            if clause.key is not None:
                named = each.means(clause.names, names)
                found |= {clause.key} if named or each.rule.machine.every_call else set()
            for selector, path in clause.record.inputs():
                found |= {path} if each.means(clause.patterns(selector), names) else set()
        return found

    def _values_at(self, path: str, bound: set[str]) -> tuple[Any, ...]:
        """The values to follow at a path, and those that a rule names."""
        found = list(self.values) if path in bound else []
        if path in bound:  # a call may name several values, of which only those that are followed matter
            followed = [value for value in self.values if value != ANY_OTHER]
            found += map(list, itertools.combinations(followed[:MOST_LITERALS], 2))
            for each in (each for rule in self._played for each in rule.follows if each.path == path):
                found += [*each.exempt, *(samples(each.extract) if each.extract else ())]
        return tuple(found)

    def _read_values(self) -> None:
        """Note as gaps the patterns that extract anything but followed values: no search follows that."""
        for pattern in (each.extract for rule in self._played for each in rule.follows if each.extract):
            found = Regex(pattern)
            if any(list(found.values([value])) != [value] for value in map(text_of, self.values)):
                self.gaps.append(f"values that `{pattern}` extracts")

    def _add(self, name: str) -> None:
        """Add the classes of a tool's calls."""
        looked_at = _LookedAt(name, self._tested(name), self._bindings(name))
        bound = looked_at.bound
        if overlapping := next((path for path in sorted(bound) if not is_apart(path, bound)), None):
            self.gaps.append(f"values of `{name}` at `{overlapping}` that are also at another path")
        inputs, everything = self._inputs(looked_at, self._choices(looked_at))
        found = self._classes(looked_at, inputs)
        compared = any(part.rule.machine.compares_inputs for part in self._parts)
        for call in found.values():
            self._keep(call)
            if compared:
                self._keep(msgspec.structs.replace(call, fresh=True))
        missing: dict[NamingKind, dict[str, Any] | None] = dict.fromkeys(self._tools.missing(name))
        if not (everything and self._is_complete(looked_at)):
            missing = {**self._tools.kinds(name), **missing}
        self._add_phantoms(name, missing, found)

    def _tested(self, name: str) -> dict[str, list[Atom]]:
        """The operators at each path of a tool's inputs, under its own names and the portable ones."""
        tested = _by_path(self._conditions(name))
        for path, atoms in list(tested.items()):
            for place in self._tools.places(name, path):
                self._portable[name, place] = path
                tested[place] = [*tested.get(place, ()), *atoms]
        return tested

    def _choices(self, looked_at: _LookedAt) -> dict[str, list[Any]]:
        """The values to try at each path."""
        _, tested, bound = looked_at
        choices = {path: candidates(atoms, self._values_at(path, bound)) for path, atoms in tested.items()}
        for path in _also_of_elements(tested):
            elements = f"{path}[*]"
            for each in (path, elements):
                choices[each] = candidates([*tested[path], *tested[elements]], self._values_at(each, bound))
            choices[path].append([])
        for path in sorted(bound):
            if is_exact(tested.get(path, ())):  # all values but those that are followed are alike
                choices[path] = [*self._values_at(path, bound), MISSING, *([None, ""] if path in tested else [])]
        return choices

    def _inputs(self, looked_at: _LookedAt, choices: dict[str, list[Any]]) -> tuple[list[dict[str, Any]], bool]:
        """Inputs with these values, the shortest first; and whether they have every choice of them."""
        reduced = self._reduced(looked_at, choices)
        kinds = self._tools.kinds(looked_at.name)
        inputs: list[Any] = []
        everything = True
        for start in kinds.values():
            made, all_made = documents(reduced, MOST_INPUTS // len(kinds), start)
            if not all_made:
                everything = False
                for path, values in choices.items():
                    made += documents({path: values}, MOST_INPUTS, start)[0]
            inputs += [*made, *rows(choices, made)]
        objects = (each if isinstance(each, dict) else {} for each in inputs)
        return sorted(objects, key=lambda each: (len(each), len(str(each)))), everything

    def _classes(self, looked_at: _LookedAt, inputs: Iterable[dict[str, Any]]) -> dict[Any, InputClass]:
        """The first input of each class, by the conditions that it meets and the values that bind it."""
        found: dict[Any, InputClass] = {}
        for input in inputs:
            self._work.spend(len(self._parts))
            call = self._made(looked_at, input)
            key = (tuple(part.mask(call) for part in self._parts), call.bound)
            found.setdefault(key, call)
        return found

    def _reduced(self, looked_at: _LookedAt, choices: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """At each path one of the values that meet the same conditions, and lists of them that meet others. Where
        they bind calls, each stands for itself, but those like any value are left out: some of these are followed.
        """
        name, _, bound = looked_at
        reduced = {}
        for path, values in choices.items():
            kept: dict[Any, Any] = {}
            followed = {self._value_key(value) for value in self._values_at(path, bound)}
            usual = self._outcomes(name, path, self.values[0])
            joined = (name, path) in self._portable or any(True for _ in self._tools.places(name, path))
            joined |= path.endswith("[*]")  # without elements, a value may stand there as a whole
            for value in values:
                outcomes = self._outcomes(name, path, value)
                if path in bound and binds(value) and outcomes == usual and self._value_key(value) not in followed:
                    continue
                apart = self._value_key(value) if path in bound else joined and value is MISSING
                kept.setdefault((outcomes, apart), value)
            several = path.endswith("[*]")
            if path not in bound and (several or any(looks for _, _, looks in self._leaf_tests[name, path])):
                self._add_lists(name, path, kept, values if several else [v for v in values if isinstance(v, str)])
            reduced[path] = list(kept.values())
        return reduced

    def _outcomes(self, name: str, path: str, value: Any) -> tuple[tuple[bool, bool], ...]:
        """For each condition at a path: whether a value there meets it where it allows, and where it denies."""
        [document], _ = documents({path: [value]}, 1, self._tools.plainest(name))
        self._work.spend(len(self._parts))
        if (name, path) not in self._leaf_tests:
            wholes = {path, self._portable.get((name, path), path)}
            self._leaf_tests[name, path] = list(self._tests_at(wholes | {f"{each}[*]" for each in wholes}))
        part = _inner(self._parts[0])
        call = part.in_flight(InputClass(-1, name, document if isinstance(document, dict) else {}), part.moments[0])
        return tuple(
            (bool(allows(call.input, call)), bool(denies(call.input, call)))
            for allows, denies, _ in self._leaf_tests[name, path]
        )

    def _add_lists(self, name: str, path: str, kept: dict[Any, Any], values: Sequence[Any]) -> None:
        """Add a list for each set of conditions that lists meet. Where one allows, all elements must meet it; where
        it denies, one is enough.
        """
        elements: dict[_ListOutcomes, Any] = {}
        for value in values:
            if value is not MISSING:
                alone = [self._outcomes(name, path, made) for made in ([value], [[value]], [value, ["zq"]])]
                outcomes = tuple(itertools.chain.from_iterable(itertools.chain.from_iterable(alone)))
                elements.setdefault(_ListOutcomes(outcomes, outcomes), value)
        todo: list[tuple[_ListOutcomes, tuple[Any, ...]]] = [(met, (value,)) for met, value in elements.items()]
        seen = set(elements)
        while todo:
            met, chosen = todo.pop(0)
            apart = [[each] for each in chosen]
            for made in (list(chosen), apart, [chosen[0], *apart[1:]]):
                kept.setdefault((self._outcomes(name, path, made), None), made)
            for more, value in elements.items():
                by_all, by_one = map(and_, met.by_all, more.by_all), map(or_, met.by_one, more.by_one)
                both = _ListOutcomes(tuple(by_all), tuple(by_one))
                if both in seen:
                    continue
                if len(seen) >= MOST_LISTS:
                    self._listless.add((name, path))
                    return
                seen.add(both)
                todo.append((both, (*chosen, value)))

    def _tests_at(self, paths: set[str]) -> Iterator[tuple[Any, Any, bool]]:
        """Each condition at some paths, read either way, and whether it has an operator that looks inside values."""
        leaves = {}
        for each in self._played:
            for leaf in (c for c in each.clause.conditions if c.path in paths):
                leaves[msgspec.json.encode(leaf, order="deterministic")] = leaf
        for leaf in leaves.values():
            allows, denies = (compile_conditions([leaf], allows=each, loose=True).holds for each in (True, False))
            yield allows, denies, any(name in OPAQUE for name, _ in leaf.operators())
        virtual_names = (name for each in self._played for name in each.clause.scope.virtual_names)
        for name in {name.written: name for name in virtual_names if name.written.path in paths}.values():
            fits = partial(_fits, name)
            yield fits, fits, True

    @staticmethod
    def _value_key(value: Any) -> Any:
        return value if isinstance(value, str) else repr(value) if value is not MISSING else None

    def _made(self, looked_at: _LookedAt, input: dict[str, Any]) -> InputClass:
        paths = sorted(looked_at.bound)
        bound = tuple(tuple(given_texts(compile_path(path, loose=True)(input))) for path in paths)
        wild = tuple(path for path, found in zip(paths, bound, strict=True) if ANY_OTHER in found)
        some = itertools.chain.from_iterable(itertools.combinations(wild, n) for n in range(1, len(wild) + 1))
        variants = [reduce(lambda made, path: placed(made, path, NEVER_SEEN), paths, input) for paths in some]
        return InputClass(
            -next(self._numbers), looked_at.name, input, wild=wild, variants=tuple(variants), bound=bound
        )

    def _keep(self, call: InputClass) -> None:
        made = msgspec.structs.replace(call, number=len(self.calls))
        made.outputs = self._replies.outputs(made)
        self.calls.append(made)

    def _is_complete(self, looked_at: _LookedAt) -> bool:
        """Whether the inputs that were tried meet every set of conditions that any input meets: members are apart,
        and the values of each cover what any value meets.
        """
        name, tested, bound = looked_at
        together = {f"{path}[*]" for path in _also_of_elements(tested) if not bound & {path, f"{path}[*]"}}
        paths = {*tested, *bound} - together
        roots = {tuple(path_steps(path)[:1]) for path in paths}
        if len(roots) < len(paths) or not all(map(is_member, roots)) or not all(map(is_simple, tested)):
            return False
        if not all(is_exact(tested.get(path, ())) for path in bound):
            return False
        if any((name, path) in self._listless for path in tested):
            return False
        if any(depend_on_directories(atoms, self._stated) for atoms in tested.values()):
            return False
        return all(are_covered(atoms, of_texts=self._is_of_texts(path)) for path, atoms in tested.items())

    def _is_of_texts(self, path: str) -> bool:
        """Whether conditions at a path look inside texts only, beside types and the lengths of any value; or inside
        any value, and ask for a type or a length of texts only.
        """
        if path.endswith("[*]"):
            return False
        leaves = (leaf for each in self._played for leaf in each.clause.conditions)
        looking: set[str] = set()
        types: set[str] = set()
        for operators in (dict(leaf.operators()) for leaf in leaves if leaf.path == path):
            named = operators.get("type", ())
            named = {named} if isinstance(named, str) else set(named)
            if not named or not named <= {"string", "null", "boolean"}:
                types |= named
                looking |= operators.keys() - {"type", "exists"}
        return not looking or (not types and (looking <= LENGTHS or not looking & LENGTHS))

    def _add_phantoms(
        self, name: str, kinds: dict[NamingKind, dict[str, Any] | None], found: dict[Any, InputClass]
    ) -> None:
        """Add a phantom for each set of conditions that calls of some kinds may meet, and no example does."""
        seen = set(found)
        examples: dict[Any, InputClass] = {}
        for (_, bound), call in found.items():
            examples.setdefault(bound, call)
        for kind, document in kinds.items():
            probes = [probe_of(_inner(part).rule, self._tools.names(name, kind)) for part in self._parts]
            alike: dict[Any, list[tuple[int, int]]] = {}
            for n, probe in enumerate(probes):
                for bit, _ in probe.tests:
                    if not self._is_ruled_out(name, n, bit, document):
                        alike.setdefault(self._identity(n, bit), []).append((n, bit))
            if len(alike) > MOST_ASKS:
                self.gaps.append(f"{len(alike)} conditions on inputs of `{name}` at once")
                continue
            for met in self._sets_met(alike):
                masks = [probe.mask for probe in probes]
                for n, bit in itertools.chain.from_iterable(alike[identity] for identity in met):
                    masks[n] |= bit
                for bound, example in examples.items():
                    if (tuple(masks), bound) not in seen:
                        seen.add((tuple(masks), bound))
                        self._keep(msgspec.structs.replace(example, phantom=True, masks=dict(enumerate(masks))))

    def _sets_met(self, conditions: Collection[tuple[Any, bool]]) -> Iterator[set[tuple[Any, bool]]]:
        """The sets of conditions that one call may meet: what it meets where that allows, it also meets where that
        denies.
        """
        for truth in itertools.product((False, True), repeat=len(conditions)):
            self._work.spend(len(self._parts))
            met = set(itertools.compress(conditions, truth))
            missed = {*conditions} - met
            if not any(allows and (selector, False) in missed for selector, allows in met):
                yield met

    def _is_ruled_out(self, name: str, n: int, bit: int, document: dict[str, Any] | None) -> bool:
        """Whether a slot means no call of a kind, by what such calls do; `document` is an input of one, if known."""
        slot = _inner(self._parts[n]).rule.machine.slots[bit.bit_length() - 1]
        return all(
            isinstance(item, ToolWhere) and self._tools.rules_out(name, item.where, document, allows=slot.allows)
            for item in items_of(slot.selector)
        )

    def _identity(self, n: int, bit: int) -> tuple[Any, bool]:
        """The identity of a condition, whichever rule has it, and whether it allows."""
        slot = self._parts[n].rule.machine.slots[bit.bit_length() - 1]
        policy = id(self._played[n].clause.scope) if slot.virtual_names else 0
        return (slot.identity, policy), slot.allows


def _inner(part: RuleComponent | SplitComponent) -> RuleComponent:
    return part.followed if isinstance(part, SplitComponent) else part


def _by_path(conditions: Iterable[tuple[str, Atom]]) -> dict[str, list[Atom]]:
    """The operators at each path, each once."""
    found: dict[str, list[Atom]] = {}
    for path, atom in conditions:
        found.setdefault(path, []).append(atom)
    return {path: distinct(atoms) for path, atoms in found.items()}


def _also_of_elements(tested: Mapping[str, Sequence[Atom]]) -> list[str]:
    """The paths that are compared for equality as a whole and as `[*]`, where one value is all of a list."""
    both = {path: {name for each in (path, f"{path}[*]") for name, _ in tested.get(each, ())} for path in tested}
    return [path for path, names in both.items() if f"{path}[*]" in tested and names <= {*EQUALITIES, "exists"}]


def _fits(name: VirtualName, input: Any, facts: Any) -> bool:
    return bool(name.fits(input))


class Replies:
    """The outputs of calls and the messages of users, with the followed values in them; of these the `standing` ones
    stand for any value.

    `gaps` takes what was not shown to be complete, in words.
    """

    def __init__(
        self,
        played: Sequence[PlayedRule],
        parts: Sequence[RuleComponent | SplitComponent],
        values: tuple[Any, ...],
        standing: Sequence[str],
        gaps: list[str],
    ) -> None:
        self._played, self._parts, self._values, self._gaps = played, parts, values, gaps
        self._standing = standing

    def outputs(self, call: InputClass) -> tuple[Any, ...]:
        """The outputs such calls may return, as far as the rules can tell them apart."""
        choices: dict[str, list[Atom]] = {}
        bound: set[str] = set()
        patterns: dict[str, None] = {}
        for evidence in self._evidence(call):
            for path, atom in atoms_of(evidence.output):
                choices.setdefault(path, []).append(atom)
            bound.update(evidence.paths)
            patterns |= dict.fromkeys(evidence.patterns)
        if not choices and not bound and not patterns:
            return ("done",)
        returned = [*self._values, list(self._values)]
        tried = {path: candidates(atoms, returned if path in bound else ()) for path, atoms in choices.items()}
        tried |= {path: [*returned, MISSING] for path in bound if path not in tried}
        found, everything = documents(tried, 200)
        if not everything:
            self._gaps.append(f"too many kinds of outputs of `{call.name}`")
        elif not self._are_complete(call, found, choices, bound):
            self._gaps.append(f"outputs of `{call.name}` that were not looked at")
        made = ["done", *found]
        if patterns:
            readings = itertools.product(*(("", *self._supplying(each)) for each in patterns))
            texts = ["\n".join(filter(None, reading)) for reading in readings][1:]
            made += [*texts, *(each for text in texts for output in found for each in with_text(output, text))]
        if len(made) > MOST_OUTPUTS:
            self._gaps.append(f"too many kinds of outputs of `{call.name}`")
        apart = self._distinct(call, made[:MOST_OUTPUTS], bound, patterns)
        if len(apart) < len({key[:2] for key in apart}) * len({read for *_, read in apart}):
            self._gaps.append(f"outputs of `{call.name}` from which a pattern reads a value")
        return tuple(apart.values())

    def _evidence(self, call: InputClass) -> Iterator[PriorOutput]:
        """What the rules look at in the outputs of such calls."""
        watching = (each for each, part in zip(self._played, self._parts, strict=True) if part.watches_end(call))
        return (evidence for each in watching for evidence in each.evidence)

    def _are_complete(
        self, call: InputClass, outputs: list[Any], tested: dict[str, list[Atom]], bound: set[str]
    ) -> bool:
        """Whether these outputs meet every set of conditions that any output meets, with every followed value."""
        met = self._distinct(call, outputs, bound)
        values = {returned for _, returned, _ in met}
        if len(met) == len(values) * 2 ** len(next(iter(met))[0]):
            return True
        apart = len({str(path_steps(path)[:1]) for path in {*tested, *bound}}) == len({*tested, *bound})
        simple = apart and all(map(is_simple, tested)) and not bound & tested.keys()
        return simple and all(are_covered(atoms) and not OPAQUE & {n for n, _ in atoms} for atoms in tested.values())

    def _distinct(
        self, call: InputClass, outputs: Iterable[Any], bound: set[str], patterns: Iterable[str] = ()
    ) -> dict[Any, Any]:
        """The first output of each class: by the conditions that it meets, the followed values at bound paths, and
        those that patterns read.
        """
        conditions = {
            msgspec.json.encode(evidence.output, order="deterministic"): evidence.output
            for evidence in self._evidence(call)
            if evidence.output
        }
        followed = frozenset(map(text_of, self._values))
        regexes = [Regex(pattern) for pattern in patterns]
        tests = [compile_conditions(each, allows=True, loose=False).holds for each in conditions.values()]
        part = _inner(self._parts[0])
        facts = part.in_flight(call, part.moments[0])
        found: dict[Any, Any] = {}
        for output in outputs:
            value = ToolReturn(output).value
            read = tuple(followed.intersection(captured(regex, ToolReturn(output))) for regex in regexes)
            met = tuple(bool(t(value, facts)) for t in tests)
            found.setdefault((met, self._returned(value, bound), read), output)
        return found

    @staticmethod
    def _returned(output: Any, bound: set[str]) -> Any:
        return tuple(tuple(given_texts(compile_path(path, loose=False)(output))) for path in sorted(bound))

    def messages(self) -> list[str]:
        """The messages of users that the rules tell apart; none if they look at none."""
        patterns = list(dict.fromkeys(p for part in self._parts for p in part.rule.machine.phrases))
        from_user = any(part.rule.machine.from_user for part in self._parts)
        values = [*map(text_of, self._values)] if from_user else []
        if not patterns and not values:
            return []
        texts, complete = messages_apart(patterns, values, self._standing)
        if not complete:
            self._gaps.append("messages in which some patterns occur, and others or some values do not")
        return texts

    def _supplying(self, pattern: str) -> Iterator[str]:
        """Texts that a pattern reads each followed value from, and others in which it occurs."""
        texts = [text_capturing(pattern, value) for value in map(text_of, self._values)]
        if None in texts:
            self._gaps.append(f"values that `{pattern}` reads")
        fitting = [text for text in texts if text is not None]
        yield from [*fitting, "\n".join(fitting), *samples(pattern)]
