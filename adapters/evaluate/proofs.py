"""Questions about every session that a stack lets through: how they are written, shown and kept as tests."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from proctor.policies import PolicyError
from proctor.policies.errors import Problem

from ..kit.printable import encoded, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proctor.policies import Proved, Refuted, Unknown

WIDTH = 80
_CALL = re.compile(r"\s*([^\s()]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*([A-Za-z_][\w.\[\]*]*)\s*(==|!=|<=|>=|=|<|>|~)\s*", re.ASCII)
_OPERATORS = {
    "=": "equals",
    "==": "equals",
    "!=": "not_equals",
    "<": "lt",
    "<=": "lte",
    ">": "gt",
    ">=": "gte",
    "~": "regex",
}


class ProofQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question to `verify`.

    Attributes:
        kind: `property`, `no_looser_than`, `same_as`, `reach` or `rule`.
        text: The question as `--json` has it: `reach deploy(target="production")`.
        argument: What it is about: policies, or a selector.
    """

    kind: str
    text: str
    argument: Any

    @property
    def arguments(self) -> dict[str, Any]:
        """What `verify` takes."""
        return {"keeps" if self.kind == "property" else self.kind: self.argument}


class ProofRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, as `--json` has it: one line a question."""

    question: str
    verdict: str
    session: list[dict[str, Any]]
    explored: dict[str, Any]
    reason: str


def record_of(question: str, answer: Proved | Refuted | Unknown) -> ProofRecord:
    """The answer to a question, for programs."""
    return ProofRecord(
        question=question,
        verdict=answer.verdict,
        session=answer.session,
        explored=answer.explored,
        reason=answer.reason,
    )


def read_call(text: str) -> dict[str, Any]:
    """A selector written as a call: `deploy`, `deploy(target="production")`, `pay(amount>5000, to~"^X")`.

    A value is JSON; a name before it is an input, by its path without the `$.`.

    Raises:
        PolicyError: it is not one; the column says where.
    """
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
        try:
            value, at = json.JSONDecoder().raw_decode(arguments, found.end())
        except ValueError:
            raise _no_call(text, start + found.end(), 'a value is JSON: `"production"`, `5000`, `true`') from None
        yield {"path": f"$.{found[1]}", _OPERATORS[found[2]]: value}
        rest = arguments[at:].lstrip()
        if rest and not rest.startswith(","):
            raise _no_call(text, start + at, "arguments are separated by commas")
        at = len(arguments) - len(rest) + bool(rest)


def _no_call(text: str, at: int, why: str) -> PolicyError:
    problem = Problem(
        message=f"`{text}` is no call",
        file="",
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
    _append(text, printable(record.question), 9, width)
    text.append(" " * 9)
    _append(text, printable(record.reason), 9, width)
    for number, call in enumerate(record.session, 1):
        _append_call(text, number, call, width)
    text.append(" " * 9)
    _append(text, explored_words(record.explored), 9, width, "dim")
    for bound in record.explored.get("bounded", ()):
        text.append(" " * 9)
        _append(text, f"taken for granted: {printable(str(bound))}", 9, width, "dim")
    return text


def _append(text: Text, words: str, indent: int, width: int, style: str = "") -> None:
    """Words, wrapped; what follows a line stands under its beginning."""
    left = words
    room = max(width - indent, 20)
    while len(left) > room:
        cut = left.rfind(" ", 0, room + 1)
        cut = cut if cut > 0 else room
        text.append(left[:cut] + "\n" + " " * indent, style)
        left = left[cut:].lstrip()
    text.append(left + "\n", style)


def _append_call(text: Text, number: int, call: Mapping[str, Any], width: int) -> None:
    """One call: what happened before it, its input, the decision, and what became of it."""
    for event in call.get("before", ()):
        text.append(" " * 6)
        _append(text, printable(_event_words(event)), 6, width, "dim")
    if not call["tool"]:
        return
    arguments = ", ".join(f"{name}={_json(value)}" for name, value in call["input"].items())
    head = f"{number:>4}. "
    text.append(head, "bold")
    _append(text, f"{printable(call['tool'])}({printable(arguments)})", 8, width)
    fate = f"{call['decision']}, {_fate(call)}"
    text.append(" " * 8)
    _append(text, fate, 8, width, "red" if call["outcome"] == "denied" else "dim")


def _fate(call: Mapping[str, Any]) -> str:
    late = call.get("ended_before_call")
    parts = [f"{call['outcome']} after call {late - 1}" if late else str(call["outcome"])]
    if "approval" in call:
        parts.insert(0, f"approval {call['approval']}")
    if "output" in call:
        parts.append(f"returned {_json(call['output'])}")
    if call.get("turn", 1) != 1 or call.get("run", 1) != 1:
        parts.append(f"turn {call.get('turn', 1)} of run {call.get('run', 1)}")
    return printable(", ".join(parts))


def _event_words(event: Mapping[str, Any]) -> str:
    if "user_message" in event:
        return f"the user writes {_json(event['user_message'])}"
    return ", ".join(f"{key} {_json(value)}" for key, value in event.items())


def _json(value: Any) -> str:
    return encoded(value)


def explored_words(explored: Mapping[str, Any]) -> str:
    """What was explored, in words."""
    if not explored:
        return "explored nothing"
    return (
        f"explored {explored.get('classes', 0):,} classes of calls, {explored.get('states', 0):,} states, "
        f"sessions of up to {explored.get('depth', 0):,} calls"
    )


def test_file(question: ProofQuestion, session: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> str:
    """A session that refutes, as a file for `proctor test`: it fails until the policy denies the last call."""
    calls = [{**_expected(call), **_user(call)} for call in session if call["tool"]]
    if calls:
        calls[-1] = {k: v for k, v in calls[-1].items() if k not in ("result", "error")} | {"expect": "deny"}
    named = ", ".join(encoded(name) for name in policies)
    lines = [f"# Found by `proctor prove`: {question.text}", "# It fails until the last call is denied."]
    lines += [f"policies: [{named}]", "tests:", f"  - name: {encoded(question.text)}", "    calls:"]
    return "\n".join([*lines, *(f"      - {encoded(call)}" for call in calls)]) + "\n"


def _expected(call: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"tool": call["tool"], "input": call["input"], "expect": call["decision"]}
    if call["outcome"] == "failed":
        found["error"] = "failed"
    elif call["decision"] in ("allow", "warn") or call.get("approval") == "granted":
        found["result"] = call.get("output", "done")
    return found


def _user(call: Mapping[str, Any]) -> dict[str, Any]:
    texts = [event["user_message"] for event in call.get("before", ()) if "user_message" in event]
    return {"user": "\n".join(texts)} if texts else {}


def session_line(question: ProofQuestion, session: Sequence[Mapping[str, Any]]) -> str:
    """The same as a recorded session in the format `sessions`: one line of JSON."""
    events: list[dict[str, Any]] = []
    for number, call in enumerate(session, 1):
        turn = call.get("turn", number)
        events += [
            {"type": "message", "role": "user", "content": event["user_message"]}
            for event in call.get("before", ())
            if "user_message" in event
        ]
        if call["tool"]:
            named = {"id": f"c{number}", "turn": turn}
            events.append({"type": "tool_call", "name": call["tool"], "input": call["input"], **named})
            if call["outcome"] != "denied":
                failed = call["outcome"] == "failed"
                output = "failed" if failed else call.get("output", "done")
                events.append({"type": "tool_result", "output": output, "is_error": failed, **named})
    return encoded({"id": question.text, "source": "proctor prove", "events": events}) + "\n"
