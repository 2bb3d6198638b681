"""`provenance`: a value that must come from the user, or from what a tool returned."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from msgspec import field

from ..language.selectors import NameScope, Selector, Slot, selector_problems
from ..values import paths, regexes
from ..values.amounts import counted
from ..values.json_values import given_texts, scalars_in, text_of
from ..values.model_base import UNCLEAR, Issue, Record, has_unclear
from .machine import BOUND, EvaluatedCall, Finding, Machine, RuleState, ToolReturn, captured, listed
from .rule import ComparedPath, Fact, Link, PriorOutput, Profile, Rule, names

TOOL = 1


class Source(Record, frozen=True):
    """A tool whose successful output supplies values: at `path`, or as captures of `regex`.

    Attributes:
        tool: The calls whose output supplies values.
        path: Where the values are in the output, unless a `regex` finds them.
        regex: A regular expression whose captures are the values.
    """

    tool: Selector
    path: str | None = None
    regex: str | None = None

    def problems(self) -> Iterator[Issue]:
        yield from selector_problems(self.tool, ("tool",))
        if (self.path is None) == (self.regex is None):
            yield (), "a source has a `path` or a `regex`"
        if self.path is not None:
            yield from paths.problems(self.path, ("path",))
        if self.regex is not None:
            yield from regexes.problems(self.regex, ("regex",))


class Provenance(Rule, tag="provenance", frozen=True):
    """Every value at `path` must have been in a user message or in a listed tool's output.

    Attributes:
        tool: The calls whose values need a source.
        path: Where the values are in the input.
        from_: Accepted sources: `user_message`, or tools whose successful output has the value.
        extract: A regular expression that finds the values in the text at `path`.
        except_: Values that need no source.
    """

    tool: Selector
    path: str
    from_: tuple[Literal["user_message"] | Source, ...] = field(name="from")
    extract: str | None = None
    except_: tuple[Any, ...] = field(default=(), name="except")

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from paths.problems(self.path, ("path",))
        if not self.from_:
            yield ("from",), "lists no source: `user_message`, or `{tool: ..., path: ...}`"
        if self.extract is not None:
            yield from regexes.problems(self.extract, ("extract",))

    def profile(self) -> Profile:
        """It compares the values with those that its sources supply."""
        tools = [source for source in self.from_ if isinstance(source, Source)]
        sources = tuple(s.tool if isinstance(s, Source) else Fact("user message") for s in self.from_)
        return Profile(
            words=f"`{self.path}` of {names(self.tool)} from known sources",
            restricts=(self.tool,),
            evidence=tuple(source.tool for source in tools),
            inputs=((self.tool, self.path),),
            follows=(ComparedPath(self.path, self.extract, tuple(scalars_in(list(self.except_)))),),
            outputs=tuple(
                PriorOutput(s.tool, (), tuple(filter(None, [s.path])), tuple(filter(None, [s.regex]))) for s in tools
            ),
            drawing=(Link(f"supplies {self.path}", sources, self.tool),),
        )


class ProvenanceState(RuleState):
    """The values that tools supplied."""

    supplied: set[str] = set()


class ProvenanceMachine(Machine, evaluates=Provenance):
    """Remembers what sources supply; the monitor remembers user messages."""

    state_type = ProvenanceState
    restricts = TOOL

    def __init__(self, rule: Provenance, scope: NameScope) -> None:
        sources = [source for source in rule.from_ if isinstance(source, Source)]
        supplying = (Slot(source.tool, scope, allows=True, evidence="success") for source in sources)
        self.slots = (Slot(rule.tool, scope, allows=False), *supplying)
        self.from_user = len(sources) < len(rule.from_)
        self.outcomes = sum(TOOL << (n + 1) for n in range(len(sources)))
        self._path = rule.path
        self._values_at = paths.compile_path(rule.path, loose=True)
        self._extract = regexes.Regex(rule.extract).values if rule.extract is not None else None
        self._supplied_by = [_supplies(source) for source in sources]
        self._names = [*(["a user message"] if self.from_user else []), *(listed(s.names) for s in self.slots[1:])]
        self._except = frozenset(text_of(scalar) for value in rule.except_ for scalar in scalars_in(value))

    def evaluate(self, state: ProvenanceState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        for value in self._inputs(call.input):
            supplied = value in self._except or value in state.supplied
            supplied = supplied or (self.from_user and call.user_wrote(value))
            if not supplied or value == UNCLEAR:
                sources = " or ".join(self._names)
                return Finding(
                    expected=f"`{self._path}` from {sources}",
                    actual=f"`{value[:80]}` did not come from {sources}",
                    details={"path": self._path, "value": value[:200]},
                    suggestion=f"use a value from {sources}",
                    cause="input",
                )
        return None

    def _inputs(self, input: Any) -> Iterable[str]:
        values = self._values_at(input)
        if self._extract is None or has_unclear(values):
            return given_texts(values)
        return filter(None, self._extract(given_texts(values)))

    def completed(self, state: ProvenanceState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        """Remember what a source supplied, up to the bound; calls with values beyond it are denied."""
        for n, supplied_by in enumerate(self._supplied_by):
            if mask & (TOOL << (n + 1)):
                for value in supplied_by(output):
                    if len(state.supplied) >= BOUND:
                        return
                    state.supplied.add(value)

    def restricted(self, state: ProvenanceState, keeps: Callable[[str], bool]) -> ProvenanceState:
        return ProvenanceState(supplied=set(filter(keeps, state.supplied)))

    def describe(self, state: ProvenanceState) -> str:
        return f"{counted(len(state.supplied), 'value')} supplied by tools"


def _supplies(source: Source) -> Callable[[ToolReturn], Iterator[str]]:
    if source.regex is not None:
        regex = regexes.Regex(source.regex)
        return lambda output: captured(regex, output)
    values_at = paths.compile_path(source.path or "$", loose=False)
    return lambda output: given_texts(values_at(output.value))
