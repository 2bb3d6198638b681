"""Where agents connect."""

ROOMS = (
    "http",  # agents over streamable HTTP
    "connections",  # where agents connect
    "stdio",  # the client on this process's pipes
)
"""Top first: each imports only those below it."""
