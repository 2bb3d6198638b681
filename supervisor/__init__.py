"""One owner for each run of an agent: it judges every event, holds calls at the gate, and cancels once.

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


ROOMS = (
    "testing",  # what tests and authors of adapters and stores use
    "api",  # one run, awaited
    "supervisor",  # many runs
    "handle",  # a run as its caller holds it
    "active_runs",  # the runs that go on
    "control",  # what people and other processes ask of runs
    "watch",  # those who look on
    "launch",  # from a request to a run that has started
    "run",  # the shell around one machine
    "machine",  # the machine of one run
    "store",  # how records are kept
    "admission",  # room for runs
    "arguments",  # what callers pass, checked
    "log",  # where logs go
    "ports",  # where the world comes in: adapters, stores, approvers, publishers
    "errors",  # what can go wrong
)
"""Top first: each imports only those below it."""
