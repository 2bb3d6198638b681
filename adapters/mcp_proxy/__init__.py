"""A policy-enforcing proxy before any MCP server.

Importing this package needs no MCP library; using it needs `proctor[mcp]`. The command is `proctor mcp`.
"""

ROOMS = (
    "serving",  # a run from its options
    "adapter",  # McpProxyAdapter
    "session",  # one run
    "downstream",  # where agents connect
    "relay",  # one connection
    "protocol",  # what the protocol lets a client say
    "pending",  # what a client has asked for and waits for
    "tool_list",  # which tools a client was shown
    "names",  # what a tool is called in a policy; annotations
    "upstream",  # where the server is
    "visibility",  # which tools could be called now
    "messages",  # messages, and what the proxy answers itself
)
"""Top first: each imports only those below it."""
