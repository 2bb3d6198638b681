"""One event as a line: when, what in a word, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from rich.text import Text

from proctor.adapters.evaluate.calls import CallLine
from proctor.adapters.kit.values.printable import printable
from proctor.policies.stack.limits import figure
from proctor.policies.stream import events as ev
from proctor.policies.stream.calls import rule_name

_LONGEST = 300
_CALLS_KNOWN = 4096
"""Of so many of the latest calls it is remembered what they asked for."""


class EventLine(msgspec.Struct, frozen=True):
    """`label` says in one word what happened; colour only repeats it."""

    label: str
    style: str
    text: str


def names_its_run(event: ev.Event) -> bool:
    """Whether the line of an event says which run it is of."""
    return isinstance(event, ev.RunStarted)


class EventLines:
    """Turns events into lines; an event that says nothing to people gives none.

    A line begins with the seconds since the first event; `numbered`: with the event's number; `clock`: with
    the time of day.
    """

    def __init__(self, *, numbered: bool = False, clock: bool = False) -> None:
        self._numbered = numbered
        self._clock = clock
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
        line = self._line(event)
        if line is None:
            return None
        text = Text()
        text.append(f"{self._head(event):>8}  ", style="dim")
        text.append(f"{line.label:<9} ", style=line.style)
        text.append(printable(line.text))
        return text

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

    def _line(self, event: ev.Event) -> EventLine | None:
        teller = _TELLERS.get(type(event))
        return teller(self, event) if teller else None

    def _started(self, event: ev.RunStarted) -> EventLine:
        return EventLine("run", "bold", f"{event.run_id} under {event.metadata.get('policy') or 'no policy'}")

    def _sent(self, event: ev.MessageSent) -> EventLine:
        return EventLine(event.role, "bold", _content(event.content))

    def _received(self, event: ev.MessageReceived) -> EventLine:
        return EventLine("agent" if event.role == "assistant" else event.role, "bold", _content(event.content))

    def _ran(self, event: ev.ToolCallStarted) -> EventLine:
        return EventLine("allowed", "green", self._calls[event.tool_call_id])

    def _completed(self, event: ev.ToolCallCompleted) -> EventLine:
        return EventLine("  result", "dim", _output(event.tool_output))

    def _failed(self, event: ev.ToolCallFailed) -> EventLine:
        return EventLine("  failed", "yellow", _output(event.error))

    def _refused(self, event: ev.ToolCallDenied) -> EventLine:
        call = self._calls.get(event.tool_call_id, event.tool_name)
        return EventLine("refused", "bold red", f"{call}; the model is told: {event.tell_model or 'nothing'}")

    def _usage(self, event: ev.TokenUsageUpdated) -> EventLine:
        cost = f", ${event.cost_usd:g}" if event.cost_usd else ""
        used = f"{event.input_tokens:,} in, {event.output_tokens:,} out{cost}"
        return EventLine("tokens", "dim", f"{used} so far" if event.scope == "cumulative" else f"+ {used}")

    def _violated(self, event: ev.PolicyViolated) -> EventLine:
        style = "yellow" if event.enforcement == "observed" else "bold red"
        expected = event.details.get("expected")
        why = f"{event.message}; expected {expected}" if expected else event.message
        return EventLine("violation", style, f"{rule_name(event.policy, event.rule)}: {why} ({event.enforcement})")

    def _warned(self, event: ev.BudgetWarned) -> EventLine:
        return EventLine("warning", "yellow", f"{event.limit}: {figure(event.used)} of {figure(event.max)} used")

    def _reserved(self, event: ev.BudgetReserved) -> EventLine:
        left = f"{figure(event.used)} of {figure(event.max)} used"
        if event.granted:
            return EventLine("budget", "dim", f"{event.budget}: {left}, {figure(event.reserved)} reserved")
        return EventLine("budget", "yellow", f"{event.budget}: {left}, nothing can be reserved")

    def _approval_requested(self, event: ev.ToolApprovalRequested) -> EventLine:
        call = _call(event.tool_name, event.tool_input)
        if event.ran:
            return EventLine("approval", "yellow", f"{call} ran without the one it needed: it could not be held")
        if not event.held and event.input_digest:
            return EventLine(
                "approval",
                "yellow",
                f"{call} needs one before a later run: proctor approve {short(event.approval_id)}",
            )
        if not event.held:
            return EventLine("approval", "yellow", f"{event.violation_kind or 'what happened'} would have needed one")
        left = _seconds(event.at, event.expires_at)
        return EventLine(
            "waits", "bold yellow", f"{call} waits {left} for a person: proctor approve {short(event.approval_id)}"
        )

    def _granted(self, event: ev.ToolApprovalGranted) -> EventLine:
        return EventLine(
            "approved", "bold green", f"{event.tool_name} by {event.by or 'unknown'}{_because(event.reason)}"
        )

    def _denied(self, event: ev.ToolApprovalDenied) -> EventLine:
        return EventLine(
            "denied", "bold red", f"{event.tool_name} by {event.by or 'unknown'}{_because(event.reason)}"
        )

    def _expired(self, event: ev.ToolApprovalExpired) -> EventLine:
        why = event.reason or "nobody answered in time"
        return EventLine("expired", "bold yellow", f"{event.tool_name}: {why}")

    def _error(self, event: ev.ErrorEvent) -> EventLine:
        return EventLine("error", "red", f"{event.code}: {event.message}")

    def _recovered(self, event: ev.ErrorEvent) -> EventLine:
        return EventLine("recovered", "green", f"{event.code}: {event.message}")

    def _unknown(self, event: ev.Unrecognized) -> EventLine:
        return EventLine("other", "dim", event.type)

    def _run_completed(self, event: ev.RunCompleted) -> EventLine:
        return EventLine("completed", "bold green", _output(event.output))

    def _run_failed(self, event: ev.RunFailed) -> EventLine:
        error = event.error
        return EventLine(
            "failed", "bold red", str(error.get("message", error)) if isinstance(error, dict) else str(error)
        )

    def _run_cancelled(self, event: ev.RunCancelled) -> EventLine:
        return EventLine("cancelled", "bold red", event.reason + (f" (by {event.by})" if event.by else ""))


_TELLERS: dict[type[ev.Event], Callable[[EventLines, Any], EventLine]] = {
    ev.RunStarted: EventLines._started,
    ev.MessageSent: EventLines._sent,
    ev.MessageReceived: EventLines._received,
    ev.ToolCallStarted: EventLines._ran,
    ev.ToolCallCompleted: EventLines._completed,
    ev.ToolCallFailed: EventLines._failed,
    ev.ToolCallDenied: EventLines._refused,
    ev.TokenUsageUpdated: EventLines._usage,
    ev.PolicyViolated: EventLines._violated,
    ev.BudgetWarned: EventLines._warned,
    ev.BudgetReserved: EventLines._reserved,
    ev.ToolApprovalRequested: EventLines._approval_requested,
    ev.ToolApprovalGranted: EventLines._granted,
    ev.ToolApprovalDenied: EventLines._denied,
    ev.ToolApprovalExpired: EventLines._expired,
    ev.ErrorOccurred: EventLines._error,
    ev.ErrorRecovered: EventLines._recovered,
    ev.RunCompleted: EventLines._run_completed,
    ev.RunFailed: EventLines._run_failed,
    ev.RunCancelled: EventLines._run_cancelled,
    ev.Unrecognized: EventLines._unknown,
}


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


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
