"""Two policies over the same sessions: which sessions and calls are judged differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.adapters.traces import TraceSession
from proctor.policies.monitor.compiled import CompiledPolicy
from proctor.policies.stream.calls import STRICTNESS, RunContext

from .calls import CallLine, call_lines
from .judge import judge_session
from .results import SessionReport
from .whose import whose

Change: TypeAlias = Literal["newly_refused", "newly_allowed", "other_action", "other_rules"]

_REFUSING = ("request_approval", "deny", "cancel")


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy says of one call: the strictest action, and the rules it breaks."""

    action: str = "allow"
    rules: tuple[str, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether the call would not simply have run."""
        return self.action in _REFUSING


class CallChange(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the two policies judge otherwise.

    Attributes:
        change: `newly_refused`, `newly_allowed`, `other_action` or `other_rules`.
        tool_call_id: The call; null is the session as a whole.
        tool_name: Its tool.
        call: The call in words.
        old: What the old policy answers: the `action`, and the `rules` that are broken.
        new: What the new policy answers.
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
        old_passed: Whether nothing was violated under the old policy.
        new_passed: Whether nothing is violated under the new one.
        calls: The calls that are judged differently.
        whose: The user, role, tenant and labels that it ran for, where they are recorded.
    """

    session: str
    source: str
    old_passed: bool
    new_passed: bool
    calls: tuple[CallChange, ...]
    whose: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    @property
    def differs(self) -> bool:
        """Whether anything is judged differently."""
        return bool(self.calls) or self.old_passed != self.new_passed


def compare_sessions(
    old: CompiledPolicy,
    new: CompiledPolicy,
    sessions: Iterable[TraceSession],
    context: RunContext | None = None,
) -> Iterator[SessionChange]:
    """Judge each session under both policies; sessions judged alike come too, without calls."""
    for session in sessions:
        before = judge_session(old, session, context)
        after = judge_session(new, session, context)
        yield SessionChange(
            session=session.id,
            source=session.source,
            old_passed=before.passed,
            new_passed=after.passed,
            calls=tuple(_changes(session, before, after)),
            whose=whose(session),
        )


def _changes(session: TraceSession, before: SessionReport, after: SessionReport) -> Iterator[CallChange]:
    old, new = _answers(before), _answers(after)
    if old == new:
        return
    lines: dict[str | None, CallLine] = {line.id: line for line in call_lines(session.events)}
    for call_id in [*lines, None]:
        was, is_now = old.get(call_id, DiffAnswer()), new.get(call_id, DiffAnswer())
        if was != is_now:
            line = lines.get(call_id)
            yield CallChange(
                change=_change(was, is_now),
                tool_call_id=call_id,
                tool_name=line.name if line else None,
                call=line.text if line else "the session as a whole",
                old=was,
                new=is_now,
            )


def _answers(report: SessionReport) -> dict[str | None, DiffAnswer]:
    """What a policy says by call; what is about no call is about the session as a whole."""
    answers: dict[str | None, DiffAnswer] = {}
    for violation in report.violations:
        earlier = answers.get(violation.tool_call_id, DiffAnswer())
        stricter = max(earlier.action, violation.action, key=lambda action: STRICTNESS[action])
        rules = tuple(sorted({*earlier.rules, violation.rule}))
        answers[violation.tool_call_id] = DiffAnswer(action=stricter, rules=rules)
    return answers


def _change(old: DiffAnswer, new: DiffAnswer) -> Change:
    if old.refuses != new.refuses:
        return "newly_refused" if new.refuses else "newly_allowed"
    return "other_action" if old.action != new.action else "other_rules"
