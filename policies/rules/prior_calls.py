"""The evidence for a `prior` requirement: earlier calls, indexed by their bound values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from ..language.conditions import Condition, OutputRef, has_references
from ..language.facts import Facts
from ..language.operators import Evidence
from ..language.predicates import compile_conditions, explained
from ..language.selectors import HUMAN, NameScope, Selector, Slot, ToolWhere, items_of, selector_problems
from ..values import paths, regexes
from ..values.json_values import given_texts, is_unserializable
from ..values.model_base import Issue, Natural, Record, aliased, also_of, has_unclear
from ..values.regexes import VIEW, Regex
from .machine import BOUND, EvaluatedCall, ToolReturn, listed
from .precedence import PERSON, asks_person, calls_in
from .rule import Fact, names

PER_KEY = 32
"""How many earlier calls with the same bound values are kept, the latest ones."""

COMBINATIONS = 4_096
"""How many combinations of values one call may be bound by. A call with more is denied; after an earlier call with
more, the latest one is unknown.
"""


class EvidenceItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One earlier call: the items of `prior` that it met, and whether its output meets the conditions that do not
    depend on the evaluated call. For those that do, it keeps its input (`also` by portable names) and output. `keys`
    counts its index entries, `missed` are the conditions that its output did not meet.
    """

    mask: int
    good: bool = True
    missed: list[dict[str, Any]] = []
    keys: int = 0
    input: Any = None
    also: dict[str, list[Any]] = {}
    output: Any = None


class PriorEvidence(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Earlier calls by number, in order, and the numbers by bound values.

    `lost`: a call had too many bound values to be indexed, so that the latest call is unknown.
    """

    lost: bool = False
    last: int = 0
    items: dict[int, EvidenceItem] = {}
    about: dict[str, list[int]] = {}

    def restricted(self, keeps: Callable[[str], bool]) -> PriorEvidence:
        """The same without calls about values that are not kept; those that nothing binds stay."""
        about = {key: numbers for key, numbers in self.about.items() if key == _UNBOUND or keeps(key)}
        kept = {n for numbers in about.values() for n in numbers}
        items = {n: item for n, item in self.items.items() if n in kept}
        return PriorEvidence(lost=self.lost, last=self.last, items=items, about=about)


_UNBOUND = "[]"
"""The combination of bound values of a call that nothing binds."""


class PriorTest:
    """One `prior` requirement compiled; its slots are the items of its selector, from `first_slot` on."""

    number = 0

    def __init__(self, requirement: Requirement, scope: NameScope, first_slot: int) -> None:
        prior = requirement.prior
        assert prior is not UNSET
        items = items_of(calls_in(prior))
        self.must = requirement.must
        self.pick = requirement.pick
        self.same = requirement.same
        evidence: Evidence = "success" if self.must == "completed" else "call"
        self.slots = tuple(Slot(without_references(item), scope, allows=True, evidence=evidence) for item in items)
        self.mask = sum(1 << (first_slot + n) for n in range(len(items)))
        wheres = {1 << (first_slot + n): _with_references(item) for n, item in enumerate(items)}
        self._now = _Fitness(wheres, requirement.output, scope, ahead=False)
        self._ahead = _Fitness(wheres, requirement.output, scope, ahead=True)
        self._output = self._now.output
        self._conditions, self._expand = requirement.output, scope.expand
        self._keeps_input = any(wheres.values())
        self._values = [_binding(same) for same in requirement.same]

    @property
    def outputs(self) -> tuple[OutputRef, ...]:
        """The earlier outputs it needs the session to remember."""
        later = [ref for compiled in self._now.later.values() if compiled for ref in compiled.outputs]
        return (*later, *(self._output.outputs if self._output else ()))

    def note(self, evidence: PriorEvidence, call: EvaluatedCall, mask: int, output: ToolReturn | None) -> None:
        """Keep an earlier call."""
        item = EvidenceItem(mask=mask & self.mask)
        if self._output is not None and output is not None:
            if self._output.dynamic:
                item.output = output.value
            else:
                item.good = self._output.holds(output.value, call)
                if not item.good and self.pick == "latest":
                    item.missed = self._failing(output.value, call)
        if self.pick == "any" and not item.good:
            return
        about = [earlier(call.input, output) for _, earlier in self._values]
        keys = None if None in about else _keys([values for values in about if values is not None])
        if keys is None or (self._keeps_input and is_unserializable(call.input)):
            evidence.lost = True
            return
        if self._keeps_input:
            item.input, item.also = call.input, dict(also_of(call.input))
        evidence.last += 1
        for key in keys:
            self._index(evidence, key, evidence.last, item)

    def _index(self, evidence: PriorEvidence, key: str, number: int, item: EvidenceItem) -> None:
        if key not in evidence.about and len(evidence.about) >= BOUND:
            return
        numbers = evidence.about.setdefault(key, [])
        numbers.append(number)
        item.keys += 1
        evidence.items[number] = item
        if len(numbers) > PER_KEY:
            oldest = evidence.items[dropped := numbers.pop(0)]
            oldest.keys -= 1
            if not oldest.keys:
                del evidence.items[dropped]

    def met(self, evidence: PriorEvidence, call: EvaluatedCall) -> bool:
        """Whether an earlier call serves the evaluated one."""
        return any(self._now.good(item, call) for item in self._bound(evidence, call))

    def missed(self, evidence: PriorEvidence, call: EvaluatedCall) -> list[dict[str, Any]]:
        """The conditions that the latest bound call does not meet, with its values."""
        bound = self._bound(evidence, call)[-1:]
        if self._output is not None and self._output.dynamic:
            return [found for item in bound for found in self._failing(item.output, call)]
        return [found for item in bound for found in item.missed]

    def _failing(self, output: Any, call: Facts) -> list[dict[str, Any]]:
        found = explained(self._conditions, output, call, allows=True, loose=False, expand=self._expand)
        return [each for each in found if not each["holds"]]

    def _bound(self, evidence: PriorEvidence, call: EvaluatedCall) -> list[EvidenceItem]:
        """The earlier calls that the evaluated one is bound to, one of which must meet the requirement."""
        keys = _keys([now(call.input) for now, _ in self._values])
        if not keys or self._is_incomplete(evidence):
            return []
        bound = [evidence.about.get(key, []) for key in keys]
        numbers = [n for n in bound[0] if all(n in others for others in bound[1:])]
        serving = [evidence.items[n] for n in sorted(numbers) if self._now.fits(evidence.items[n], call)]
        return serving[-1:] if self.pick == "latest" else serving

    def _is_incomplete(self, evidence: PriorEvidence) -> bool:
        """Whether the latest call may not have been kept; then the rule denies."""
        return evidence.lost and self.pick == "latest"

    def meetable(self, evidence: PriorEvidence, ahead: EvaluatedCall) -> bool:
        """Whether the requirement can be met for some input."""
        if self._is_incomplete(evidence):
            return False
        serves = self._ahead.serves
        if self.pick == "any" or self._keeps_input:
            return any(serves(item, ahead) for item in evidence.items.values())
        if any(serves(evidence.items[numbers[-1]], ahead) for numbers in evidence.about.values()):
            return True
        shared = [(n, item) for n, item in evidence.items.items() if item.keys > 1]
        return any(serves(item, ahead) and self._latest(evidence, n) for n, item in shared)

    def _latest(self, evidence: PriorEvidence, number: int) -> bool:
        """Whether a call is the latest for every combination of its bound values."""
        shared = [numbers for numbers in evidence.about.values() if number in numbers]
        return not any(all(later in numbers for numbers in shared) for later in shared[0] if later > number)

    def words(self) -> str:
        """The requirement in words."""
        names = " or ".join(f"`{name}`" for slot in self.slots for name in slot.names)
        about = f" for the same {listed([same.path for same in self.same])}" if self.same else ""
        returned = " that returned what is required" if self._output else ""
        return f"a {self.must} call of {names}{about}{returned}"


class _Fitness:
    """Whether an earlier call fits the evaluated one, input and output; with `ahead`, for some input."""

    def __init__(
        self, wheres: Mapping[int, Sequence[Condition]], output: Sequence[Condition], scope: NameScope, *, ahead: bool
    ) -> None:
        compiled = partial(compile_conditions, allows=True, ahead=ahead, expand=scope.expand)
        self.later = {bit: compiled(where, loose=True) if where else None for bit, where in wheres.items()}
        self.output = compiled(output, loose=False) if output else None

    def fits(self, item: EvidenceItem, call: Facts) -> bool:
        for bit, later in self.later.items():
            if item.mask & bit and (later is None or later.holds(aliased(item.input, item.also), call)):
                return True
        return False

    def good(self, item: EvidenceItem, call: Facts) -> bool:
        if self.output is not None and self.output.dynamic:
            return self.output.holds(item.output, call)
        return item.good

    def serves(self, item: EvidenceItem, call: Facts) -> bool:
        return self.fits(item, call) and self.good(item, call)


def without_references(item: str | ToolWhere) -> str | ToolWhere:
    """An item of a selector without the conditions that depend on the evaluated call."""
    if isinstance(item, str):
        return item
    return ToolWhere(tool=item.tool, where=tuple(c for c in item.where if not has_references([c])))


def _with_references(item: str | ToolWhere) -> tuple[Condition, ...]:
    return () if isinstance(item, str) else tuple(c for c in item.where if has_references([c]))


def _binding(same: Same) -> tuple[Callable[[Any], list[str]], Callable[[Any, ToolReturn | None], list[str] | None]]:
    """Functions that read the bound values of the evaluated call and of an earlier one; None for too many."""
    now = _reader(same.path, loose=True)
    if same.prior_output_regex is not None:
        regex = Regex(same.prior_output_regex)
        return now, lambda input, output: [] if output is None else _all_captured(regex, output)
    if same.prior_output_path is not None:
        returned = _reader(same.prior_output_path, loose=False)
        return now, lambda input, output: [] if output is None else returned(output.value)
    earlier = _reader(same.prior_path or same.path, loose=True)
    return now, lambda input, output: earlier(input)


def _reader(path: str, *, loose: bool) -> Callable[[Any], list[str]]:
    values_at = paths.compile_path(path, loose=loose)

    def read(value: Any) -> list[str]:
        values = values_at(value)
        return [] if has_unclear(values) else list(given_texts(values))

    return read


def _all_captured(regex: Regex, output: ToolReturn) -> list[str] | None:
    """The values that a pattern captures in an output; None if they are too many."""
    try:
        found = [value for value in itertools.islice(regex.values([output.text], VIEW), BOUND + 1) if value]
    except ValueError:
        return None
    return found if len(found) <= BOUND else None


def _keys(values: list[list[str]]) -> list[str] | None:
    """The combinations of bound values of a call as texts; empty if a path has no value, None if too many."""
    values = [list(dict.fromkeys(found)) for found in values]
    count = 1
    for found in values:
        count *= len(found)
    if count > COMBINATIONS:
        return None
    return [_joined(combination) for combination in itertools.product(*values)]


def _joined(combination: tuple[str, ...]) -> str:
    return combination[0] if len(combination) == 1 else json.dumps(combination)


class Same(Record, frozen=True):
    """Binds the current call to one earlier call: its values at `path` are among that call's values.

    Attributes:
        path: Where the value is in the current call's input.
        prior_path: Where it is in the earlier call's input; `path` if none of these three is given.
        prior_output_path: Where it is in the earlier call's output.
        prior_output_regex: A regular expression whose captures in that output are the values.
    """

    path: str
    prior_path: str | None = None
    prior_output_path: str | None = None
    prior_output_regex: str | None = None

    def problems(self) -> Iterator[Issue]:
        given = [n for n in ("prior_path", "prior_output_path", "prior_output_regex") if getattr(self, n) is not None]
        if len(given) > 1:
            yield (given[1],), f"`{given[0]}` and `{given[1]}` exclude each other"
        for name in ("path", "prior_path", "prior_output_path"):
            if (path := getattr(self, name)) is not None:
                yield from paths.problems(path, (name,))
        if self.prior_output_regex is not None:
            yield from regexes.problems(self.prior_output_regex, ("prior_output_regex",))

    @property
    def of_output(self) -> bool:
        """Whether the earlier call's values are in what it returned."""
        return self.prior_output_path is not None or self.prior_output_regex is not None


class Requirement(Record, frozen=True):
    """One requirement: `prior`, `turns_gte`, `user_said` or `any_of`.

    Attributes:
        prior: An earlier call.
        must: The state it must have reached: `completed`, or only `started`.
        same: Values that it and the current call have in common.
        output: Conditions on what it returned.
        pick: The earlier call that counts if several match: the `latest`, or `any`.
        turns_gte: The fewest turns of the session before the call.
        user_said: A regular expression that a message of the user matches.
        in_: The user's message to search: `any`, or the `latest`.
        any_of: One of these requirements is enough.
        description: For people.
    """

    prior: Selector | UnsetType = UNSET
    must: Literal["completed", "started"] = "completed"
    same: tuple[Same, ...] = ()
    output: tuple[Condition, ...] = ()
    pick: Literal["latest", "any"] = "latest"
    turns_gte: Natural | UnsetType = UNSET
    user_said: str | UnsetType = UNSET
    in_: Literal["any", "latest"] = field(default="any", name="in")
    any_of: tuple[Requirement, ...] | UnsetType = UNSET
    description: str | None = None

    main_key = "prior"

    def problems(self) -> Iterator[Issue]:
        kinds = ("prior", "turns_gte", "user_said", "any_of")
        given = [name for name in kinds if getattr(self, name) is not UNSET]
        if len(given) != 1:
            yield (), f"a requirement has one of {listed(kinds)}, this has {listed(given) or 'none'}"
        if self.prior is not UNSET:
            yield from selector_problems(self.prior, ("prior",), person=True)
            if self.asks_person and (self.same or self.output):
                yield (), f"`same` and `output` are of calls; `{HUMAN}` is none: list both under `any_of`"
        elif self.same or self.output:
            yield (), "`same` and `output` go with `prior`"
        if self.must == "started" and (self.output or any(same.of_output for same in self.same)):
            yield ("must",), "a call that only started has no output yet: `must: completed`"
        if self.user_said is not UNSET:
            yield from regexes.problems(self.user_said, ("user_said",))
        if self.any_of is not UNSET and not self.any_of:
            yield ("any_of",), "`any_of` lists no requirement"

    def words(self) -> str:
        """The requirement, in a few words."""
        if self.any_of is not UNSET:
            return " or ".join(inner.words() for inner in self.any_of)
        if self.turns_gte is not UNSET:
            return f"{self.turns_gte} turns"
        return "a user message" if self.prior is UNSET else names(self.prior)

    @property
    def asks_person(self) -> bool:
        """Whether a person's approval meets it."""
        return self.prior is not UNSET and asks_person(self.prior)

    @property
    def free(self) -> bool:
        """Whether it can be met without an earlier call."""
        return (
            self.prior is UNSET or self.asks_person
            if self.any_of is UNSET
            else any(inner.free for inner in self.any_of)
        )

    @property
    def weakest(self) -> Literal["completed", "started"]:
        """The earliest stage at which a call can meet it."""
        if self.any_of is UNSET:
            return self.must
        return "started" if any(inner.weakest == "started" for inner in self.any_of) else "completed"

    @property
    def link_word(self) -> str:
        """The label of the arrow from what it requires to the tool."""
        inner = (self,) if self.any_of is UNSET else self.any_of
        same = ", of the same" if any(each.same for each in inner) else ""
        return ("needs one of" if len(inner) > 1 else "needs") + same

    def flat(self) -> Iterator[Requirement]:
        """The requirement itself, or those in its `any_of`."""
        for inner in () if self.any_of is UNSET else self.any_of:
            yield from inner.flat()
        if self.any_of is UNSET:
            yield self

    def priors(self) -> Iterator[Selector]:
        """The selectors of every `prior`, those in `any_of` too."""
        yield from (source for source in self.sources() if not isinstance(source, Fact))

    def sources(self) -> Iterator[Selector | Fact]:
        """The sources it accepts: calls, or a fact."""
        if self.any_of is not UNSET:
            for inner in self.any_of:
                yield from inner.sources()
        elif self.turns_gte is not UNSET:
            yield Fact(f"{self.turns_gte} turns")
        elif self.prior is not UNSET:
            if calls := calls_in(self.prior):
                yield calls
            if self.asks_person:
                yield Fact(PERSON)
        else:
            yield Fact(f"user said /{self.user_said}/")
