"""ShellAdapter: command lines as runs."""

from .adapter import ShellAdapter

__all__ = ["ShellAdapter"]

ROOMS = (
    "adapter",  # ShellAdapter: command lines as runs
    "agent",  # judges and runs one command line
)
"""Top first: each imports only those below it."""
