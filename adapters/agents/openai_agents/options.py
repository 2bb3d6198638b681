"""A policy as options of a run: of its limits the SDK knows that of turns."""

from __future__ import annotations

from typing import Final

from proctor.policies.policy import Policy
from proctor.supervisor.ports.adapters import LaunchOptions

from ...kit.launch_options import options_for, run_limits

COMPILES: Final = ("max_turns",)


def compile_options(policy: Policy) -> LaunchOptions:
    """The lowest `max_turns` that cancels a run."""
    lowest, held = run_limits(policy)
    options = {name: int(lowest[name]) for name in COMPILES if name in lowest}
    return options_for(policy, options, held.intersection(COMPILES))
