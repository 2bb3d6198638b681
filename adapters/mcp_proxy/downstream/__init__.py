"""Where agents connect."""

ROOMS = (
    "http",  # agents over streamable HTTP
    "stdio",  # the client on this process's pipes
    "connections",  # where agents connect
)
"""Top first: each imports only those below it."""
