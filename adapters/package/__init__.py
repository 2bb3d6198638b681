"""Supervises runs of AI agents: judges stacked policies on every event, gates tool calls, cancels once.

This is the package `proctor` itself: the names of the README's first page, looked up when they are used. Everything
else is in `proctor.policies`, `proctor.supervisor` and `proctor.adapters`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.adapters import ScriptedAdapter
    from proctor.policies import (
        Allow,
        Deny,
        Limits,
        Policy,
        PolicyError,
        PolicyViolationError,
        ProctorError,
        RunContext,
        load_policies,
        parse_policies,
        preflight,
    )
    from proctor.supervisor import (
        ApprovalAnswer,
        ApprovalRequest,
        RunResult,
        Supervisor,
        execute_run,
        run_once,
        run_once_sync,
    )

__version__ = "0.1.0"

_NAMES = {
    "adapters": ("ScriptedAdapter",),
    "policies": (
        "Allow",
        "Deny",
        "Limits",
        "Policy",
        "PolicyError",
        "PolicyViolationError",
        "ProctorError",
        "RunContext",
        "load_policies",
        "parse_policies",
        "preflight",
    ),
    "supervisor": (
        "ApprovalAnswer",
        "ApprovalRequest",
        "RunResult",
        "Supervisor",
        "execute_run",
        "run_once",
        "run_once_sync",
    ),
}
_FOLDERS = {name: folder for folder, names in _NAMES.items() for name in names}

__all__ = [
    "Allow",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Deny",
    "Limits",
    "Policy",
    "PolicyError",
    "PolicyViolationError",
    "ProctorError",
    "RunContext",
    "RunResult",
    "ScriptedAdapter",
    "Supervisor",
    "__version__",
    "execute_run",
    "load_policies",
    "parse_policies",
    "preflight",
    "run_once",
    "run_once_sync",
]


def __getattr__(name: str) -> Any:
    folder = _FOLDERS.get(name)
    if folder is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f"proctor.{folder}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FOLDERS})


ROOMS = ("__main__",)
"""`python -m proctor` is `proctor`."""
