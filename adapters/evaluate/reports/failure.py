"""One failed rule on a terminal: what was expected, what happened, the calls around it, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from proctor.adapters.kit.values.printable import printable
from proctor.adapters.traces import TraceSession

from ..calls import CallLine, call_lines
from ..results import FailOn, SessionReport, ViolationRecord, fails
from ..whose import in_words, whose
from .advice import actual, expected, is_limit, suggestion

_BEFORE, _AFTER = 3, 1
"""How many calls are shown around an offending one."""


def failure_reports(
    session: TraceSession, report: SessionReport, *, calls_shown: int = 12, fail_on: FailOn = "deny"
) -> Iterator[Text]:
    """A text for each rule the session broke, in the order it broke them; `WARNED` where that is no failure.

    At most `calls_shown` lines of the trace are shown, those around the offending calls.
    """
    lines = call_lines(session.events)
    by_rule: dict[tuple[str, str], list[ViolationRecord]] = {}
    for violation in report.violations:
        by_rule.setdefault((violation.policy, violation.rule), []).append(violation)
    for violations in by_rule.values():
        failed = fails((violation.action for violation in violations), fail_on)
        yield _report(session, violations, lines, calls_shown, failed=failed)


def _report(
    session: TraceSession, violations: list[ViolationRecord], lines: list[CallLine], shown: int, *, failed: bool
) -> Text:
    first = violations[0]
    text = Text()
    text.append(*(("FAILED", "bold red") if failed else ("WARNED", "bold yellow")))
    text.append(f" {printable(first.rule)} ({first.kind})\n", "bold")
    append_field(text, "session", session.id)
    if of := in_words(whose(session)):
        append_field(text, "whose", of)
    append_field(text, "policy", f"{first.policy}, action {first.action}")
    append_field(text, "expected", expected(first))
    append_field(text, "actual", actual(first))
    position = next((line.position for line in lines if line.id == first.tool_call_id), None)
    if position is not None:
        append_field(text, "at", f"call {position} of {len(lines)}")
    if len(violations) > 1:
        append_field(text, "violations", f"{len(violations)}; the first is described here")
    text.append("\n")
    _trace(text, lines, violations, shown)
    text.append("\n")
    append_field(text, "suggestion", suggestion(first))
    return text


def append_field(text: Text, name: str, value: str) -> None:
    """A named line of a failure."""
    text.append(f"  {name + ':':<12}", "dim")
    text.append(f"{printable(value)}\n")


def _trace(text: Text, lines: list[CallLine], violations: list[ViolationRecord], shown: int) -> None:
    text.append("  trace:\n" if lines else "  trace: no calls\n", "dim")
    offending = {violation.tool_call_id for violation in violations if violation.tool_call_id is not None}
    last = 0
    for line in _around(lines, offending, violations[0], shown):
        append_gap(text, line.position - last - 1)
        last = line.position
        append_call(text, line, mark="violation" if line.id in offending else "")
    if not offending:
        text.append(f"  > {_moment(violations[0])}", "bold red")
        text.append("  <-- violation\n", "red")
    append_gap(text, len(lines) - last)


def _around(lines: list[CallLine], offending: set[str], first: ViolationRecord, shown: int) -> list[CallLine]:
    """The offending calls with their neighbours or, where no call is to blame, the calls before."""
    marks = [index for index, line in enumerate(lines) if line.id in offending]
    if not marks:
        return [line for line in lines if line.seq <= first.seq][-shown:]
    wanted = {index for mark in marks for index in range(mark - _BEFORE, mark + _AFTER + 1)}
    chosen = [line for index, line in enumerate(lines) if index in wanted]
    return chosen[:shown]


def _moment(violation: ViolationRecord) -> str:
    return f"what event {violation.seq} reports" if is_limit(violation) else "the session ended here"


def append_call(text: Text, line: CallLine, *, mark: str = "") -> None:
    """A call of a trace with its position; what is marked stands out, with the mark behind it."""
    fate = f" [{line.fate}]" if line.fate else ""
    head, style, tail = (">", "bold red", f"  <-- {mark}\n") if mark else (" ", "", "\n")
    text.append(f"  {head} {line.position:>4}. {line.text}{fate}", style)
    text.append(tail, "red")


def append_gap(text: Text, calls: int) -> None:
    """How many calls of a trace are left out here, if any."""
    if calls > 0:
        text.append(f"         ... {calls} more call{'s' if calls > 1 else ''}\n", "dim")
