"""A session's earlier runs: replayed into the monitor, and into an agent that cannot resume."""

import threading
from collections import deque
from functools import lru_cache
from typing import Any, Final, get_args

import msgspec

from proctor.policies import parse_policies
from proctor.policies.events import Event, RecordPruned
from proctor.policies.events.run_context import WHOSE
from proctor.policies.monitor.monitor import Monitor
from proctor.policies.policy import Policy

from ..arguments import Continuation
from ..errors import UsageError
from ..machine.event_factory import PriorSession
from ..machine.run_state import estimated_size
from ..ports.adapter import Approver
from ..ports.store import EventLog, Store, closing
from ..ports.stored_types import RunInfo
from ..run.provider_session import parent
from ..store.memory_store import MemoryStore
from .plan import written

TRANSCRIPT_BYTES = 64 * 1024 * 1024
"""How many bytes of a conversation are replayed, its latest part; more than any model reads."""


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """How a run continues its session: by `resume`, the provider's own id, or by `replay` of the conversation.

    With both, the replay is for a client that does not have the session.
    """

    resume: str | None = None
    replay: bool = False

    @property
    def mode(self) -> str | None:
        """The name of this in the record."""
        return "native" if self.resume else "replay" if self.replay else None


async def read_history(store: EventLog, session_id: str, monitor: Monitor) -> PriorSession:
    """Read a session's events into the monitor. Raises UsageError for a session whose record was pruned."""
    past = PriorSession()
    async with closing(store.read(session_id)) as events:
        async for event in events:
            monitor.observe(event)
            past.apply(event)
            if isinstance(event, RecordPruned):
                raise UsageError(
                    f"the record of session `{session_id}` was pruned, and its limits and rules count it; "
                    "start a new session"
                )
    monitor.warnings()  # the runs that came near their limits have reported those
    return past


async def read_transcript(store: EventLog, session_id: str, last_seq: int) -> tuple[Event, ...]:
    """The events of a session up to that `seq`, as many of the latest as `TRANSCRIPT_BYTES` hold."""
    recent: deque[Event] = deque()
    size = 0
    async with closing(store.read(session_id)) as events:
        async for event in events:
            if event.seq > last_seq:
                break
            recent.append(event)
            size += estimated_size(event)
            while size > TRANSCRIPT_BYTES:
                size -= estimated_size(recent.popleft())
    return tuple(recent)


def check_continuation(continuation: str, *, can_resume: bool, provider: str) -> None:
    """Raises UsageError for a continuation that does not exist or that this agent does not support."""
    if continuation not in get_args(Continuation):
        names = ", ".join(f"`{name}`" for name in get_args(Continuation))
        raise UsageError(f"continuation `{continuation}` is not one of {names}")
    if continuation == "native" and not can_resume:
        raise UsageError(f"`{provider}` cannot resume a session; use the continuation `replay`")


def continued(past: PriorSession, continuation: Continuation, *, can_resume: bool, provider: str) -> Continued:
    """Choose the provider's own resume, if the record has its id of the session, else the transcript.

    Raises UsageError if `continuation` demands the provider's own and the record has no id.
    """
    own = past.provider_sessions.get(provider)
    if continuation == "none" or not past.last_seq:
        if continuation == "native":
            raise UsageError(f"there is no session of `{provider}` to resume")
        return Continued()
    if continuation == "native" and own is None:
        raise UsageError(f"`{provider}` does not know this session; use the continuation `replay`")
    if own is not None and can_resume and continuation != "replay":
        return Continued(resume=own, replay=continuation == "auto")
    return Continued(replay=True)


FIELD: Final = "parent"
"""The field of a child run's spec: the run that started it (`run_id`), and the budgets it passed on (`policies`)."""


async def as_child_run(info: RunInfo, store: Store) -> RunInfo:
    """The record of a new run: a child run's, if the agent of another run creates it. Raises UsageError: its parent's
    budgets are in another store, where nobody could count what it uses; StoreError: that cannot be looked up.
    """
    above = parent()
    policies = () if above is None else above.compiled.budgets.passed_on(above.compiled.policy, above.context)
    if above is None or not policies:
        return info
    its = above.services.store
    if store is not its and (await store.place()).store_id != (await its.place()).store_id:
        raise UsageError(
            f"run `{above.run_id}`, which starts this one, has budgets in another store; give this one its store"
        )
    context = msgspec.to_builtins(above.context)
    whose = {name: context[name] for name in WHOSE if name in context}
    line = {"run_id": above.run_id, "policies": written(policies)}
    return msgspec.structs.replace(info, spec={"context": whose, **info.spec, FIELD: line})


def store_and_approver(store: Store | None, approver: Approver | None) -> tuple[Store, Approver | None, bool]:
    """What a run is started with, and whether anybody can answer its held calls: without a store, that of its parent
    and, without an approver, its approver. Raises UsageError if the parent belongs to another thread.
    """
    if store is not None:
        return store, approver, True
    above = parent()
    if above is None:
        return MemoryStore(), approver, approver is not None
    if above.thread != threading.get_ident():
        raise UsageError(f"run `{above.run_id}`, which starts this one, has budgets; give this one its store")
    its = above.services
    approver = its.approver if approver is None else approver
    return its.store, approver, approver is not None or its.answerable


def inherited(info: RunInfo) -> tuple[Policy, ...]:
    """The budgets that a run's parent passed on, as policies; equal ones are the same objects."""
    line: dict[str, Any] | None = info.spec.get(FIELD)
    return _read(msgspec.json.encode(line["policies"])) if line else ()


@lru_cache(maxsize=64)
def _read(policies: bytes) -> tuple[Policy, ...]:
    return tuple(parse_policies({"policies": msgspec.json.decode(policies)}))
