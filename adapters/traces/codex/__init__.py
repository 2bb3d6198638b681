"""Codex rollouts."""

ROOMS = (
    "rollout",  # Codex rollouts
    "patches",  # what a patch of `apply_patch` touches
    "outputs",  # what the Codex client writes around a tool's output
)
"""Top first: each imports only those below it."""
