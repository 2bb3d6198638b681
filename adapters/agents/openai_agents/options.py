"""A policy as options of a run: of its limits the SDK knows that of turns."""

from __future__ import annotations

from typing import Any, Final

from proctor.policies.policy import Policy
from proctor.policies.stack.limits import effective_limits
from proctor.supervisor.ports import LaunchOptions

from ...kit.launch_options import policy_parts

COMPILES: Final = ("max_turns",)


def compile_options(policy: Policy) -> LaunchOptions:
    """The lowest `max_turns` that cancels a run."""
    entries = [entry for entry in effective_limits(policy) if entry.name == "max_turns"]
    exact = [entry for entry in entries if entry.action == "cancel" and entry.limit.scope == "run"]
    options: dict[str, Any] = {}
    if exact:
        options["max_turns"] = min(int(entry.limit.max) for entry in exact)
    held = {"max_turns"} if exact and len(exact) == len(entries) else set()
    parts = policy_parts(policy)
    return LaunchOptions(
        options=options,
        expressed=tuple(part for part in parts if part in held),
        unexpressed=tuple(part for part in parts if part not in held),
    )
