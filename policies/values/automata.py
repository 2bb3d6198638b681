r"""Texts that regular expressions distinguish, and names that globs do: one for each set of patterns that some text
matches, and no other.

The patterns run side by side as automata over one letter of each kind that they tell apart. `\b`, `^` and `$` are
looked at with the letters before and after. What is found is for the evaluator to confirm.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

MOST_NODES = 3_000
"""How large one automaton may be."""
MOST_STATES = 3_000
"""How many states of all patterns together are looked at."""
MOST_PATTERNS = 6
"""How many patterns are told apart at once."""

Test: TypeAlias = tuple[Any, int]
"""The condition on one letter: a node of a parsed pattern, and the flags it is read with."""
Nodes: TypeAlias = frozenset[int]
State: TypeAlias = tuple[tuple[Nodes | None, ...], str]
"""Where each pattern stands, None once it was found, and the letter before; "" at the start."""


class TextsApart(NamedTuple):
    """Texts by what they match, one truth value a pattern; `complete`: no text matches another set of them."""

    texts: dict[tuple[bool, ...], str]
    complete: bool


@lru_cache(maxsize=512)
def texts_apart(patterns: tuple[str, ...]) -> TextsApart:
    """Texts for each set of patterns that one text matches."""
    if len(patterns) > MOST_PATTERNS:
        return TextsApart({}, False)
    try:
        automata = [Automaton(pattern) for pattern in patterns]
    except (re.error, RecursionError, OverflowError, NotImplementedError):
        return TextsApart({}, False)
    texts: dict[tuple[bool, ...], str] = {}
    for text, found in reached(automata, letters_of(automata, _READABLE), MOST_STATES):
        if found is None:
            return TextsApart(texts, False)
        texts.setdefault(found, text)
        if len(texts) == 2 ** len(patterns):
            break
    return TextsApart(texts, True)


def reached(
    automata: Sequence[Automaton],
    letters: Sequence[str],
    most_states: int,
    spend: Callable[[int], None] = lambda steps: None,
) -> Iterator[tuple[str, tuple[bool, ...] | None]]:
    """A shortest text for each state of all automata, and which of them find their pattern in it; None at last if
    there are more states. `spend` is called with how many steps it takes.
    """
    kind_of = _kinds(automata)
    start: State = (tuple(frozenset([each.start]) for each in automata), "")
    apart: dict[frozenset[Test], list[str]] = {}
    seen = {start}
    queue = deque([(start, "")])
    while queue and len(seen) <= most_states:
        (nodes, before), text = queue.popleft()
        spend(len(automata))
        yield text, tuple(n is None or each.ends(n, before, "") for each, n in zip(automata, nodes, strict=True))
        tests = frozenset().union(*(each.tests_at(n) for each, n in zip(automata, nodes, strict=True) if n))
        if tests not in apart:
            apart[tests] = _apart(letters, kind_of, tests)
        for letter in apart[tests]:
            spend(len(automata))
            moved = tuple(
                None if n is None else each.moved(n, before, letter) for each, n in zip(automata, nodes, strict=True)
            )
            state = (moved, kind_of(letter))
            if state not in seen:
                seen.add(state)
                queue.append((state, text + letter))
    if queue:
        yield "", None


def _apart(letters: Iterable[str], kind_of: Callable[[str], str], tests: Collection[Test]) -> list[str]:
    """The first of the letters of each kind that these tests tell apart."""
    found: dict[Any, str] = {}
    for letter in letters:
        found.setdefault((kind_of(letter), *(_takes(test, letter) for test in tests)), letter)
    return list(found.values())


def letters_of(automata: Sequence[Automaton], readable: str) -> list[str]:
    """One letter of each kind that the patterns tell apart, a readable one if there is one."""
    wanted = list(dict.fromkeys(test for each in automata for test in each.tests()))
    codes = sorted({n for test in wanted for n in _codes(test)})
    named = [chr(n) for n in codes if 0 <= n < 0xD800 or 0xE000 <= n < 0x110000]
    if any(flags & re.IGNORECASE for _, flags in wanted):
        named += [each for letter in (*readable, *named) for each in cases_of(letter)]
    return _apart((*readable, *named), _kinds(automata), wanted)


def _kinds(automata: Iterable[Automaton]) -> Callable[[str], str]:
    """A letter's class as far as an assertion looks at it, beside the start and the end."""
    return _kind if any(each.looks_around for each in automata) else lambda letter: "-"


def _kind(letter: str) -> str:
    """A letter's class, as assertions see it: one of its letters."""
    return "\n" if letter == "\n" else "a" if _in_word(letter) else "-"


def _in_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter == "_")


class Automaton:
    """A pattern that is searched for, as a nondeterministic automaton: steps that take a letter, and `free` ones."""

    def __init__(self, pattern: str) -> None:
        tree = re._parser.parse(pattern)  # type: ignore[attr-defined]
        self.free: list[list[tuple[str, int]]] = []
        self.taking: list[list[tuple[Test, int]]] = []
        self.start = self._node()
        self.final = self._node()
        self._memo: dict[Any, Any] = {}
        self._build(tree, tree.state.flags, self.start, self.final)

    def _node(self) -> int:
        if len(self.free) >= MOST_NODES:
            raise NotImplementedError
        self.free.append([])
        self.taking.append([])
        return len(self.free) - 1

    def _build(self, tree: Iterable[Any], flags: int, at: int, to: int) -> None:
        for op, argument in tree:
            after = self._node()
            self._part(op, argument, flags, at, after)
            at = after
        self.free[at].append(("", to))

    def _part(self, op: Any, argument: Any, flags: int, at: int, to: int) -> None:
        name = str(op)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            argument = tuple(argument) if name == "IN" else argument
            self.taking[at].append((((op, argument), flags), to))
        elif name == "AT":
            self.free[at].append((_assertion(str(argument), flags), to))
        elif name == "BRANCH":
            for branch in argument[1]:
                self._build(branch, flags, at, to)
        elif name == "SUBPATTERN":
            _, added, removed, inner = argument
            self._build(inner, (flags | added) & ~removed, at, to)
        elif name == "ATOMIC_GROUP":
            self._build(argument, flags, at, to)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = argument
            self._repeat(least, most, inner, flags, at, to)
        else:
            raise NotImplementedError(name)

    def _repeat(self, least: int, most: Any, inner: Any, flags: int, at: int, to: int) -> None:
        for _ in range(least):
            after = self._node()
            self._build(inner, flags, at, after)
            at = after
        if str(most) == "MAXREPEAT":
            loop = self._node()
            self.free[at].append(("", loop))
            self._build(inner, flags, loop, loop)
            at = loop
        else:
            for _ in range(int(most) - least):
                after = self._node()
                self.free[at].append(("", to))
                self._build(inner, flags, at, after)
                at = after
        self.free[at].append(("", to))

    @property
    def looks_around(self) -> bool:
        """Whether it looks at the letters beside a place."""
        return any(assertion not in ("", "start", "end") for steps in self.free for assertion, _ in steps)

    def tests(self) -> Iterator[Test]:
        """The conditions on its letters."""
        return (test for steps in self.taking for test, _ in steps)

    def tests_at(self, nodes: Nodes) -> frozenset[Test]:
        """The conditions on the next letter at some nodes, whatever the letters beside them."""
        if nodes not in self._memo:
            ahead = self._ahead(nodes, lambda assertion: True)
            self._memo[nodes] = frozenset(test for at in ahead for test, _ in self.taking[at])
        found: frozenset[Test] = self._memo[nodes]
        return found

    def _essential(self, nodes: Iterable[int]) -> Nodes:
        """Of the nodes here and those that a step leads to in any case, all that differ from where they lead."""
        ahead = self._ahead(nodes, lambda assertion: not assertion)
        return frozenset(
            at
            for at in ahead
            if self.taking[at] or at == self.final or any(assertion for assertion, _ in self.free[at])
        )

    def _ahead(self, nodes: Iterable[int], passes: Callable[[str], bool]) -> set[int]:
        """The nodes reached by the free steps whose assertion passes."""
        reached, todo = set(nodes), list(nodes)
        while todo:
            new = {to for assertion, to in self.free[todo.pop()] if passes(assertion)} - reached
            reached |= new
            todo += new
        return reached

    def _closure(self, nodes: Nodes, before: str, after: str) -> Nodes:
        """The nodes reached by free steps, between two letters."""
        key = (nodes, before, after and _kind(after))
        if key not in self._memo:
            self._memo[key] = frozenset(self._ahead(nodes, lambda a: not a or _ASSERTIONS[a](before, after)))
        closed: Nodes = self._memo[key]
        return closed

    def ends(self, nodes: Nodes, before: str, after: str) -> bool:
        """Whether the pattern is found at nodes between two letters."""
        return self.final in self._closure(nodes, before, after)

    def moved(self, nodes: Nodes, before: str, letter: str) -> Nodes | None:
        """The nodes after a letter; None once the pattern is found."""
        key = (nodes, before, letter, "moved")
        if key not in self._memo:
            closed = self._closure(nodes, before, letter)
            taken = (to for n in closed for test, to in self.taking[n] if _takes(test, letter))
            self._memo[key] = None if self.final in closed else self._essential([self.start, *taken])
        after: Nodes | None = self._memo[key]
        return after


_ASSERTIONS: dict[str, Callable[[str, str], bool]] = {
    "start": lambda before, after: not before,
    "end": lambda before, after: not after,
    "line start": lambda before, after: before in ("", "\n"),
    "line end": lambda before, after: after in ("", "\n"),
    "edge": lambda before, after: (before == "a") != _in_word(after),
}


def _assertion(name: str, flags: int) -> str:
    line = bool(flags & re.MULTILINE)
    found = {
        "AT_BEGINNING": "line start" if line else "start",
        "AT_BEGINNING_STRING": "start",
        "AT_END": "line end" if line else "end",
        "AT_END_STRING": "end",
        "AT_BOUNDARY": "edge",
    }.get(name)
    if found is None:
        raise NotImplementedError(name)
    return found


_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": lambda letter: letter.isascii() and letter.isdigit(),
    "CATEGORY_SPACE": lambda letter: letter in " \t\n\r\f",
    "CATEGORY_WORD": _in_word,
}


def _is_member(op: str, argument: Any, letter: str) -> bool:
    if op == "LITERAL":
        return ord(letter) == int(argument)
    if op == "RANGE":
        return bool(argument[0] <= ord(letter) <= argument[1])
    name = str(argument)
    if "_NOT_" in name:
        return not _CATEGORIES[name.replace("_NOT_", "_")](letter)
    return _CATEGORIES[name](letter)


@lru_cache(maxsize=65_536)
def _takes(test: Test, letter: str) -> bool:
    (op, argument), flags = test
    name = str(op)
    if name == "ANY":
        return letter != "\n" or bool(flags & re.DOTALL)
    forms = cases_of(letter) if flags & re.IGNORECASE else letter
    if name in ("LITERAL", "NOT_LITERAL"):
        return (argument in map(ord, forms)) == (name == "LITERAL")
    negated = bool(argument) and str(argument[0][0]) == "NEGATE"
    members = argument[1:] if negated else argument
    return negated != any(_is_member(str(o), a, form) for o, a in members for form in forms)


_ASCII_CASES = {"k": "kK\u212a", "s": "sS\u017f"}
"""The letters of ASCII that are also cases of others: of the sign for kelvin, of the long s."""


def cases_of(letter: str) -> str:
    """The letters that RE2 takes for one without regard to case, itself among them."""
    if letter.isascii():
        low = letter.lower()
        return _ASCII_CASES.get(low, low + letter.upper() if low.isalpha() else letter)
    return _cases().get(letter, letter)


@lru_cache(maxsize=1)
def _cases() -> dict[str, str]:
    alike: dict[str, str] = {}
    for letter in map(chr, (*range(0xD800), *range(0xE000, 0x1E944))):  # there are none beyond
        low = next((form for form in (letter.casefold(), letter.lower()) if len(form) == 1), letter)
        alike[low] = alike.get(low, "") + letter
    return {letter: several for several in alike.values() if len(several) > 1 for letter in several}


_READABLE = "z9 y-./_@:,=abcdefghijklmnopqrstuvwx" + "".join(map(chr, range(32, 127))) + "\n\t\r\x0b\x00\x7fé中"


def _codes(test: Test) -> Iterator[int]:
    (op, argument), _ = test
    items = argument if str(op) == "IN" else [(op, argument)]
    for name, value in items:
        if str(name) in ("LITERAL", "NOT_LITERAL"):
            yield from (value, value - 1, value + 1)
        elif str(name) == "RANGE":
            yield from (value[0] - 1, value[0], value[1], value[1] + 1)
