"""The commands, a file each."""

ROOMS = (
    "adapters",  # `adapters`
    "approvals",  # `approvals`, `approve` and `deny`
    "audit",  # `audit head` and `audit verify`
    "check",  # `check`
    "demo",  # `demo`
    "diff",  # `diff`
    "eval",  # `eval`
    "explain",  # `explain`
    "graph",  # `graph`
    "init",  # `init`
    "hook",  # `proctor hook`
    "kill",  # `kill`
    "mcp",  # `proctor mcp`
    "migrate",  # `migrate` and `schema`
    "narrow",  # `narrow`
    "reap",  # `reap`
    "run",  # `run`
    "runs",  # `runs`
    "serve",  # `serve`
    "show",  # `show`
    "tail",  # `tail`
    "test",  # `test`
)
"""Top first: each imports only those below it."""
