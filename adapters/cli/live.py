"""Events as they come, then how the run ended."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.policies import Event, Violation
from proctor.policies.events import RunStarted, ToolCallRequested, ToolEvent
from proctor.policies.events.calls import rule_name
from proctor.policies.values.amounts import counted, dollars
from proctor.supervisor.ports.store import EventLog, Store, closing
from proctor.supervisor.ports.stored_types import RunInfo
from proctor.supervisor.store.records import event_of

from ..kit.display_text import escape_control, escape_control_json
from ..operations.timeline import TimelineItems, is_visible
from ..operations.views import TimelineItem
from .options import program_as_typed, store_as_typed
from .output import console, echo_hanging, echo_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from proctor.supervisor import PolicyReport, RunResult


_HEAD = 20
"""The width in columns of the beginning of a line: the time and the kind."""
_STYLES = {"plain": "bold", "soft": "dim", "good": "bold green", "care": "bold yellow", "bad": "bold red"}
"""The style of each tone."""


def is_line(event: Event) -> bool:
    """Whether an event has a line on a terminal: the decision on a call has one, its request has none."""
    return is_visible(event) and not isinstance(event, ToolCallRequested)


class EventLines:
    """Turns events into lines. A line begins with the seconds since the first event; `numbered`: with the event's
    number; `clock`: with the time of day. `ran`: see `TimelineItems`; `store`: as the command line named it.
    """

    def __init__(
        self, *, numbered: bool = False, clock: bool = False, ran: int | None = None, store: str | None = None
    ) -> None:
        self._numbered = numbered
        self._store = store
        self._clock = clock
        self._items = TimelineItems(ran=ran)
        self._began: datetime | None = None

    def of(self, event: Event) -> Text | None:
        """The line of one event, without its end."""
        from rich.text import Text

        item = self._items.of(event)
        if item is None or not is_line(event):
            return None
        label = f"  {item.label}" if item.kind == "result" else item.label
        text = Text()
        text.append(f"{self._head(item):>8}  ", style="dim")
        text.append(f"{label:<9} ", style=_STYLES[item.tone])
        text.append(escape_control(self._text(item)))
        return text

    def _head(self, item: TimelineItem) -> str:
        if self._numbered:
            return str(item.seq)
        at = item.at
        if at is None:
            return ""
        if self._clock:
            return f"{at.astimezone():%H:%M:%S}"
        self._began = self._began or at
        return f"{(at - self._began).total_seconds():.1f}s"

    def _text(self, item: TimelineItem) -> str:
        """The text of an item; for a pending approval, also the command that answers it and the reasons."""
        text = item.text
        if item.event == "tool_approval_requested" and item.approval_id:
            approve = f"{program_as_typed()} approve {_short(item.approval_id)}"
            text = f"{text}: {approve}{store_as_typed(self._store)}"
        return "; ".join((text, *item.why))


def _short(approval_id: str) -> str:
    """A short form of an approval's id: the beginning of the run's id, and the number."""
    run, dot, number = approval_id.rpartition(".")
    return f"{run[:12]}.{number}" if dot else approval_id[:12]


class Live:
    """Shows each event; a publisher for the supervisor. Once nobody reads any more, it shows nothing.

    `named`: what comes of another run than the line before stands below that run's id.
    """

    def __init__(self, lines: EventLines, *, as_json: bool, named: bool = False) -> None:
        self._lines = lines
        self._as_json = as_json
        self._named = named
        self._run = ""
        self.unread = False
        self._failed: OSError | None = None

    @cached_property
    def _console(self) -> Console:
        """JSON needs none of it."""
        return console()

    def __call__(self, event: Event) -> None:
        if self.unread:
            return
        try:
            self._show(event)
        except OSError as error:  # the reader, the terminal or the space is gone
            self.unread = True  # the run stays supervised all the same
            self._failed = None if isinstance(error, BrokenPipeError) else error

    def check(self) -> None:
        """Raise the error that kept an event from being shown, unless the reader is gone."""
        if self._failed is not None:
            raise self._failed

    def shows(self, event: Event) -> bool:
        """Whether an event is among those that are shown."""
        return self._as_json or is_line(event)

    def _show(self, event: Event) -> None:
        if self._as_json:
            from proctor.policies import encode_event

            sys.stdout.write(escape_control_json(encode_event(event).decode()) + "\n")
        else:
            line = self._lines.of(event)
            if line is None:
                return
            self._name(event)
            self.print(line)
        sys.stdout.flush()

    def _name(self, event: Event) -> None:
        if self._named and event.run_id != self._run and not isinstance(event, RunStarted):
            self.print(escape_control(event.run_id) or "of no run", "bold")
        self._run = event.run_id

    def print(self, line: Any = "", style: str | None = None) -> None:
        """One line; on a terminal, the rest of a long one is indented below its beginning."""
        if isinstance(line, str):
            self._console.print(line, style=style)
        else:
            echo_hanging(self._console, line, _HEAD)


def summary(result: RunResult, live: Live, *, as_json: bool) -> None:
    """Print how a run ended: usage, cost, violations and their enforcement; nothing once nobody reads."""
    try:
        if as_json:
            echo_json(_as_data(result))
            return
        live.print()
        for name, value in _fields(result):
            live.print(_field(name, value))
    except BrokenPipeError:
        live.unread = True


def policy_lines(report: PolicyReport) -> Iterator[tuple[str, str]]:
    """The violations, a line for each enforcement."""
    for enforcement in ("prevented", "interrupted", "observed"):
        counts = Counter(_name(v) for v in report.violations if v.enforcement == enforcement)
        if counts:
            names = (f"{name} x{count}" if count > 1 else name for name, count in counts.items())
            yield enforcement, ", ".join(names)
    for name, words in _NOTES.items():
        found = report.metadata.get(name)
        if found:
            texts = [str(item) for item in found]
            yield from ((words, text) for text in (texts if name == "findings" else [", ".join(texts)]))


_NOTES = {
    "unexpressed": "checked by proctor",
    "findings": "preflight",
    "unpriced": "no price",
    "prices": "prices",
    "not_exercised": "not exercised",
}
"""Notes in a report's metadata, and the word each is shown under."""


def _name(violation: Violation) -> str:
    return rule_name(violation.policy, violation.rule)


def _fields(result: RunResult) -> Iterator[tuple[str, str]]:
    usage = result.usage
    yield "run", result.run_id
    yield "session", result.session_id
    yield "ended", f"{result.status}{f': {escape_control(result.reason)}' if result.reason else ''}"
    cost = f", {dollars(result.cost_usd)}" if result.cost_usd else ""
    apart = f", {usage.subagent_tokens:,} of them by subagents" if usage.subagent_tokens else ""
    yield "usage", f"{counted(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out{apart}{cost}"
    yield "calls", f"{sum(event.type == 'tool_call_started' for event in result.events)} ran"
    for name, value in policy_lines(result.policy):
        yield name, escape_control(value)


def _field(name: str, value: str) -> Any:
    from rich.text import Text

    return Text.assemble((f"{name:<20}", "dim"), value)


def _as_data(result: RunResult) -> dict[str, Any]:
    data = {name: getattr(result, name) for name in ("run_id", "session_id", "status", "reason", "output", "usage")}
    report: dict[str, Any] = msgspec.to_builtins(result.policy, enc_hook=str)
    return {"type": "run_result", **data, "cost_usd": result.cost_usd, "policy": report}


class Latest:
    """Events that make `lines` lines, and calls that they may be about; `cursor` is the place after the last."""

    def __init__(self, lines: int, shows: Callable[[Event], bool]) -> None:
        self.cursor: int | str = 0
        self._left = lines
        self._shows = shows
        self._found: list[Event] = []

    async def of_run(self, store: EventLog, run: RunInfo) -> list[Event]:
        """Of one run, oldest first."""
        async with closing(store.read(run.session_id, run_id=run.run_id, newest_first=True)) as events:
            async for event in events:
                self.cursor = self.cursor or event.seq
                if not self._add(event):
                    break
        return self._found[::-1]

    async def of_all(self, store: EventLog) -> list[Event]:
        """Of the whole store, in the order in which they were stored."""
        place = await store.place()
        self.cursor = str(place)
        first = True
        async with closing(store.log(newest_first=True)) as entries:
            async for entry in entries:
                if first:
                    self.cursor, first = str(msgspec.structs.replace(place, position=entry.position)), False
                if not self._add(event_of(entry)):
                    break
        return self._found[::-1]

    def _add(self, event: Event) -> bool:
        """Take an event, the next one before; whether one more is wanted."""
        shown = self._shows(event)
        if shown:
            self._left -= 1
        if self._left < 0:
            return False
        if shown or isinstance(event, ToolEvent):
            self._found.append(event)
        return True


async def following(store: Store, run: RunInfo | None, cursor: int | str) -> AsyncIterator[Event]:
    """The events stored after the cursor, as they come; of a run until its end."""
    from proctor.supervisor.watch.subscriptions import Subscriptions

    async with Subscriptions(store).subscribe(run_id=run.run_id if run else None, after=cursor) as events:
        async for event in events:
            yield event
