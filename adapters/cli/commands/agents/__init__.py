"""Commands that put agents under policies."""

ROOMS = (
    "adapters",  # `adapters`
    "demo",  # `demo`
    "hook",  # `proctor hook`
    "mcp",  # `proctor mcp`
    "run",  # `run`
)
"""Top first: each imports only those below it."""
