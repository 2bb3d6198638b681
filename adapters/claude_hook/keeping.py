"""What one hook adds to its session's record, and the runs that begin and end with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.policy import Policy, members_of
from proctor.policies.stream.calls import Violation
from proctor.policies.stream.events import (
    Event,
    MessageSent,
    RunCancelled,
    RunCompleted,
    RunStarted,
    SessionCreated,
    SessionResumed,
    at_ms,
)
from proctor.supervisor.machine.enforcement import labelled, reach, violated

from ..kit.uncountable_limits import USAGE
from .asked import CAN_STOP, GATING, Asked
from .record import Record
from .session import Session
from .usage import UsageLog

PROVIDER = "claude"
USAGE_NOTE = "usage"
STOPPING = ("cancel", "escalate")


class Keeping:
    """One hook of one session, as its record sees it.

    Args:
        asked: what the client said.
        session: the session so far.
        record: where what follows is written.
        at: now.
        policy: what it is judged by.
    """

    def __init__(self, asked: Asked, session: Session, record: Record, at: datetime, policy: Policy) -> None:
        self._asked = asked
        self._session = session
        self._record = record
        self._at = at
        self._policy = policy
        self._violations: list[Violation] = []

    def _go_on(self) -> None:
        """A run goes on, or begins: with a prompt that was not seen, or after the response to one."""
        session = self._session
        if session.ended is not None or not session.runs:
            self._begin_run()
            self._count_usage()

    def _begin_run(self) -> None:
        asked, session = self._asked, self._session
        number = session.runs + 1
        run_id = f"{asked.session_id}-{number}"
        first = not session.runs
        self._record.begin_run(run_id, PROVIDER, self._at)
        session.run_id = run_id
        told: dict[str, Any] = {"prompt_id": asked.prompt_id, "cwd": asked.cwd, "policy": self._policy.name}
        told["context"] = msgspec.to_builtins(session.monitor.context)
        born = SessionCreated if first else SessionResumed
        self._add(born(provider_session_id=asked.session_id))
        self._add(RunStarted(metadata=told))
        if asked.hook_event_name == "UserPromptSubmit":
            self._add(MessageSent(content=asked.prompt))

    def _end_run(self, terminal: Event) -> None:
        session = self._session
        if session.ended is not None or not session.runs:
            return
        if isinstance(terminal, RunCompleted):
            seen = {(v.policy, v.rule) for v in self._violations}
            stamped = self._stamped(terminal)
            session.monitor.observe(stamped)
            owed = [v for v in session.monitor.finish().violations if v.tool_call_id is None]
            for violation in owed:
                if (violation.policy, violation.rule) not in seen:
                    self._note(labelled(violation, "observed"))
        self._write(terminal)
        session.ended = type(terminal)

    def _cancel(self, cause: Violation) -> None:
        self._write(RunCancelled(reason=f"policy `{cause.policy}`: {cause.message or cause.kind}"))
        self._session.ended = RunCancelled

    def _pass_time(self) -> None:
        """Limits on time are noticed when something happens: a hook is no clock."""
        self._note_all(self._session.monitor.tick(at_ms(self._at)))

    def _count_usage(self) -> None:
        """Take in what the client's log says was used, while a run goes on.

        Raises EventError for a call that a limit on usage is to judge, when the log cannot be read.
        """
        session = self._session
        if session.ended is not None or not session.runs:
            return
        state = self._record.note(USAGE_NOTE)
        log = UsageLog(self._asked.transcript_path, state, session.run_at or self._at)
        try:
            news = log.news(may_be_missing=not session.open and not session.over)
        except EventError:
            if self._asked.hook_event_name == GATING and self._limits() & USAGE:
                raise
            return
        for event in news:
            self._add(event)
        if log.state != state:
            self._record.keep(USAGE_NOTE, log.state)

    def _limits(self) -> set[str]:
        return {name for member in members_of(self._policy) for name, _ in member.limits.given()}

    def _add(self, event: Event) -> None:
        """Record an event and judge it as something that happened."""
        stamped = self._stamped(event)
        self._record.append([stamped])
        self._note_all(self._session.take(stamped))

    def _note_all(self, found: Iterable[Violation]) -> None:
        """Note what something that happened violates; a hook that can end the response does so for a cancel."""
        for violation in found:
            ends = self._asked.hook_event_name in CAN_STOP and reach(violation, gates_all=True) in STOPPING
            self._note(labelled(violation, "interrupted" if ends else "observed"))

    def _note(self, violation: Violation) -> None:
        self._violations.append(violation)
        self._write(violated(violation))

    def _write(self, event: Event) -> None:
        """Record an event that follows from a judgement."""
        self._record.append([self._stamped(event)])

    def _stamped(self, event: Event) -> Event:
        return msgspec.structs.replace(
            event,
            run_id=self._session.run_id,
            session_id=self._asked.session_id,
            provider=PROVIDER,
            at=self._at,
        )
