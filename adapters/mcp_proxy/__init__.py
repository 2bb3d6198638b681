"""A proxy in front of any MCP server that enforces policies.

Importing this package needs no MCP library; using it needs the extra `mcp`. The command is `proctor mcp`.
"""

ROOMS = ("adapter", "downstream", "relay", "tools", "messages")
"""Top first: each imports only those below it."""
