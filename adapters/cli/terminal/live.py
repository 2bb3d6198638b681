"""Events as they come, then how the run ended."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..moments import dollars
from .output import console, say_hanging, say_json

if TYPE_CHECKING:
    from proctor.policies import Event, Violation
    from proctor.supervisor import PolicyReport, RunResult


_HEAD = 20
"""What a line begins with takes so many columns: when, and what in a word."""


class Live:
    """Shows each event; a publisher for the supervisor. Once nobody reads any more, it shows nothing.

    `named`: what comes of another run than the line before stands below that run's id.
    """

    def __init__(self, *, as_json: bool, numbered: bool = False, clock: bool = False, named: bool = False) -> None:
        from .events import EventLines

        self._as_json = as_json
        self._lines = EventLines(numbered=numbered, clock=clock)
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
            from proctor.adapters.kit.values.printable import printable_json
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
        from proctor.adapters.kit.values.printable import printable

        from .events import names_its_run

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
    from proctor.policies.stream.calls import rule_name

    return rule_name(violation.policy, violation.rule)


def _fields(result: RunResult) -> Iterator[tuple[str, str]]:
    from proctor.adapters.kit.values.printable import printable

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
