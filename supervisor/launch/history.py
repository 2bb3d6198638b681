"""What a session was before this run: folded into the judge, and handed to a provider that cannot resume."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from proctor.policies.stream.events import (
    ApprovalEvent,
    Event,
    SessionCreated,
    SessionEvent,
    ToolApprovalGranted,
    ToolEvent,
    TurnEvent,
)

from ..errors import UsageError
from ..machine.approval_events import standing_grants
from ..machine.judge import Judge
from ..ports import Store

Continuation: TypeAlias = Literal["auto", "native", "replay", "none"]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A session's past: `turns` model responses, and the session id the provider itself gave, by provider. `created`
    says that a run of it began.
    """

    events: tuple[Event, ...] = ()
    created: bool = False
    turns: int = 0
    provider_sessions: dict[str, str] = {}
    grants: tuple[ToolApprovalGranted, ...] = ()


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """How a run takes up its session's past."""

    resume: str | None = None
    transcript: tuple[Event, ...] = ()


async def read_history(store: Store, session_id: str, judge: Judge) -> History:
    """Read a session and fold it into the judge: the state is then as if it had watched all along."""
    events: list[Event] = []
    turns = 0
    provider_sessions: dict[str, str] = {}
    async for event in store.read(session_id):
        judge.observe(event)
        events.append(event)
        if isinstance(event, (TurnEvent, ToolEvent)):
            turns = max(turns, event.turn)
        elif isinstance(event, SessionEvent) and event.provider_session_id:
            provider_sessions[event.provider] = event.provider_session_id
    judge.warnings()  # those were handed over by the runs that came near their limits
    approvals = (event for event in events if isinstance(event, ApprovalEvent))
    return History(
        events=tuple(events),
        created=any(isinstance(event, SessionCreated) for event in events),
        turns=turns,
        provider_sessions=provider_sessions,
        grants=tuple(standing_grants(approvals)),
    )


def check_continuation(continuation: str, *, can_resume: bool, provider: str) -> None:
    """Raises UsageError for a continuation that does not exist or that this provider does not have."""
    if continuation not in get_args(Continuation):
        names = ", ".join(f"`{name}`" for name in get_args(Continuation))
        raise UsageError(f"continuation `{continuation}` is none of {names}")
    if continuation == "native" and not can_resume:
        raise UsageError(f"`{provider}` cannot resume a session; say continuation=`replay`")


def continued(history: History, continuation: Continuation, *, can_resume: bool, provider: str) -> Continued:
    """Choose: the provider's own resume where it has the session, else the transcript.

    Raises UsageError when only the provider's own will do and it does not have this session.
    """
    own = history.provider_sessions.get(provider)
    if continuation == "none" or not history.events:
        if continuation == "native":
            raise UsageError(f"there is no session of `{provider}` to resume")
        return Continued()
    if continuation == "native" and own is None:
        raise UsageError(f"`{provider}` does not know this session; say continuation=`replay`")
    if own is not None and can_resume and continuation != "replay":
        return Continued(resume=own)
    return Continued(transcript=history.events)
