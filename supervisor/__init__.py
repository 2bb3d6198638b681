"""One owner for each run of an agent: it judges every event, holds calls at the gate, and cancels once.

The names below are looked up when they are used: a program that only needs the errors or the records of a store
starts without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazily import lazily

if TYPE_CHECKING:
    from .api.active_runs import Statistics
    from .api.handle import RunHandle
    from .api.once import cancel_for_approval, create_run, execute_run, run_once
    from .api.supervisor import Supervisor
    from .api.sync import run_once_sync
    from .control.approvals import answer, pending
    from .control.kill_switch import KillOutcome, KillSwitch
    from .control.reaping import withdraw_created
    from .errors import (
        ApprovalError,
        EventError,
        PolicyError,
        PolicyViolationError,
        ProctorError,
        ProviderError,
        ProviderUnavailableError,
        StartsBlockedError,
        StoreError,
        UnknownSessionError,
        UsageError,
    )
    from .machine.boundary.result import PolicyReport, RunResult
    from .ports.adapters import Adapter, Approver, GateAnswer, Launch, LaunchOptions, Provider, Publisher, Rung, Store
    from .ports.facts import (
        ApprovalAnswer,
        ApprovalRequest,
        Owner,
        RunFilter,
        RunInfo,
        SessionInfo,
        StoredApproval,
        StoreSize,
    )
    from .ports.orders import AnswerGiven, Block, Cancel, Instruction
    from .redaction import Redaction
    from .store.memory.store import MemoryStore
    from .store.paging import all_runs
    from .store.retention import PruneReport, prune
    from .store.transfer import ImportReport, export_lines, import_lines
    from .watch.subscriptions import Subscription

__all__ = [
    "Adapter",
    "AnswerGiven",
    "ApprovalAnswer",
    "ApprovalError",
    "ApprovalRequest",
    "Approver",
    "Block",
    "Cancel",
    "EventError",
    "GateAnswer",
    "ImportReport",
    "Instruction",
    "KillOutcome",
    "KillSwitch",
    "Launch",
    "LaunchOptions",
    "MemoryStore",
    "Owner",
    "PolicyError",
    "PolicyReport",
    "PolicyViolationError",
    "ProctorError",
    "Provider",
    "ProviderError",
    "ProviderUnavailableError",
    "PruneReport",
    "Publisher",
    "Redaction",
    "RunFilter",
    "RunHandle",
    "RunInfo",
    "RunResult",
    "Rung",
    "SessionInfo",
    "StartsBlockedError",
    "Statistics",
    "Store",
    "StoreError",
    "StoreSize",
    "StoredApproval",
    "Subscription",
    "Supervisor",
    "UnknownSessionError",
    "UsageError",
    "all_runs",
    "answer",
    "cancel_for_approval",
    "create_run",
    "execute_run",
    "export_lines",
    "import_lines",
    "pending",
    "prune",
    "run_once",
    "run_once_sync",
    "withdraw_created",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "api.active_runs": "Statistics",
        "api.once": "cancel_for_approval create_run execute_run run_once",
        "control.approvals": "answer pending",
        "control.kill_switch": "KillOutcome KillSwitch",
        "control.reaping": "withdraw_created",
        "errors": """
            ApprovalError EventError PolicyError PolicyViolationError ProctorError ProviderError
            ProviderUnavailableError StartsBlockedError StoreError UnknownSessionError UsageError
        """,
        "ports.facts": "ApprovalAnswer ApprovalRequest Owner RunFilter RunInfo SessionInfo StoredApproval StoreSize",
        "api.handle": "RunHandle",
        "machine.boundary.result": "PolicyReport RunResult",
        "ports.orders": "AnswerGiven Block Cancel Instruction",
        "ports.adapters": "Adapter Approver GateAnswer Launch LaunchOptions Provider Publisher Rung Store",
        "redaction": "Redaction",
        "store.retention": "PruneReport prune",
        "store.memory.store": "MemoryStore",
        "store.paging": "all_runs",
        "api.supervisor": "Supervisor",
        "api.sync": "run_once_sync",
        "store.transfer": "ImportReport export_lines import_lines",
        "watch.subscriptions": "Subscription",
    },
)


ROOMS = (
    "testing",  # what tests and authors of adapters and stores use
    "api",  # what callers use: one run, many runs, a run in hand
    "control",  # what people and other processes ask of runs
    "watch",  # who watches runs
    "launch",  # from a request to a run that has started
    "run",  # the shell around one machine
    "machine",  # the machine of one run
    "store",  # how records are kept
    "arguments",  # what callers pass, checked
    "log",  # where logs go
    "redaction",  # secrets taken out of what is recorded and shown
    "lazily",  # packages whose names are imported when they are used
    "ports",  # where the world comes in: adapters, stores, approvers, publishers
    "errors",  # what can go wrong
)
"""Top first: each imports only those below it."""
