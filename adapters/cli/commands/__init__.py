"""The commands, a file each."""

ROOMS = (
    "watch",  # `watch`
    "adapters",  # `adapters`
    "approvals",  # `approve` and `deny`
    "audit",  # `audit head` and `audit verify`
    "check",  # `check`
    "demo",  # `demo`
    "diff",  # `diff`
    "eval",  # `eval`
    "explain",  # `explain`
    "graph",  # `graph`
    "inbox",  # `approvals`
    "init",  # `init`
    "hook",  # `proctor hook`
    "kill",  # `kill`
    "mcp",  # `proctor mcp`
    "migrate",  # `migrate` and `schema`
    "narrow",  # `narrow`
    "prune",  # `prune`
    "reap",  # `reap`
    "run",  # `run`
    "runs",  # `runs`
    "serve",  # `serve`
    "show",  # `show`
    "store",  # `store`
    "tail",  # `tail`
    "test",  # `test`
    "transfer",  # `export` and `import`
)
"""Top first: each imports only those below it."""
