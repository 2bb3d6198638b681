"""Nets in one line: `require backup before delete`, `limit push to 1 per test`, `map bash.command ...`."""

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import msgspec

from ..language.selectors import HUMAN, NameScope, VirtualTool, selector_problems
from ..values import regexes
from ..values.globs import overlap
from ..values.model_base import Issue, Where
from .petri_net import Net, Transition
from .rule import ClauseRecord

_NAME = r"(\S+)"
_REQUIRE = re.compile(rf"require\s+{_NAME}\s+before\s+{_NAME}", re.IGNORECASE)
_BLOCK = re.compile(rf"block\s+{_NAME}", re.IGNORECASE)
_LIMIT = re.compile(rf"limit\s+{_NAME}\s+to\s+(\d+)\s+per\s+{_NAME}", re.IGNORECASE)
_MAP = re.compile(r"map\s+([^\s.]+)\.(\S+)\s+(\"[^\"]+\"|'[^']+'|/.+/|\S+)\s+as\s+(\S+)", re.IGNORECASE)
_DIGITS = 20
"""How many digits of a number are read; more are too large in any case."""
MAX_LIMIT = 10_000
"""The largest count a one-line net may keep in tokens."""

FORMS = (
    "`require A before B`, `require human-approval before B`, `block A`, `limit A to N per session`, "
    '`limit A to N per B`, `map tool.field "words" as name`'
)


class BadLineError(ValueError):
    """A line that has none of the forms, which the message lists."""


class NetLine(ClauseRecord, frozen=True):
    """A net in its one-line shorthand, with the fields of a rule.

    Attributes:
        line: The net: `require A before B`, `limit A to 3 per session`, `block A`, ...
    """

    line: str

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from line_problems(self.line, ("line",))


def line_problems(line: str, where: Where = (), scope: NameScope | None = None) -> Iterator[Issue]:
    """The errors in a line of shorthand, if any; `scope` resolves aliases."""
    try:
        read = read_line(line)
        if isinstance(read, Net) and scope is not None:
            sides = [[name for name in t.tools if isinstance(name, str)] for t in read.transitions]
            first, *others = map(scope.expand, sides)
            for one, other in product(first, *others) if len(others) == 1 else ():
                _check_apart(line, one, other)
    except BadLineError as error:
        yield where, str(error)
        return
    if isinstance(read, VirtualTool):
        yield from ((where, message) for _, message in read.problems())
    else:
        for transition in read.transitions:
            for tool in transition.tools:
                yield from selector_problems(tool, where)


def read_line(line: str) -> Net | VirtualTool:
    """The net a line stands for, or for a `map` line the virtual tool. Raises BadLineError."""
    text = " ".join(line.split()) if "/" not in line else line.strip()
    for pattern, make in _FORMS:
        if match := pattern.fullmatch(text):
            return make(line.strip(), match)
    raise BadLineError(f"`{line}` is not a net: write {FORMS}")


def net_of(item: str | NetLine | Net) -> Net | VirtualTool:
    """A net however it was written, carrying what its line carries."""
    if isinstance(item, Net):
        return item
    if isinstance(item, str):
        return read_line(item)
    read = read_line(item.line)
    if isinstance(read, VirtualTool):
        return read
    carried = {field: getattr(item, field) for field in NetLine.__struct_fields__ if field != "line"}
    return msgspec.structs.replace(read, **carried)


def _require(line: str, match: re.Match[str]) -> Net:
    first, then = match.groups()
    if first.lower() == HUMAN:
        approval = Transition(name="ask", type="manual", tools=(then,))
        return Net(name=line, places=(), transitions=(approval,))
    _check_apart(line, first, then)
    prepare = Transition(name="prepare", outputs=("ready",), tools=(first,), deferred=True)
    use = Transition(name="use", inputs=("ready",), tools=(then,))
    return Net(name=line, places=("ready",), capacity={"ready": 1}, transitions=(prepare, use))


def _check_apart(line: str, one: str, other: str) -> None:
    """Reject a call on both sides of a line, which would allow it as one and block it as the other."""
    if overlap(one, other):
        same = f"`{one}` is" if one == other else f"a tool may match both `{one}` and `{other}`,"
        raise BadLineError(f"`{line}`: {same} on both sides; name tools that differ, or write a rule")


def _block(line: str, match: re.Match[str]) -> Net:
    never = Transition(name="never", inputs=("never",), tools=(match[1],))
    return Net(name=line, places=("never",), transitions=(never,))


def _limit(line: str, match: re.Match[str]) -> Net:
    tool, count, per = match[1], int(match[2][:_DIGITS]), match[3]
    if count > MAX_LIMIT:
        raise BadLineError(f"`{line}`: a net counts to {MAX_LIMIT:,} at most; use a `count` rule")
    if per.lower() != "session":
        _check_apart(line, tool, per)
    transitions = [Transition(name="spend", inputs=("budget",), tools=(tool,))]
    if per.lower() != "session":
        refill = Transition(name="refill", outputs=("budget",) * count, tools=(per,), deferred=True)
        transitions.append(refill)
    return Net(
        name=line,
        places=("budget",),
        initial_marking={"budget": count},
        capacity={"budget": count} if count else {},
        transitions=tuple(transitions),
    )


class Refilled(NamedTuple):
    """The parts of `limit A to N per B`."""

    tool: str
    calls: int
    per: str


def refilled(line: str) -> Refilled | None:
    """The parts of a line that limits calls per action; None for any other line."""
    match = _LIMIT.fullmatch(" ".join(line.split()))
    if match is None or match[3].lower() == "session":
        return None
    return Refilled(match[1], int(match[2]), match[3])


def required(line: str) -> tuple[str, str] | None:
    """The action that a line requires, and the one it requires it before; None for any other line."""
    match = _REQUIRE.fullmatch(" ".join(line.split()))
    return None if match is None else (match[1], match[2])


def _map(line: str, match: re.Match[str]) -> VirtualTool:
    tool, path, words, name = match.groups()
    if words.startswith("/") and words.endswith("/") and len(words) > 2:
        pattern = words[1:-1]
    else:
        text = words.strip("\"'")
        if (meant := regexes.of_javascript(words)) is not None:
            raise BadLineError(f"`{line}`: flags stand in the expression: `/{meant}/`")
        if not text.strip():
            raise BadLineError(f"`{line}`: it names no words")
        pattern = r"\s+".join(re.escape(word) for word in text.split())
        # Between two characters that are no letters there is no `\b`: such a word stands between blanks.
        start = r"\b" if re.match(r"\w", text.strip()) else r"(?:^|\s)"
        end = r"\b" if re.search(r"\w$", text.strip()) else r"(?:\s|$)"
        pattern = f"{start}{pattern}{end}"
    return VirtualTool(tool=tool, path=f"$.{path}", match=pattern, as_=name)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], Net | VirtualTool]], ...] = (
    (_REQUIRE, _require),
    (_BLOCK, _block),
    (_LIMIT, _limit),
    (_MAP, _map),
)
