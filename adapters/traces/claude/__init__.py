"""Claude Code session logs."""

ROOMS = (
    "log",  # Claude Code session logs
    "files",  # which files make up one Claude Code session
    "log_lines",  # the lines of a Claude Code session log
)
"""Top first: each imports only those below it."""
