"""Supervises runs of AI agents: evaluates stacked policies on every event, gates tool calls, cancels once.

This is the package `proctor` itself: the names of the README's first page, looked up when they are used. Everything
else is in `proctor.policies`, `proctor.supervisor` and `proctor.adapters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

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


__getattr__, __dir__ = lazily(
    "proctor",
    {
        "adapters": "ScriptedAdapter",
        "policies": """
            Allow Deny Limits Policy PolicyError PolicyViolationError ProctorError RunContext load_policies
            parse_policies preflight
        """,
        "supervisor": "ApprovalAnswer ApprovalRequest RunResult Supervisor execute_run run_once run_once_sync",
    },
)


ROOMS = ("__main__",)
"""`python -m proctor` is `proctor`."""
