"""Values that conditions tell apart: what to try at a path so that each condition is met by one and missed by one;
and messages of users that rules tell apart.
"""

import itertools
import math
import operator
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from ..events.run_context import RunContext
from ..language.conditions import Condition, all_in, is_argument, is_output
from ..language.operators import LENGTHS, MEMBERSHIPS, ORDERINGS
from ..rules.memory import UserText, is_of_word
from ..values.automata import TextsApart, texts_apart
from ..values.json_values import is_number, number_of, scalars_in, text_of
from ..values.paths import path_steps, place_of
from ..values.regexes import Regex
from ..values.work_budget import OutOfWork

MISSING: Any = object()
"""In the place of a value: there is none."""
PLAIN = (MISSING, None, True, False)
"""The values tried at every path, beside a text and numbers: no value, null, true and false."""
LOOKING = frozenset({"regex", "match", "contains"})
"""Operators that look for something in a text."""
OPAQUE = frozenset({"regex", "contains", "within", "runs", "match", "set_equals", "at_least", *LENGTHS})
"""Operators whose values are tried by examples; the others cut values into intervals and points."""

MOST_LONG = 10_000
"""The longest text or list that is made as an example; what needs a longer one is not known."""
EQUALITIES = frozenset({"equals", "not_equals", "in", "not_in"})
"""Operators that tell a few values from all others."""
_LISTING = MEMBERSHIPS | {"type"}
"""Operators whose operand is a list of alternatives."""

Atom = tuple[str, Any]
"""An operator with its operand; `match` is that of a virtual tool."""


def atoms_of(conditions: Iterable[Condition]) -> Iterator[tuple[str, Atom]]:
    """Each operator of the conditions, with its path."""
    for condition in all_in(list(conditions)):
        if condition.path is not UNSET:
            yield from ((condition.path, atom) for atom in condition.operators())
            if condition.at_least is not UNSET and condition.at_least > 1:
                yield condition.path, ("at_least", condition.at_least)


def candidates(atoms: Sequence[Atom], extra: Sequence[Any] = ()) -> list[Any]:
    """Values to try at a path with these operators, each once."""
    names = {name for name, _ in atoms}
    named = [each for _, operand in atoms for each in _listed(operand)]
    texts = {each for each in named if isinstance(each, str)}
    numbers = [n for each in named if (n := number_of(each, loose=True)) is not None]
    single = [value for atom in atoms for value in _examples(*atom)]
    if names & {"within", "runs"}:  # like these, and named by no condition
        single += [f"{each}zq" for each in single if isinstance(each, str)]
    unnamed = next(text for text in _fresh() if text not in texts)
    found = [*extra, *_for_several(atoms), *single, MISSING, unnamed, *PLAIN[1:]]
    found += _numbers_between([*numbers, *filter(is_number, single)])
    if any(name in ORDERINGS and isinstance(operand, str) for name, operand in atoms):
        found += _texts_between(texts)
    if names & OPAQUE or any(isinstance(each, list | tuple | dict) for each in named):
        found += [[], {}]
    if "type" in names:
        found += [[], {}, ["zq"], {"zq": "zq"}]
    if "type" in names or any(number_of(text, loose=True) is not None for text in texts):
        found += [text for value in found if is_number(value) for text in _spellings(value, texts)]
        found += [n for value in found if isinstance(value, str) and (n := number_of(value, loose=True)) is not None]
    return distinct(found)


def _for_several(atoms: Sequence[Atom]) -> Iterator[str]:
    """Texts and command lines that meet several operators at once."""
    if any(name in LOOKING or name in LENGTHS for name, _ in atoms):
        looked_for = [each for each in atoms if each[0] in (*LOOKING, "equals", "in", *LENGTHS)]
        yield from texts_apart(_patterns(looked_for) or ()).texts.values()
    for line in _lines(_commands(atoms)):
        yield from (line, f"{line} zqzq")


def _fresh() -> Iterator[str]:
    yield "zq"
    yield from (f"zq{n}" for n in itertools.count(1))


def _numbers_between(points: Iterable[int | float]) -> Iterator[int | float]:
    """Numbers between, below and above some: of each interval a whole one and one that is not, where there are."""
    named = sorted(set(points))
    if not named:
        yield from (987654, 987654.5)
    edges = [-sys.float_info.max, *named, sys.float_info.max] if named else []
    for low, high in itertools.pairwise(edges):
        whole: int | float = math.floor(low) + 1 if low > edges[0] else math.ceil(high) - 1
        near = low if low > edges[0] else math.nextafter(float(high), low)
        whole = whole if abs(whole) < 2**63 else float(whole)
        tried = [whole, whole - 0.5, whole + 0.5, float(low) / 2 + float(high) / 2, math.nextafter(float(near), high)]
        inside = [value for value in tried if low < value < high]
        yield from itertools.islice((value for value in inside if float(value).is_integer()), 1)
        yield from itertools.islice((value for value in inside if not float(value).is_integer()), 1)
    yield from edges[:1] + edges[-1:]


def _texts_between(texts: Iterable[str]) -> Iterator[str]:
    """Texts before, between and after some, where there are, which are no numbers."""
    named = sorted({"", *texts})
    for low, high in itertools.zip_longest(named, named[1:]):
        yield from itertools.islice(
            (t for end in "~ \0" if (t := f"{low}{end}") not in texts and t < (high or f"{t}~")), 1
        )


def _spellings(value: int | float, texts: set[str]) -> Iterator[str]:
    """A number as its text, and as one that no condition names."""
    text = text_of(value)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    yield text
    yield next(each for n in itertools.count(1) if (each := f"{sign}{'0' * n}{digits}") not in texts)


def are_covered(atoms: Sequence[Atom], *, of_texts: bool = False) -> bool:
    """Whether the candidates for a path, and lists of them, meet every set of its conditions that any value meets.

    Comparisons, equalities and types cut a value into points and intervals; patterns are told apart by automata;
    directories by which of them is in which; commands by which of them a line runs. `of_texts`: where types or
    lengths are asked for beside patterns, no condition looks inside a list or an object for both.
    """
    names = {name for name, _ in atoms} - {"exists"}
    if not names & OPAQUE:
        return _are_cut(atoms)
    if names & {"type", *LENGTHS} and not of_texts:
        return False
    looked_at = names - EQUALITIES
    if looked_at not in ({"within"}, {"runs"}):
        patterns = _patterns(atoms)
        return patterns is not None and texts_apart(patterns).complete
    if _patterns([each for each in atoms if each[0] in EQUALITIES]) is None:
        return False
    if looked_at == {"runs"}:
        return len(_commands(atoms)) <= MOST_COMMANDS
    directories = {operand for name, operand in atoms if name == "within"}
    return len(directories) == 1 or all(each.startswith("/") for each in directories)


def _are_cut(atoms: Sequence[Atom]) -> bool:
    """Whether comparisons, equalities and types cut values into points and intervals: none of a list or an object,
    or between texts that are numbers.
    """
    scalars = (each for name, operand in atoms for each in (_listed(operand) if name in _LISTING else [operand]))
    return not any(isinstance(each, list | tuple | dict) for each in scalars) and all(
        is_number(operand) or (isinstance(operand, str) and number_of(operand, loose=True) is None)
        for name, operand in atoms
        if name in ORDERINGS
    )


def depend_on_directories(atoms: Sequence[Atom], stated: RunContext) -> bool:
    """Whether the run's workspace or home, unless stated, decides if values that equalities name are `within`."""
    around = stated.workspace or None, stated.home or None
    named = [place for value in literals(atoms) if (place := place_of(text_of(value), *around))]
    directories = [place for name, each in atoms if name == "within" and (place := place_of(each, *around))]
    return any(a.start != b.start or a.up or b.up for a in named for b in directories)


def _patterns(atoms: Sequence[Atom]) -> tuple[str, ...] | None:
    """Patterns that are equivalent to the operators on texts; None where an operator has none."""
    found: dict[str, None] = {}
    for name, operand in atoms:
        same = _patterns_of(name, operand)
        if same is None:
            return None
        found |= dict.fromkeys(same)
    return tuple(found)


def _patterns_of(name: str, operand: Any) -> Sequence[str] | None:
    if name in ("exists", "type"):
        return ()
    if name in ("regex", "match"):
        return (operand,)
    if name == "contains" and isinstance(operand, str):
        return (re.escape(operand),)
    if name in LENGTHS and 0 <= operand <= MOST_LETTERS:
        least, most = (0 if name == "length_lte" else operand), ("" if name == "length_gte" else operand)
        return (rf"(?s)\A.{{{least},{most}}}\Z",)
    if name in EQUALITIES:
        values = _listed(operand) if name in MEMBERSHIPS else [operand]
        if all(isinstance(each, str) and number_of(each, loose=True) is None for each in values):
            return [rf"\A{re.escape(each)}\Z" for each in values]
    return None


MOST_LETTERS = 40
"""The longest text whose length is told from others by an automaton."""
MOST_COMMANDS = 4


def _commands(atoms: Sequence[Atom]) -> list[str]:
    return list(dict.fromkeys(each for name, operand in atoms if name == "runs" for each in _listed(operand)))


def _lines(commands: Sequence[str]) -> Iterator[str]:
    """Command lines that run each combination of the first few commands, and some that are dynamic."""
    if not commands:
        return
    some = [*commands[:MOST_COMMANDS], "true"]
    for size in range(2, len(some) + 1):
        yield from (" && ".join(chosen) for chosen in itertools.combinations(some, size))
    for command in commands[:MOST_COMMANDS]:
        words = command.split()
        yield from (f"{' '.join(words[:n])} $UNKNOWN" for n in range(1, len(words)))
        yield f"{command} && $UNKNOWN"


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once; in Python 1 is True, and here it is not."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(f"{type(value).__name__} {value!r}", value)
    return list(found.values())


def _listed(operand: Any) -> list[Any]:
    return list(operand) if isinstance(operand, list | tuple) else [operand]


def _examples(name: str, operand: Any) -> list[Any]:
    """Values that meet an operator, and values that do not."""
    if is_argument(operand) or is_output(operand):
        return ["id1"]
    if name in ("equals", "not_equals"):
        return [operand]
    if name in MEMBERSHIPS:
        values = _listed(operand)
        return [*values, *([values, values[:1], [*values, "zq"]] if name == "set_equals" else [])]
    if name in ORDERINGS:
        if is_number(operand):
            return [operand - 1, operand, operand + 1, operand * 2 + 1000, -abs(operand) * 2 - 1000]
        return [operand, f"{operand}~", ""]
    if name in LENGTHS:
        lengths = [n for n in (operand - 1, operand, operand + 1) if 0 <= n <= MOST_LONG]
        figures = (2.0 * 10 ** (n - 1) for n in lengths if 0 < n < sys.float_info.max_10_exp)
        return [*("x" * n for n in lengths), *(["zq"] * n for n in lengths), *figures]
    if name in ("regex", "match"):
        return samples(operand)
    if name == "contains":
        return [f"<{operand}>" if isinstance(operand, str) else [operand], operand]
    if name == "within":
        base = operand.rstrip("/") or "/"
        inside = [f"{base}/a.txt", f"{base}/b/c.txt", base]
        return [*inside, f"{base}/../zq", "/zq/a.txt", "~/zq.txt", "../zq", "zq.txt", "~zq/a.txt", "$ZQ/a.txt"]
    if name == "runs":
        named = [f"{command} zq" for command in _listed(operand)]
        return [*_listed(operand), *named, "true", "$UNKNOWN", "zq", ""]
    if name == "type":
        return ["zq", 1, 1.5, True, None, [], {}]
    return []


def samples(pattern: str) -> list[str]:
    """A few texts in which a regular expression may be found; what it means is for the evaluator to say."""
    found = [text for (met,), text in texts_apart((pattern,)).texts.items() if met]
    return [*found, *(f"{before}{text} zq" for text in found for before in ("zq ", ""))]


def text_capturing(pattern: str, value: str) -> str | None:
    """A text from which a pattern reads a value, and no other; None if none was found."""
    regex = Regex(pattern)
    read = ((text, each) for text in samples(pattern) for each in regex.values([text]) if each)
    places = ((text, place) for text, each in read for place in re.finditer(re.escape(each), text))
    made = (f"{text[: place.start()]}{value}{text[place.end() :]}" for text, place in places)
    return next((text for text in made if list(regex.values([text])) == [value]), None)


def with_text(output: Any, text: str) -> Iterator[Any]:
    """An output with a text in it, from which patterns may read a value."""
    if isinstance(output, dict):
        yield {**output, "zq": text}
    elif isinstance(output, list):
        yield [*output, text]
    elif isinstance(output, str):
        yield from (f"{output}\n{text}", f"{text}\n{output}")


def is_simple(path: str) -> bool:
    """Whether a path is one place in the input, or the elements of the list there."""
    steps = path_steps(path)
    return all(kind == "key" for kind, _ in steps[:-1]) and steps[-1:] != [] and steps[-1][0] != "filter"


def is_member(steps: Sequence[tuple[str, Any]]) -> bool:
    """Whether a path begins with a key."""
    return bool(steps) and steps[0][0] == "key"


def is_apart(path: str, others: Iterable[str]) -> bool:
    """Whether a path is no part of the others, nor they of it, unless they are one."""
    steps = _without_elements(path)
    return is_member(steps) and all(_are_apart(steps, _without_elements(other)) for other in others)


def _are_apart(steps: list[tuple[str, Any]], others: list[tuple[str, Any]]) -> bool:
    """Whether two places are one, or part at a key, so that neither is in the other."""
    parting = next((pair for pair in zip(steps, others, strict=False) if pair[0] != pair[1]), None)
    if parting is None:
        return steps == others
    return all(kind == "key" for kind, _ in parting)


def _without_elements(path: str) -> list[tuple[str, Any]]:
    steps = path_steps(path)
    while steps and steps[-1][0] == "wild":
        steps.pop()
    return steps


def placed(document: Any, path: str, value: Any) -> Any:
    """A document with a value at a path, as far as it can be put there. Raises OutOfWork if it gets too long."""
    steps = path_steps(path)
    if math.prod(_long_enough(*step) for step in steps) > MOST_LONG:
        raise OutOfWork
    return _placed(document, steps, value)


def _placed(document: Any, steps: Sequence[tuple[str, Any]], value: Any) -> Any:
    """A document with a value where these steps lead; what is missing on the way is added."""
    if not steps:
        return value
    (kind, argument), rest = steps[0], steps[1:]
    if kind == "key":
        members = dict(document) if isinstance(document, dict) else {}
        members[argument] = _placed(members.get(argument), rest, value)
        return members
    if kind == "filter":
        key, literal = argument
        items = document if isinstance(document, list) else []
        found = [isinstance(each, dict) and each.get(key) == literal for each in items]
        if True not in found:
            return [*items, _placed({key: literal}, rest, value)]
        return [_placed(each, rest, value) if met else each for each, met in zip(items, found, strict=True)]
    if not rest and isinstance(value, list) and kind == "wild":
        return value
    if rest and kind == "wild" and isinstance(document, list) and document:
        return [_placed(each, rest, value) for each in document]
    first = document[0] if isinstance(document, list) and document else None
    return [_placed(first, rest, value)] * _long_enough(kind, argument)


def _long_enough(kind: str, argument: Any) -> int:
    return max(argument + 1, -argument) if kind == "index" else 1


def documents(choices: Mapping[str, Sequence[Any]], most: int, start: Any = None) -> tuple[list[Any], bool]:
    """Documents with every choice of values at the paths, beside what `start` has; and whether that is all."""
    ordered = sorted(choices, key=len)
    total = 1
    for path in ordered:
        total *= len(choices[path])
    made = []
    for values in itertools.islice(itertools.product(*(choices[path] for path in ordered)), most):
        document: Any = start or {}
        for path, value in zip(ordered, values, strict=True):
            if value is not MISSING:
                document = placed(document, path, value)
        made.append(document)
    return made, total <= most


def rows(choices: Mapping[str, Sequence[Any]], beside: Sequence[Any]) -> Iterator[Any]:
    """Documents with lists where several paths look at places of one list, each also beside other documents."""
    lists: dict[tuple[Any, ...], list[list[Any]]] = {}
    for path, values in choices.items():
        *outer, (kind, _) = path_steps(path) or [("", None)]
        if kind in ("index", "wild"):
            lists.setdefault(tuple(outer), []).append([v for v in values if v is not MISSING][:2])
    for steps, places in lists.items():
        elements = distinct([*itertools.chain(*places), "zq"]) if len(places) > 1 else []
        for size in range(1, 4):
            for chosen in itertools.product(elements[:MOST_ELEMENTS], repeat=size):
                yield from (_placed(document, steps, list(chosen)) for document in beside[:MOST_BESIDE])


MOST_ELEMENTS = 5
"""How many values are tried as elements of lists with several places."""
MOST_BESIDE = 4
MOST_LITERALS = 4
"""How many values that conditions name at one path are followed one by one."""


def is_exact(atoms: Sequence[Atom]) -> bool:
    """Whether operators on inputs tell a few values from all others, and nothing else: each is met by the values of
    one text, which a number is not (7 is also `07`), nor true and false (which are not their texts).
    """
    named = literals(atoms)
    if any(is_number(number_of(each, loose=True)) or text_of(each) in ("true", "false") for each in named):
        return False
    return len(named) <= MOST_LITERALS and all(name in {*EQUALITIES, "exists"} for name, _ in atoms)


def literals(atoms: Sequence[Atom]) -> list[Any]:
    """The values that equalities name."""
    named = [operand for name, operand in atoms if name in EQUALITIES]
    values = (value for each in named for value in scalars_in(each))
    return distinct(value for value in values if binds(value))


def equal_texts(value: Any) -> Iterator[str]:
    """Another text that equals what a condition on inputs names, if it names a number."""
    number = number_of(value, loose=True)
    if number is not None:
        yield next(each for each in _spellings(number, {str(value)}) if each != text_of(value))


def binds(value: Any) -> bool:
    """Whether a value is one that calls can share."""
    return isinstance(value, str | int | float) and value != ""


def messages_apart(
    patterns: Sequence[str], values: Sequence[str], standing: Container[str]
) -> tuple[list[str], bool]:
    """Messages of users by the patterns found in them and the values they contain, and whether there are no others.

    Left out are those whose matches several others have together. `standing` values stand for any value.
    """
    if not patterns:
        return [*dict.fromkeys(values), "zq"], True
    apart = texts_apart((*patterns, *(_naming(each, cased=each in standing) for each in values)))
    texts = _by_matches(patterns, values, apart)
    complete = apart.complete and all(met in texts for met in apart.texts)
    heard = len(patterns)
    kept = _irreducible(texts, heard)

    def has_alone(value: int, met: Sequence[bool]) -> bool:
        """Whether a message has this value, and no pattern is found in it but those of `met`."""
        return any(each[value] and _is_within(each[:heard], met) for each in kept)

    stand_ins = [n for n, value in enumerate(values, heard) if value in standing]
    of_any = all(has_alone(n, met) for n in stand_ins for met in texts)
    return [texts[each] for each in kept], complete and of_any


def _by_matches(patterns: Sequence[str], values: Sequence[str], apart: TextsApart) -> dict[tuple[bool, ...], str]:
    """Texts by the patterns that are found in them, then the values that they contain."""
    regexes = [Regex(pattern) for pattern in patterns]
    alone = [text for pattern in patterns for text in texts_apart((pattern,)).texts.values()]
    with_values = [f"{text} {value}" for value in values for text in ("zq", *alone)]
    texts: dict[tuple[bool, ...], str] = {}
    for text in (*with_values, "zq", *" 9A-\n", *filter(None, alone), *filter(None, apart.texts.values())):
        words = UserText(texts=[text.casefold()])
        texts.setdefault((*(regex.found_in(text) for regex in regexes), *map(words.contain, values)), text)
    return texts


def _irreducible(matches: Iterable[tuple[bool, ...]], heard: int) -> list[tuple[bool, ...]]:
    """The matches that no smaller ones make up together; `heard` is how many of them are patterns."""
    kept: list[tuple[bool, ...]] = []
    for met in sorted(matches, key=sum):
        within = [each for each in kept if _is_within(each, met)]
        together = tuple(map(any, zip(*within, strict=True)))
        if together != met or not any(each[:heard] == met[:heard] for each in within):
            kept.append(met)
    return kept


def _is_within(some: Sequence[bool], more: Sequence[bool]) -> bool:
    return all(itertools.starmap(operator.le, zip(some, more, strict=False)))


def _naming(value: str, *, cased: bool) -> str:
    """A pattern that is found in texts that contain a value: `UserText.contain` as an automaton."""
    beyond, apart, point = (rf"[^{each}\x80-\U0010ffff]" for each in ("0-9", r"\w", r"\w.,"))
    before, after = rf"(?:\A|{apart})", rf"(?:{apart}|\Z)"
    if value[0].isdigit():
        before = rf"(?:\A,?|{point}|{beyond},|[A-Za-z_.]\.)"
    if value[-1].isdigit():
        after = rf"(?:\Z|{point}|[.,](?:{beyond}|\Z))"
    if value[0] in ".," and value[1:2].isdigit():
        before = rf"(?:\A|{beyond})"
    elif not is_of_word(value[0]):
        before = ""
    if value[-1] in ".," and value[-2:-1].isdigit():
        after = rf"(?:{beyond}|\Z)"
    elif not is_of_word(value[-1]):
        after = ""
    return rf"(?{'' if cased else 'i'}s){before}{re.escape(value)}{after}"
