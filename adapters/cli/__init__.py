"""The command line: `proctor`.

One file a command (or a few that belong together), imported when it is used. To add one: a file with a click
"""

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """The entry point. A Ctrl-C that comes while it is still read in is told like a later one."""
    try:
        from .app import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(3)
    run(arguments)


ROOMS = (
    "app",
    "commands",
    "board_view",
    "live",
    "persons",
    "exits",
    "output",
    "options",
)
"""Top first: each imports only those below it."""
