"""Questions about every session that a stack allows: how they are written, answered in words, and kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import yaml
from rich.text import Text

from proctor.policies import Policy, PolicyError, Proved, Refuted, Unknown, merge_policies, verify
from proctor.policies.analysis.questions import read_selector
from proctor.policies.errors import Problem
from proctor.policies.events import Event
from proctor.policies.language.operators import SIGNS
from proctor.policies.stack.merge import names_alone
from proctor.policies.values.amounts import counted
from proctor.policies.values.json_values import NOT_YAML

from ..kit.display_text import encoded, escape_control

WIDTH = 80
_CALL = re.compile(r"\s*([^\s()]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_SIGNS = {**SIGNS, "~": "regex"}
_ARGUMENT = re.compile(rf"\s*(?:\$\.)?([A-Za-z_][\w.\[\]*]*)\s*({'|'.join(_SIGNS)})\s*", re.ASCII)
_QUOTED = re.compile(r"'([^']*)'")


class ProofQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question to `verify`.

    Attributes:
        kind: `property`, `no_looser_than`, `same_as`, `reach` or `rule`.
        text: The question as `--json` has it: `reach deploy(target="production")`.
        argument: The question's subject: policies, or a selector.
    """

    kind: str
    text: str
    argument: Any

    @property
    def arguments(self) -> dict[str, Any]:
        """What `verify` takes."""
        return {"keeps" if self.kind == "property" else self.kind: self.argument}


class ProofRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer, as `--json` has it, but for the `events` of its session: one line a question. `finishes` is false if
    no run can finish.
    """

    question: str
    verdict: str
    session: list[dict[str, Any]]
    explored: dict[str, Any]
    reason: str
    context: dict[str, Any] = {}
    finishes: bool = True
    events: list[Event] = []


LONGEST_S = 30
"""The seconds that all questions of a command, or of a test file, may take together."""


class Prover(NamedTuple):
    """`verify` with what its questions share; once it is `over`, nothing more is to be asked."""

    answer: Callable[..., Proved | Refuted | Unknown] = verify
    over: Callable[[], bool] = lambda: False

    def __call__(self, stack: Policy, **question: Any) -> Proved | Refuted | Unknown:
        return self.answer(stack, **question)


class SharedTime:
    """The time of several questions: each has an even part of what is left, so what one does not need others have.

    `number` is that of the question going on. `stopped` is asked now and then, whether to go on at all.
    """

    def __init__(
        self, questions: int, stopped: Callable[[], bool] = lambda: False, seconds: float = LONGEST_S
    ) -> None:
        self.questions, self.number = questions, 0
        self._stopped, self._seconds = stopped, seconds
        self._end = time.monotonic() + seconds

    def over(self) -> bool:
        """Whether nothing more is to be asked."""
        return self._stopped() or time.monotonic() > self._end

    def prover(self, **shared: Any) -> Prover:
        """`answer` with what all questions share, until the time is over."""
        return Prover(partial(self.answer, **shared), self.over)

    def answer(self, stack: Policy, **question: Any) -> Proved | Refuted | Unknown:
        """Answer one question to `verify`, in its part of the time; unknown says so if that was too little."""
        begun = time.monotonic()
        left = max(self.questions - self.number, 1 if self.questions == 1 else 2)
        part = begun + (self._end - begun) / left
        self.number += 1
        over = False

        def should_stop() -> bool:
            nonlocal over
            over = time.monotonic() > part
            return over or self._stopped()

        found = verify(stack, should_stop=should_stop, **question)
        if over and self.questions > 1 and found.verdict == "unknown":
            questions = counted(self.questions, "question")
            shared = f"{found.reason}; {questions} shared {self._seconds:g} seconds, so ask it alone"
            found = msgspec.structs.replace(found, reason=shared)
        return found


def answer_question(question: ProofQuestion, stack: Policy, prover: Prover) -> tuple[ProofRecord, str]:
    """The answer to a question about a stack, and a note if no policy is needed for it: no session comes to the call
    without one either.
    """
    record = record_of(question.text, prover(stack, **question.arguments))
    if question.kind != "reach" or record.verdict != "proved":
        return record, ""
    bare = merge_policies(names_alone(stack))
    needed = prover(bare, **question.arguments).verdict != "proved"
    return record, "" if needed else "without the policies none does either: check its name and inputs"


def record_of(question: str, answer: Proved | Refuted | Unknown) -> ProofRecord:
    """The answer to a question, for programs."""
    return ProofRecord(
        question=question,
        verdict=answer.verdict,
        session=answer.session,
        explored=answer.explored,
        reason=answer.reason,
        context=answer.context,
        events=answer.events if isinstance(answer, Refuted) else [],
    )


def read_call(text: str) -> Any:
    """A selector written as a call: `deploy`, `deploy(target="production")`, `pay(amount>5000, to~"^X")`; or as a
    rule has it: `{tool: pay, where: [...]}`, `[pay, deploy]`.

    A value is JSON, or a text in single quotes; a name before it is an input, by its path with or without the `$.`.
    Raises PolicyError: it is not one; the column says where.
    """
    selector = _yaml(text) if text.lstrip()[:1] in ("{", "[") else _call(text)
    try:
        read_selector(selector)
    except ValueError as error:
        raise _no_call(text, 0, str(error)) from None
    return selector


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, *NOT_YAML) as error:
        column = error.problem_mark.column if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark else 0
        raise _no_call(text, column, "a selector is written as in a rule") from None


def _call(text: str) -> dict[str, Any]:
    found = _CALL.fullmatch(text)
    if found is None:
        raise _no_call(text, 0, "it is a tool's name, with or without arguments in parentheses")
    tool, arguments = found[1], found[2] or ""
    start = found.start(2) if found[2] else 0
    where = [*_conditions(text, arguments, start)]
    return {"tool": tool, "where": where} if where else {"tool": tool}


def _conditions(text: str, arguments: str, start: int) -> Iterator[dict[str, Any]]:
    at = 0
    while arguments[at:].strip():
        found = _ARGUMENT.match(arguments, at)
        if found is None:
            raise _no_call(
                text, start + at, "an argument is `NAME=VALUE`; also `!=`, `<`, `<=`, `>`, `>=`, `~` (regex)"
            )
        quoted = _QUOTED.match(arguments, found.end())
        try:
            if quoted is not None:
                value, at = quoted[1], quoted.end()
            else:
                value, at = json.JSONDecoder().raw_decode(arguments, found.end())
        except (ValueError, RecursionError):
            raise _no_call(text, start + found.end(), 'a value is JSON: `"production"`, `5000`, `true`') from None
        yield {"path": f"$.{found[1]}", _SIGNS[found[2]]: value}
        rest = arguments[at:].lstrip()
        if rest and not rest.startswith(","):
            raise _no_call(text, start + at, "arguments are separated by commas")
        at = len(arguments) - len(rest) + bool(rest)


def _no_call(text: str, at: int, why: str) -> PolicyError:
    problem = Problem(
        message=f"`{text}` is no call",
        file="--reach",
        line=1,
        column=at + 1,
        source=text,
        suggestion=f'{why}; for example `deploy(target="production")`',
    )
    return PolicyError([problem])


_STYLES = {"proved": "bold green", "refuted": "bold red", "unknown": "bold yellow"}


def answer_text(record: ProofRecord, width: int = WIDTH) -> Text:
    """An answer on a terminal: the verdict, why, the session call by call, and what was explored."""
    text = Text()
    text.append(f"{record.verdict:<9}", _STYLES[record.verdict])
    append_words(text, escape_control(record.question), 9, width)
    text.append(" " * 9)
    append_words(text, escape_control(record.reason), 9, width)
    text.append_text(calls_text(record.session, record.context, width))
    text.append(" " * 9)
    append_words(text, explored_words(record.explored), 9, width, "dim")
    for bound in record.explored.get("bounded", ()):
        text.append(" " * 9)
        append_words(text, f"assumed: {escape_control(str(bound))}", 9, width, "dim")
    return text


def calls_text(session: Sequence[Mapping[str, Any]], context: Mapping[str, Any], width: int = WIDTH) -> Text:
    """A session call by call, and the context that it is in; of many like calls in a row, the first."""
    text = Text()
    if context:
        text.append(" " * 9)
        append_words(text, f"where the context is {escape_control(encoded(context))}", 9, width)
    for (number, call), *more in _alike(session):
        _append_call(text, number, call, width)
        if len(more) > _MOST_ALIKE:
            text.append(f"{' ' * 8}... {counted(len(more), 'more call')} like it\n", "dim")
        else:
            for number, call in more:
                _append_call(text, number, call, width)
    return text


_MOST_ALIKE = 2
"""So many calls that are like the one before are shown."""


def _alike(session: Sequence[Mapping[str, Any]]) -> Iterator[list[tuple[int, Mapping[str, Any]]]]:
    """The calls of a session with their numbers, those in a row together that read alike."""
    group: list[tuple[int, Mapping[str, Any]]] = []
    before = ("", "")
    for number, call in enumerate(session, 1):
        words = call_words(call), fate_words(number, call)
        if group and (call.get("before") or words != before):
            yield group
            group = []
        group.append((number, call))
        before = words
    if group:
        yield group


def append_words(text: Text, words: str, indent: int, width: int, style: str = "") -> None:
    """Words, wrapped; what follows a line stands under its beginning."""
    left = words
    columns = max(width - indent, 20)
    while len(left) > columns:
        cut = left.rfind(" ", 0, columns + 1)
        cut = cut if cut > 0 else columns
        text.append(left[:cut] + "\n" + " " * indent, style)
        left = left[cut:].lstrip()
    text.append(left + "\n", style)


def _append_call(text: Text, number: int, call: Mapping[str, Any], width: int) -> None:
    """One call: what happened before it, its input, the decision, and what became of it."""
    for event in call.get("before", ()):
        text.append(" " * 6)
        append_words(text, event_words(event), 6, width, "dim")
    if not call["tool"]:
        return
    text.append(f"{number:>4}. ", "bold")
    append_words(text, call_words(call), 8, width)
    text.append(" " * 8)
    append_words(text, fate_words(number, call), 8, width, "red" if call["outcome"] == "denied" else "dim")


def overlaps(number: int, call: Mapping[str, Any]) -> bool:
    """Whether a call of a session, by its number from 1, ends only after the next one has begun."""
    return bool(call.get("ended_before_call", 0) > number + 1)


def call_words(call: Mapping[str, Any]) -> str:
    """A call of a session with its input: `pay(amount=5)`."""
    arguments = ", ".join(f"{name}={encoded(value)}" for name, value in call["input"].items())
    return escape_control(f"{call['tool']}({arguments})")


def fate_words(number: int, call: Mapping[str, Any]) -> str:
    """What was decided on a call of a session, by its number from 1, and what became of it."""
    late = f" after call {call['ended_before_call'] - 1}" if overlaps(number, call) else ""
    approval = [f"approval {call['approval']}"] if "approval" in call else []
    parts = [call["decision"], *approval, f"{call['outcome']}{late}"]
    if "output" in call:
        parts.append(f"returned {encoded(call['output'])}")
    if call.get("turn", 1) != 1 or call.get("run", 1) != 1:
        parts.append(f"turn {call.get('turn', 1)} of run {call.get('run', 1)}")
    return escape_control(", ".join(parts))


def event_words(event: Mapping[str, Any]) -> str:
    """What happened before a call of a session."""
    if "user_message" in event:
        return escape_control(f"the user writes {encoded(event['user_message'])}")
    if "turn" in event:
        return f"turn {event['turn']} begins" + (f" in run {event['run']}" if "run" in event else "")
    if "budget" in event:
        return escape_control(f"other runs have used up the budget `{event['budget']}`")
    runs = f"{event['runs']:,} runs use" if event["runs"] > 1 else "a run uses"
    return f"{runs} {event['used']:,g} of `{event['limit']}`"


def explored_words(explored: Mapping[str, Any]) -> str:
    """The size of the exploration, in words."""
    if not explored:
        return "explored nothing"
    return (
        f"explored {counted(explored.get('classes', 0), 'class of calls', 'classes of calls')}, "
        f"{counted(explored.get('states', 0), 'state')}, "
        f"sessions of up to {counted(explored.get('depth', 0), 'call')}"
    )
