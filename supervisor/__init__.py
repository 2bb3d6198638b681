"""One owner for each run of an agent: it judges every event, holds calls at the gate, and cancels once.

A file imports only rows above its own:

    errors          what can go wrong
    ports           where the world comes in: adapters, stores, approvers, publishers
    arguments       what callers pass, checked
    intake          what adapters hand over, checked
    listing         all stored runs, page by page
    records         events as stores keep them
    memory_store    a store in memory
    judge           what a run needs of the policies
    result          how a run ended, for its caller
    inputs          what the machine of a run is told
    commands        what the machine wants done
    verdicts        what follows from a judgement, and its records
    belief          what of a provider's stream is believed
    outbox          commands that wait for the record
    approvals       the records of an approval
    core            what the parts of the machine share
    open_calls      calls that are not over
    holding         calls held for a person
    proposals       the gate's side of the machine
    reports         the provider's side of the machine
    ending          terminal events, and what the caller is owed
    machine         the machine of one run
    clock           the supervisor's own time
    alone           code of others, whose cancels end only itself
    latch           something that happens once
    log             where logs go
    timers          deadlines of many runs
    surroundings    what many runs share
    writer          group commit of a run's record
    ladder          ending a provider step by step
    pump            reading a provider
    waiting         those who wait at the gate
    asking          checks and approvers, asked
    actor           the shell around one machine
    publishing      observers, who cannot hurt a run
    mailbox         messages from other processes
    feed            following events
    inbox           approvals by way of the store
    history         a session's past
    plan            policies made ready for an adapter
    launching       from an order to a run
    slots           room for runs
    roster          the runs that go on
    handle          a run as its caller holds it
    supervisor      many runs
    runs            one run, awaited

The names below are looked up when they are used: a program that only needs the errors or the records of a store
starts without the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .active_runs import Statistics
    from .api import cancel_for_approval, create_run, execute_run, run_once
    from .errors import (
        EventError,
        PolicyError,
        PolicyViolationError,
        ProctorError,
        ProviderError,
        ProviderUnavailableError,
        StoreError,
        UsageError,
    )
    from .handle import RunHandle
    from .machine.result import PolicyReport, RunResult
    from .ports import (
        Adapter,
        ApprovalAnswer,
        ApprovalRequest,
        Approver,
        GateAnswer,
        Launch,
        LaunchOptions,
        Mail,
        Provider,
        Publisher,
        Rung,
        RunInfo,
        SessionInfo,
        Store,
    )
    from .store.memory import MemoryStore
    from .supervisor import Supervisor

_MODULES = {
    "Adapter": "ports",
    "ApprovalAnswer": "ports",
    "ApprovalRequest": "ports",
    "Approver": "ports",
    "EventError": "errors",
    "GateAnswer": "ports",
    "Launch": "ports",
    "LaunchOptions": "ports",
    "Mail": "ports",
    "MemoryStore": "store.memory",
    "PolicyError": "errors",
    "PolicyReport": "machine.result",
    "PolicyViolationError": "errors",
    "ProctorError": "errors",
    "Provider": "ports",
    "ProviderError": "errors",
    "ProviderUnavailableError": "errors",
    "Publisher": "ports",
    "RunHandle": "handle",
    "RunInfo": "ports",
    "RunResult": "machine.result",
    "Rung": "ports",
    "SessionInfo": "ports",
    "Statistics": "active_runs",
    "Store": "ports",
    "StoreError": "errors",
    "Supervisor": "supervisor",
    "UsageError": "errors",
    "cancel_for_approval": "api",
    "create_run": "api",
    "execute_run": "api",
    "run_once": "api",
}

__all__ = [
    "Adapter",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "EventError",
    "GateAnswer",
    "Launch",
    "LaunchOptions",
    "Mail",
    "MemoryStore",
    "PolicyError",
    "PolicyReport",
    "PolicyViolationError",
    "ProctorError",
    "Provider",
    "ProviderError",
    "ProviderUnavailableError",
    "Publisher",
    "RunHandle",
    "RunInfo",
    "RunResult",
    "Rung",
    "SessionInfo",
    "Statistics",
    "Store",
    "StoreError",
    "Supervisor",
    "UsageError",
    "cancel_for_approval",
    "create_run",
    "execute_run",
    "run_once",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
