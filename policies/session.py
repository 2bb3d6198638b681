"""The state of one session: its calls, its place in the stream, and what each rule has to remember.

All of it is plain data, so that a snapshot is the state written down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from .calls import UNREADABLE, fingerprint
from .language.operands import OutputRef
from .language.selectors import VirtualName
from .language.values import is_number, parsed_output, text_of
from .limits import LimitState
from .memory import Returned, UserWords
from .usage import Meter

FINISHED_KEPT = 65_536
"""The most finished calls of a run that are remembered by id; an older id counts as a new call."""

MARK_LENGTH = 64
"""Up to how many bytes an input stands in its mark as it is; beyond, as a digest."""

REQUESTED, HELD, ALLOWED, STARTED = "requested", "held", "allowed", "started"

_NO_ANSWERS: Mapping[str, Any] = {}


class Call(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call in flight, and what the rules may ask about it.

    `visits` are the rules that it concerns, as (number, mask). `memory` leads to what the session remembers.
    """

    id: str
    name: str
    input: Any
    turn: int
    status: str = REQUESTED
    visits: list[tuple[int, int]] = []
    approved: bool = False
    observed: bool = False
    answers: Any = _NO_ANSWERS
    memory: Any = None
    named: dict[VirtualName, bool] | None = None
    loose: str | None = None

    def goes_by(self, virtual: VirtualName) -> bool:
        """Whether the input gives the call this name."""
        if self.named is None:
            self.named = {}
        known = self.named.get(virtual)
        if known is None:
            known = self.named[virtual] = virtual.fits(self.input)
        return known

    def outputs(self, ref: OutputRef) -> Returned:
        """What earlier successful calls returned."""
        found: Returned = self.memory.returned[ref]
        return found

    def user_wrote(self, text: str) -> bool:
        """Whether a user message contains the text, not inside a longer word or number."""
        words: UserWords = self.memory.words
        return words.contain(text)

    def user_said(self, pattern: str, latest: bool) -> bool:
        """Whether a pattern was found in a user message, or in the last."""
        words: UserWords = self.memory.words
        return pattern in (words.last if latest else words.ever)

    def loose_fingerprint(self) -> str:
        """The same text for the same tool and input, whatever its JSON types."""
        if self.loose is None:
            text = self.name.casefold() + "\0" + fingerprint(_loosened(self.input)).decode()
            self.loose = hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
        return self.loose


def _loosened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _loosened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_loosened(item) for item in value]
    return text_of(value) if is_number(value) else value


def mark(name: str, input: Any) -> str:
    """A short text that is the same for the same tool and input, by which a finished call is known.

    Raises one of UNREADABLE for an input that cannot be written as JSON.
    """
    text = fingerprint(input)
    if len(text) > MARK_LENGTH:
        return f"{name}#{hashlib.blake2b(text, digest_size=16).hexdigest()}"
    return f"{name} {text.decode()}"


class Session(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a session stands.

    `count` is the number of calls that started; `turn` the number of the last model response, `turn_base` what
    it was when the run began, and `turn_offset` what is added to the numbers of a run that counts from 1 again.
    """

    run_id: str = ""
    runs: int = 0
    ended: str = ""
    count: int = 0
    turn: int = 0
    turn_base: int = 0
    turn_offset: int | None = None
    asked: bool = False
    finished: dict[str, str] = {}
    denied: set[str] = set()
    granted: dict[str, str] = {}
    exercised: frozenset[str] = frozenset()
    violated: frozenset[str] = frozenset()
    broken: dict[str, str] = {}
    meter: Meter = msgspec.field(default_factory=Meter)
    limits: LimitState = msgspec.field(default_factory=LimitState)
    words: UserWords = msgspec.field(default_factory=UserWords)

    def session_turn(self, turn: int) -> int:
        """The session's number for a response that a run numbers `turn`; 0 is the response going on now."""
        if turn <= 0:
            return max(self.turn, self.turn_base + 1)
        if self.turn_offset is None:
            # Numbers count on through the session; a client that begins at 1 again is counted on from here.
            self.turn_offset = self.turn_base if turn <= self.turn_base else 0
        return turn + self.turn_offset

    def reach_turn(self, turn: int) -> None:
        """The stream has come to this response."""
        if turn > self.turn:
            self.turn = turn
        if self.turn - self.turn_base > self.limits.turns:
            self.limits.turns = self.turn - self.turn_base

    def new_run(self, run_id: str, model: str) -> None:
        """A run begins: call ids, turns within the run and approvals start anew."""
        self.run_id = run_id
        self.runs += 1
        self.ended = ""
        self.turn_base = self.turn
        self.turn_offset = None if self.runs > 1 else 0
        self.finished, self.denied, self.granted = {}, set(), {}
        self.meter.new_run(model)

    def finish(self, call: Call) -> None:
        """A call is over; only its id and its mark stay."""
        try:
            self.finished[call.id] = mark(call.name, call.input)
        except UNREADABLE:
            self.finished[call.id] = ""  # the same as no call
        if len(self.finished) > FINISHED_KEPT:
            # Many at a time: finding the first key of a dict steps over all that were deleted before it.
            for oldest in list(islice(self.finished, FINISHED_KEPT // 8)):
                del self.finished[oldest]
                self.denied.discard(oldest)


_UNPARSED: Any = object()


class Output(msgspec.Struct):
    """What a tool returned, parsed when a rule first looks."""

    raw: Any
    _parsed: Any = _UNPARSED

    @property
    def value(self) -> Any:
        """As paths see it."""
        if self._parsed is _UNPARSED:
            self._parsed = parsed_output(self.raw)
        return self._parsed

    @property
    def text(self) -> str:
        """As it came."""
        return self.raw if isinstance(self.raw, str) else fingerprint(self.raw).decode()
