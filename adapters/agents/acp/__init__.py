"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output."""

ROOMS = ("adapter", "probe", "session", "connection", "translation")
"""Top first: each imports only those below it."""
