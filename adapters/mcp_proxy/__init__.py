"""A policy-enforcing proxy before any MCP server.

Importing this package needs no MCP library; using it needs the extra `mcp`. The command is `proctor mcp`.
"""

ROOMS = (
    "adapter",
    "downstream",
    "relay",
    "messages",
    "tools",
)
"""Top first: each imports only those below it."""
