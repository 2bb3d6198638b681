"""One event as a line: when, what in a word, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from rich.text import Text

from proctor.policies import events as ev
from proctor.policies.events.calls import rule_name
from proctor.policies.stack.merge import figure

from ..evaluate.judge import CallLine
from ..kit.printable import dollars, printable

EventLine: TypeAlias = tuple[str, str, str]
_LONGEST = 300
_CALLS_KNOWN = 4096
"""Of so many of the latest calls it is remembered what they asked for."""


def names_its_run(event: ev.Event) -> bool:
    """Whether the line of an event says which run it is of."""
    return isinstance(event, ev.RunStarted)


class EventLines:
    """Turns events into lines; an event that says nothing to people gives none.

    A line begins with the seconds since the first event; `numbered`: with the event's number; `clock`: with
    the time of day. `ran`: how many calls of the session ran in all, where that is known; the place of a call in an
    order is then told as `call 3 of 7`.
    """

    def __init__(self, *, numbered: bool = False, clock: bool = False, ran: int | None = None) -> None:
        self._numbered = numbered
        self._clock = clock
        self._ran = ran
        self._calls: dict[str, str] = {}
        self._began: datetime | None = None

    def tells(self, event: ev.Event) -> bool:
        """Whether an event gives a line."""
        return type(event) in _TELLERS

    def of(self, event: ev.Event) -> Text | None:
        """The line of one event, without its end."""
        if isinstance(event, ev.ToolEvent):
            self._calls[event.tool_call_id] = _call(event.tool_name, event.tool_input)
            if len(self._calls) > _CALLS_KNOWN:
                del self._calls[next(iter(self._calls))]
        teller = _TELLERS.get(type(event))
        if teller is None:
            return None
        label, style, words = teller(self, event)
        text = Text()
        text.append(f"{self._head(event):>8}  ", style="dim")
        text.append(f"{label:<9} ", style=style)
        text.append(printable(words))
        return text

    def call(self, event: ev.ToolEvent | ev.ToolOutcome) -> str:
        """The call that an event is of, as far as it is known."""
        return self._calls.get(event.tool_call_id, event.tool_name)

    def placed(self, event: ev.PolicyViolated) -> str:
        """The message of a violation; the call's place in an order with the number of calls: those that ran, and
        this one.
        """
        place = f"{event.details.get('actual')} (call {event.details.get('sequence_length', 0) + 1}"
        if self._ran is None or not event.message.startswith((f"{place})", f"{place};")):
            return event.message
        of = self._ran + (event.enforcement == "prevented")
        return f"{place} of {of}{event.message[len(place) :]}"

    def _head(self, event: ev.Event) -> str:
        if self._numbered:
            return str(event.seq)
        at = event.at
        if at is None:
            return ""
        if self._clock:
            return f"{at.astimezone():%H:%M:%S}"
        self._began = self._began or at
        return f"{(at - self._began).total_seconds():.1f}s"


def _violated(lines: EventLines, event: ev.PolicyViolated) -> EventLine:
    style = "yellow" if event.enforcement == "observed" else "bold red"
    expected = event.details.get("expected")
    message = lines.placed(event)
    why = f"{message}; expected {expected}" if expected else message
    return "violation", style, f"{rule_name(event.policy, event.rule)}: {why} ({event.enforcement})"


def _used(_: EventLines, event: ev.TokenUsageUpdated) -> EventLine:
    cost = f", {dollars(event.cost_usd)}" if event.cost_usd else ""
    used = f"{event.input_tokens:,} in, {event.output_tokens:,} out{cost}"
    return "tokens", "dim", f"{used} so far" if event.scope == "cumulative" else f"+ {used}"


def _reserved(_: EventLines, event: ev.BudgetReserved) -> EventLine:
    left = f"{figure(event.used)} of {figure(event.max)} used"
    if event.granted:
        return "budget", "dim", f"{event.budget}: {left}, {figure(event.reserved)} reserved"
    return "budget", "yellow", f"{event.budget}: {left}, nothing can be reserved"


def _approval_requested(_: EventLines, event: ev.ToolApprovalRequested) -> EventLine:
    call, how = _call(event.tool_name, event.tool_input), f"proctor approve {short(event.approval_id)}"
    if event.ran:
        return "approval", "yellow", f"{call} ran without the one it needed: it could not be held"
    if event.held:
        left = _seconds(event.at, event.expires_at)
        return "waits", "bold yellow", f"{call} waits {left} for a person: {how}{_asked_by(event)}"
    if event.input_digest:
        return "approval", "yellow", f"{call} needs one before a later run: {how}"
    return "approval", "yellow", f"{event.violation_kind or 'what happened'} would have needed one"


def _asked_by(event: ev.ToolApprovalRequested) -> str:
    """The rules that ask, and what for."""
    asking = (f"{rule_name(v['policy'], v['rule'])}: {v['message']}" for v in event.violations)
    return "".join(f"; {words}" for words in asking)


def _answered(event: ev.ApprovalEvent) -> str:
    return f"{event.tool_name} by {event.by or 'unknown'}{f': {event.reason}' if event.reason else ''}"


def _failed(_: EventLines, event: ev.RunFailed) -> EventLine:
    error = event.error
    return "failed", "bold red", str(error.get("message", error) if isinstance(error, dict) else error)


_TELLERS: dict[type[ev.Event], Callable[[EventLines, Any], EventLine]] = {
    ev.RunStarted: lambda _, e: ("run", "bold", f"{e.run_id} under {e.metadata.get('policy') or 'no policy'}"),
    ev.MessageSent: lambda _, e: (e.role, "bold", _content(e.content)),
    ev.MessageReceived: lambda _, e: ("agent" if e.role == "assistant" else e.role, "bold", _content(e.content)),
    ev.ToolCallStarted: lambda lines, e: ("allowed", "green", lines.call(e)),
    ev.ToolCallCompleted: lambda _, e: ("  result", "dim", _output(e.tool_output)),
    ev.ToolCallFailed: lambda _, e: ("  failed", "yellow", _output(e.error)),
    ev.ToolCallDenied: lambda lines, e: (
        "refused",
        "bold red",
        f"{lines.call(e)}; the model is told: {e.tell_model or 'nothing'}",
    ),
    ev.TokenUsageUpdated: _used,
    ev.PolicyViolated: _violated,
    ev.BudgetWarned: lambda _, e: ("warning", "yellow", f"{e.limit}: {figure(e.used)} of {figure(e.max)} used"),
    ev.BudgetReserved: _reserved,
    ev.ToolApprovalRequested: _approval_requested,
    ev.ToolApprovalGranted: lambda _, e: ("approved", "bold green", _answered(e)),
    ev.ToolApprovalDenied: lambda _, e: ("denied", "bold red", _answered(e)),
    ev.ToolApprovalExpired: lambda _, e: (
        "expired",
        "bold yellow",
        f"{e.tool_name}: {e.reason or 'nobody answered in time'}",
    ),
    ev.ErrorOccurred: lambda _, e: ("error", "red", f"{e.code}: {e.message}"),
    ev.ErrorRecovered: lambda _, e: ("recovered", "green", f"{e.code}: {e.message}"),
    ev.RunCompleted: lambda _, e: ("completed", "bold green", _output(e.output)),
    ev.RunFailed: _failed,
    ev.RunCancelled: lambda _, e: ("cancelled", "bold red", e.reason + (f" (by {e.by})" if e.by else "")),
    ev.Unrecognized: lambda _, e: ("other", "dim", e.type),
}
"""What each event says: in one word what happened, the colour that repeats it, and the rest."""


def short(run_or_approval: str) -> str:
    """An id as it is typed: the beginning of the run's, with the approval's number if it is one."""
    run, dot, number = run_or_approval.rpartition(".")
    return f"{run[:12]}.{number}" if dot else run_or_approval[:12]


def _call(name: str, input: dict[str, Any]) -> str:
    return CallLine(position=0, seq=0, id="", name=name, input=input).text


def _content(content: Any) -> str:
    """The text of a message; of a list of blocks, that of its blocks."""
    if isinstance(content, list):
        return _cut(" ".join(_block_texts(content)))
    return _cut(content if isinstance(content, str) else _output(content))


def _block_texts(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, dict):
            yield str(block.get("text") or block.get("thinking") or f"[{block.get('type', 'block')}]")


def _output(value: Any) -> str:
    """What a call gave; of a command, what it printed."""
    if isinstance(value, dict) and "exit_code" in value:
        printed = f"{value.get('stdout') or ''}{value.get('stderr') or ''}".strip()
        code = value.get("exit_code")
        return _cut(f"exit {code}: {printed}" if code else printed or "(nothing printed)")
    if value is None:
        return "(nothing)"
    return _cut(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode())


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _seconds(start: datetime | None, end: datetime | None) -> str:
    return f"{(end - start).total_seconds():.0f} s" if start and end else ""
