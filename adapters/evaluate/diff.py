"""Two policies over the same sessions: which sessions and calls they decide differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from proctor.policies.events.calls import STRICTNESS
from proctor.policies.events.run_context import RunContext
from proctor.policies.monitor.compiled_policy import CompiledPolicy

from ..kit.display_text import escape_control
from .judge import CallLine, SessionReport, by_call, call_lines, fails, in_words, judge_session, whose

if TYPE_CHECKING:
    from ..traces import TraceSession


Change: TypeAlias = Literal["newly_refused", "newly_allowed", "other_action", "other_rules"]
_REFUSING = ("request_approval", "deny", "cancel")


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's answer to one call: the strictest action, and the rules it breaks."""

    action: str = "allow"
    rules: tuple[str, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether the call would not simply have run."""
        return self.action in _REFUSING


class CallChange(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the two policies decide differently.

    Attributes:
        change: `newly_refused`, `newly_allowed`, `other_action` or `other_rules`.
        tool_call_id: The call; null for the session as a whole.
        tool_name: Its tool.
        call: The call in words.
        old: The old policy's decision: `action`, and the violated `rules`.
        new: The new policy's decision.
    """

    change: Change
    tool_call_id: str | None
    tool_name: str | None
    call: str
    old: DiffAnswer
    new: DiffAnswer


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the old and the new policy see it.

    Attributes:
        session: The session's id.
        source: The file it is from.
        old_passed: Whether the session passed under the old policy, as in `eval`: nothing was denied or cancelled.
        new_passed: Whether it passes under the new policy.
        calls: The calls that are decided differently.
        whose: The user, role, tenant and labels, if recorded.
    """

    session: str
    source: str
    old_passed: bool
    new_passed: bool
    calls: tuple[CallChange, ...]
    whose: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    @property
    def differs(self) -> bool:
        """Whether anything is decided differently."""
        return bool(self.calls) or self.old_passed != self.new_passed


def compare_sessions(
    old: CompiledPolicy, new: CompiledPolicy, sessions: Iterable[TraceSession], context: RunContext | None = None
) -> Iterator[SessionChange]:
    """Evaluate each session under both policies; sessions decided alike come too, without calls."""
    for session in sessions:
        before = judge_session(old, session, context)
        after = judge_session(new, session, context)
        yield SessionChange(
            session=session.id,
            source=session.source,
            old_passed=not fails(found.action for found in before.violations),
            new_passed=not fails(found.action for found in after.violations),
            calls=tuple(_changes(session, before, after)),
            whose=whose(session),
        )


def _changes(session: TraceSession, before: SessionReport, after: SessionReport) -> Iterator[CallChange]:
    if before.violations == after.violations:
        return
    lines = call_lines(session.events)
    old, new = _answers(before, lines), _answers(after, lines)
    for line in [*lines, None]:
        position = line.position if line else 0
        was, is_now = old.get(position, DiffAnswer()), new.get(position, DiffAnswer())
        if was != is_now:
            yield CallChange(
                change=_change(was, is_now),
                tool_call_id=line.id if line else None,
                tool_name=line.name if line else None,
                call=line.text if line else "the session as a whole",
                old=was,
                new=is_now,
            )


def _answers(report: SessionReport, lines: Sequence[CallLine]) -> dict[int, DiffAnswer]:
    """A policy's answers by the positions of calls; 0 is the session as a whole."""
    return {
        position: DiffAnswer(
            action=max((each.action for each in violations), key=STRICTNESS.__getitem__),
            rules=tuple(sorted({each.rule for each in violations})),
        )
        for position, violations in by_call(report.violations, lines).items()
    }


def _change(old: DiffAnswer, new: DiffAnswer) -> Change:
    if old.refuses != new.refuses:
        return "newly_refused" if new.refuses else "newly_allowed"
    return "other_action" if old.action != new.action else "other_rules"


LABELS = {
    "newly_refused": ("newly refused", "red"),
    "newly_allowed": ("newly allowed", "green"),
    "other_action": ("another action", "yellow"),
    "other_rules": ("other rules", ""),
}
"""By a change: its name, and its colour."""


class DiffSummary:
    """Sums up changes as they come; `changed` keeps at most `keep` sessions that are decided differently."""

    def __init__(self, keep: int = 1000) -> None:
        self.sessions = 0
        self.differing = 0
        self.now_failing = 0
        self.now_passing = 0
        self.calls: Counter[str] = Counter()
        self.changed: list[SessionChange] = []
        self._keep = keep

    def add(self, change: SessionChange) -> None:
        self.sessions += 1
        self.differing += change.differs
        self.now_failing += change.old_passed and not change.new_passed
        self.now_passing += change.new_passed and not change.old_passed
        self.calls.update(call.change for call in change.calls)
        if change.differs and len(self.changed) < self._keep:
            self.changed.append(change)


_SHOWN = 40
"""How many calls are shown at most."""


def diff_table(summary: DiffSummary) -> RenderableType:
    """The calls decided differently, and the sums."""
    return Group(*_parts(summary))


def _parts(summary: DiffSummary) -> Iterator[RenderableType]:
    if summary.calls:
        yield from _calls(summary)
        more = summary.calls.total() - _SHOWN
        if more > 0:
            yield Text(f"... and {more} more")
        yield Text()
    for change, (label, style) in LABELS.items():
        if summary.calls[change]:
            yield Text(f"{label}: {summary.calls[change]:,}", style)
    yield Text(
        f"sessions: {summary.sessions:,}, decided differently {summary.differing:,}, "
        f"now failing {summary.now_failing:,}, now passing {summary.now_passing:,}",
        "bold",
    )


def _calls(summary: DiffSummary) -> Iterator[Text]:
    """Each session with its calls below: no id is broken, however narrow the terminal."""
    left = _SHOWN
    for change in summary.changed:
        if left <= 0:
            return
        yield Text(f"{escape_control(change.session)}  {escape_control(in_words(change.whose))}".rstrip(), "bold")
        for call in change.calls[:left]:
            label, style = LABELS[call.change]
            yield Text.assemble("  ", (f"{label:<14}", style), f"  {call.call}")
            yield Text(f"    was {answer_words(call.old)}; would be {answer_words(call.new)}")
        left -= len(change.calls)


def answer_words(answer: DiffAnswer) -> str:
    """An answer in words, with the rules that are broken."""
    rules = ", ".join(escape_control(rule) for rule in answer.rules)
    return f"{answer.action}: {rules}" if rules else answer.action
