"""The shell around one machine: it does the I/O of a run."""

ROOMS = ("actor", "recovery", "callbacks", "journal", "provider_session", "services", "tasks")
"""Top first: each imports only those below it."""
