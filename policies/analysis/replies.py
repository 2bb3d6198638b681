"""What calls return and what users write, as far as some rules tell it apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..language.predicates import compile_conditions
from ..monitor.call_table import ParsedOutput
from ..rules.provenance import Provenance
from ..values.json_values import given_texts, text_of
from ..values.paths import compile_path, path_steps
from ..values.regexes import Regex
from .texts import texts_apart
from .values import MISSING, OPAQUE, are_covered, atoms_of, candidates, documents, is_simple, samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .components import InputClass, RuleComponent
    from .played_rule import PlayedRule
    from .split_component import SplitComponent
    from .values import Atom


class Replies:
    """The outputs of calls and the messages of users, with the followed values in them.

    `gaps` takes what was not shown to be complete, in words.
    """

    def __init__(
        self,
        played: Sequence[PlayedRule],
        parts: Sequence[RuleComponent | SplitComponent],
        values: tuple[Any, ...],
        gaps: list[str],
    ) -> None:
        self._played, self._parts, self._values, self._gaps = played, parts, values, gaps

    def outputs(self, call: InputClass) -> tuple[Any, ...]:
        """The outputs such calls may return, as far as the rules can tell them apart."""
        choices: dict[str, list[Atom]] = {}
        bound: set[str] = set()
        texts: list[str] = []
        for each, part in zip(self._played, self._parts, strict=True):
            if not part.watches_end(call):
                continue
            for requirement in each.requirements:
                for path, atom in atoms_of(requirement.output):
                    choices.setdefault(path, []).append(atom)
                for same in requirement.same:
                    bound |= {same.prior_output_path} if same.prior_output_path else set()
                    texts += self._supplying(same.prior_output_regex) if same.prior_output_regex else ()
            record = each.clause.record
            for source in record.from_ if isinstance(record, Provenance) else ():
                if not isinstance(source, str):
                    bound |= {source.path} if source.path else set()
                    texts += self._supplying(source.regex) if source.regex else ()
        if not choices and not bound and not texts:
            return ("done",)
        returned = [*self._values, list(self._values)]
        tried = {path: candidates(atoms, returned if path in bound else ()) for path, atoms in choices.items()}
        tried |= {path: [*returned, MISSING] for path in bound if path not in tried}
        found, everything = documents(tried, 200)
        if not everything:
            self._gaps.append(f"too many kinds of outputs of `{call.name}`")
        elif not self._are_complete(call, found, choices, bound):
            self._gaps.append(f"outputs of `{call.name}` that were not looked at")
        if texts:
            return ("done", *found, *texts)
        apart = self._distinct(call, ["done", *found], bound)
        return tuple(apart.values())

    def _are_complete(
        self, call: InputClass, outputs: list[Any], tested: dict[str, list[Atom]], bound: set[str]
    ) -> bool:
        """Whether the outputs meet every set of what requirements ask of them, with every followed value."""
        met = self._distinct(call, outputs, bound)
        values = {returned for _, returned in met}
        if len(met) == len(values) * 2 ** len(next(iter(met))[0]):
            return True
        apart = len({str(path_steps(path)[:1]) for path in {*tested, *bound}}) == len({*tested, *bound})
        simple = apart and all(map(is_simple, tested)) and not bound & tested.keys()
        return simple and all(are_covered(atoms) and not OPAQUE & {n for n, _ in atoms} for atoms in tested.values())

    def _distinct(self, call: InputClass, outputs: Iterable[Any], bound: set[str]) -> dict[Any, Any]:
        """The first of the outputs for each set of what requirements ask of them, with the followed values."""
        conditions = {
            msgspec.json.encode(requirement.output, order="deterministic"): requirement.output
            for each, part in zip(self._played, self._parts, strict=True)
            if part.watches_end(call)
            for requirement in each.requirements
            if requirement.output
        }
        tests = [compile_conditions(each, permits=True, loose=False).holds for each in conditions.values()]
        facts: Any = None
        found: dict[Any, Any] = {}
        for output in outputs:
            value = ParsedOutput(output).value
            found.setdefault((tuple(bool(t(value, facts)) for t in tests), self._returned(value, bound)), output)
        return found

    @staticmethod
    def _returned(output: Any, bound: set[str]) -> Any:
        return tuple(tuple(given_texts(compile_path(path, loose=False)(output))) for path in sorted(bound))

    def messages(self) -> list[str]:
        """The messages of users that the rules tell apart; none if they look at none."""
        patterns = list(dict.fromkeys(p for part in self._parts for p in part.rule.machine.phrases))
        apart = texts_apart(tuple(patterns))
        if not apart.complete:
            self._gaps.append("messages in which some patterns occur, and others do not")
        texts = [
            *(text or "zq" for text in apart.texts.values()),
            *(text for p in patterns for text in samples(p)[:2]),
        ]
        if any(
            isinstance(each.clause.record, Provenance) and "user_message" in each.clause.record.from_
            for each in self._played
        ):
            texts += [f"please use {text_of(value)}" for value in self._values]
        return list(dict.fromkeys([*texts, "zq"])) if patterns or len(texts) > 1 else []

    def _supplying(self, pattern: str) -> Iterator[str]:
        """Texts that a pattern reads each followed value from, and others in which it occurs."""
        regex, texts = Regex(pattern), samples(pattern)
        supplying = []
        for value in map(text_of, self._values):
            made = (text.replace(each, value) for text in texts for each in regex.values([text]) if each)
            fitting = next((text for text in made if list(regex.values([text])) == [value]), None)
            if fitting is not None:
                supplying.append(fitting)
            else:
                self._gaps.append(f"values that `{pattern}` reads")
        yield from [*supplying, "\n".join(supplying), *texts]
