"""The commands, a file each."""

ROOMS = (
    "runs",  # stored and live runs: `explain`, `runs`, `serve`, `show`, `tail`, `watch`
    "control",  # people's word on runs: `approvals`, `approve`, `budgets`, `deny`, `kill`, `reap`
    "record",  # the record: `audit`, `export`, `import`, `prune`, `store`
    "policies",  # policy files: `check`, `graph`, `init`, `migrate`, `schema`, `test`
    "agents",  # agents under policies: `adapters`, `demo`, `hook`, `mcp`, `run`
    "sessions",  # recorded sessions: `diff`, `eval`, `narrow`
)
"""Top first: each imports only those below it."""
