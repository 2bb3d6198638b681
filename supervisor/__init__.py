"""One owner for each run of an agent: it evaluates every event, holds calls at the gate, and cancels once.

The names below are looked up when they are used: a program that only needs the errors or the records of a store
starts without the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.policies.errors import EventError, PolicyError, PolicyViolationError, ProctorError

    from .api.active_runs import RunHandle, Statistics
    from .api.run_once import cancel_for_approval, create_run, execute_run, run_once, run_once_sync
    from .api.supervisor import Supervisor
    from .arguments import RecordOptions, RunOptions, StartOptions
    from .control.approval_inbox import answer, pending
    from .control.kill_switch import KillOutcome, KillSwitch
    from .control.ownership import withdraw_created
    from .errors import (
        ApprovalError,
        NotInstalledError,
        OwnerLostError,
        ProviderError,
        ProviderUnavailableError,
        StartsBlockedError,
        StoreError,
        UnknownSessionError,
        UsageError,
    )
    from .machine.interface import PolicyReport, RunResult
    from .ports.adapter import Adapter, Approver, CancelStep, GateAnswer, Launch, LaunchOptions, Provider, Publisher
    from .ports.store import Store, all_runs
    from .ports.stored_types import (
        AnswerGiven,
        ApprovalAnswer,
        ApprovalRequest,
        Block,
        Cancel,
        Command,
        Owner,
        RunFilter,
        RunInfo,
        SessionInfo,
        StoredApproval,
        StoreSize,
    )
    from .redaction import Redaction
    from .store.maintenance import ImportReport, PruneReport, export_lines, import_lines, prune
    from .store.memory_store import MemoryStore
    from .watch.subscriptions import Subscription

__all__ = ["Adapter", "AnswerGiven", "ApprovalAnswer", "ApprovalError", "ApprovalRequest", "Approver", "Block"]
__all__ += ["Cancel", "CancelStep", "Command", "EventError", "GateAnswer", "ImportReport", "KillOutcome"]
__all__ += ["KillSwitch", "Launch", "LaunchOptions", "MemoryStore", "NotInstalledError", "Owner", "OwnerLostError"]
__all__ += ["PolicyError", "PolicyReport", "PolicyViolationError", "ProctorError", "Provider", "ProviderError"]
__all__ += ["ProviderUnavailableError", "PruneReport", "Publisher", "RecordOptions", "Redaction", "RunFilter"]
__all__ += ["RunHandle", "RunInfo", "RunOptions", "RunResult", "SessionInfo", "StartOptions", "StartsBlockedError"]
__all__ += ["Statistics", "Store", "StoreError", "StoreSize", "StoredApproval", "Subscription", "Supervisor"]
__all__ += ["UnknownSessionError", "UsageError", "all_runs", "answer", "cancel_for_approval", "create_run"]
__all__ += ["execute_run", "export_lines", "import_lines", "pending", "prune", "run_once", "run_once_sync"]
__all__ += ["withdraw_created"]


def lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, by its `__name__`; `names` are its public names, with blanks
    between them, by the module below it that has them.
    """
    module_of = {name: module for module, given in names.items() for name in given.split()}

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module `{package}` has no attribute `{name}`")
        return getattr(importlib.import_module(f".{module}", package), name)

    def names_of() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *module_of})

    return get, names_of


__getattr__, __dir__ = lazily(
    __name__,
    {
        "api.active_runs": "RunHandle Statistics",
        "api.run_once": "cancel_for_approval create_run execute_run run_once run_once_sync",
        "api.supervisor": "Supervisor",
        "control.approval_inbox": "answer pending",
        "control.kill_switch": "KillOutcome KillSwitch",
        "control.ownership": "withdraw_created",
        "errors": """
            ApprovalError EventError NotInstalledError OwnerLostError PolicyError PolicyViolationError ProctorError
            ProviderError ProviderUnavailableError StartsBlockedError StoreError UnknownSessionError UsageError
        """,
        "arguments": "RecordOptions RunOptions StartOptions",
        "machine.interface": "PolicyReport RunResult",
        "ports.adapter": """
            Adapter Approver GateAnswer Launch LaunchOptions Provider Publisher CancelStep
        """,
        "ports.store": "Store all_runs",
        "ports.stored_types": """
            AnswerGiven ApprovalAnswer ApprovalRequest Block Cancel Command Owner RunFilter RunInfo
            SessionInfo StoreSize StoredApproval
        """,
        "redaction": "Redaction",
        "store.maintenance": "ImportReport PruneReport export_lines import_lines prune",
        "store.memory_store": "MemoryStore",
        "watch.subscriptions": "Subscription",
    },
)

ROOMS = (
    "testing",
    "api",
    "control",
    "launch",
    "watch",
    "run",
    "log",
    "machine",
    "store",
    "arguments",
    "ports",
    "redaction",
    "secret_patterns",
    "errors",
)
"""Top first: each imports only those below it."""
