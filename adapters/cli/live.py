"""Events as they come, then how the run ended."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from proctor.policies.events import ToolEvent
from proctor.supervisor.store.codec import event_of
from proctor.supervisor.store.run_index import closing

from ..kit.printable import dollars, printable, printable_json
from .output import console, say_hanging, say_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any

    from proctor.policies import Event, Violation
    from proctor.supervisor import PolicyReport, RunResult
    from proctor.supervisor.ports.store import Store
    from proctor.supervisor.ports.stored_types import RunInfo


_HEAD = 20
"""What a line begins with takes so many columns: when, and what in a word."""


class Live:
    """Shows each event; a publisher for the supervisor. Once nobody reads any more, it shows nothing.

    `named`: what comes of another run than the line before stands below that run's id. `ran`: how many calls of the
    session ran in all, if it is over.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        numbered: bool = False,
        clock: bool = False,
        named: bool = False,
        ran: int | None = None,
    ) -> None:
        from ..operations.timeline import EventLines

        self._as_json = as_json
        self._lines = EventLines(numbered=numbered, clock=clock, ran=ran)
        self._console = console()
        self._named = named
        self._run = ""
        self.unread = False

    def __call__(self, event: Event) -> None:
        if self.unread:
            return
        try:
            self._show(event)
        except OSError:  # the reader, or the terminal, is gone
            self.unread = True  # the run stays supervised all the same

    def shows(self, event: Event) -> bool:
        """Whether an event is among those that are shown."""
        return self._as_json or self._lines.tells(event)

    def _show(self, event: Event) -> None:
        if self._as_json:
            from proctor.policies import encode_event

            sys.stdout.write(printable_json(encode_event(event).decode()) + "\n")
        else:
            line = self._lines.of(event)
            if line is None:
                return
            self._name(event)
            self.print(line)
        sys.stdout.flush()

    def _name(self, event: Event) -> None:
        from ..operations.timeline import names_its_run

        if self._named and event.run_id != self._run and not names_its_run(event):
            self.print(printable(event.run_id) or "of no run", "bold")
        self._run = event.run_id

    def print(self, line: Any = "", style: str | None = None) -> None:
        """One line; on a terminal what is too long goes on below its own beginning."""
        if isinstance(line, str):
            self._console.print(line, style=style)
        else:
            say_hanging(self._console, line, _HEAD)


def summary(result: RunResult, live: Live, *, as_json: bool) -> None:
    """How a run ended: usage, cost, what was violated and how far it was enforced; nothing once nobody reads."""
    try:
        if as_json:
            say_json(_as_data(result))
            return
        live.print()
        for name, value in _fields(result):
            live.print(_field(name, value))
    except BrokenPipeError:
        live.unread = True


def policy_lines(report: PolicyReport) -> Iterator[tuple[str, str]]:
    """What the policies found, a line for each way it was enforced."""
    for enforcement in ("prevented", "interrupted", "observed"):
        counts = Counter(_name(v) for v in report.violations if v.enforcement == enforcement)
        if counts:
            names = (f"{name} x{count}" if count > 1 else name for name, count in counts.items())
            yield enforcement, ", ".join(names)
    for name, words in _NOTES.items():
        found = report.metadata.get(name)
        if found:
            apart = name == "findings"  # each is a sentence
            yield from ((words, text) for text in ([str(item) for item in found] if apart else [_listed(found)]))


_NOTES = {
    "unexpressed": "not a launch option",
    "findings": "preflight",
    "unpriced": "no price",
    "prices": "prices",
    "not_exercised": "not asked",
}
"""Notes in a report's metadata, and the word each is shown under."""


def _listed(found: Any) -> str:
    return ", ".join(str(item) for item in found)


def _name(violation: Violation) -> str:
    from proctor.policies.events.calls import rule_name

    return rule_name(violation.policy, violation.rule)


def _fields(result: RunResult) -> Iterator[tuple[str, str]]:

    usage = result.usage
    yield "run", result.run_id
    yield "session", result.session_id
    yield "ended", f"{result.status}{f': {printable(result.reason)}' if result.reason else ''}"
    cost = f", {dollars(result.cost_usd)}" if result.cost_usd else ""
    yield "usage", f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
    yield "calls", f"{sum(event.type == 'tool_call_started' for event in result.events)} ran"
    for name, value in policy_lines(result.policy):
        yield name, printable(value)


def _field(name: str, value: str) -> Any:
    from rich.text import Text

    return Text.assemble((f"{name:<20}", "dim"), value)


def _as_data(result: RunResult) -> dict[str, Any]:
    import msgspec

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

    async def of_run(self, store: Store, run: RunInfo) -> list[Event]:
        """Of one run, oldest first."""
        async with closing(store.read(run.session_id, run_id=run.run_id, newest_first=True)) as events:
            async for event in events:
                self.cursor = self.cursor or event.seq
                if not self._take(event):
                    break
        return self._found[::-1]

    async def of_all(self, store: Store) -> list[Event]:
        """Of the whole store, in the order in which they were stored."""
        place = await store.place()
        self.cursor = str(place)
        first = True
        async with closing(store.log(newest_first=True)) as entries:
            async for entry in entries:
                if first:
                    self.cursor, first = str(msgspec.structs.replace(place, position=entry.position)), False
                if not self._take(event_of(entry)):
                    break
        return self._found[::-1]

    def _take(self, event: Event) -> bool:
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
    """What is stored after the cursor, as it comes; of a run until its end."""
    from proctor.supervisor.watch.subscriptions import Subscriptions

    async with Subscriptions(store).subscribe(run_id=run.run_id if run else None, after=cursor) as events:
        async for event in events:
            yield event
