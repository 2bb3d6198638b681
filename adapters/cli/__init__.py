"""The command line: `proctor`.

One file a command (or a few that belong together), imported when it is used. To add one: a click
command in a file of `commands/`, and its line in `app`.
"""

import atexit
import gc
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """The entry point. A Ctrl-C that comes while it is still read in is told like a later one."""
    if arguments is None:  # else the process is the caller's
        # What a short command reads in stays, and what is left goes with the process: no fifth of its time for that.
        gc.set_threshold(50_000, 20, 20)
        atexit.register(gc.freeze)
    try:
        from .app import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(3)
    run(arguments)


ROOMS = ("app", "commands", "board_view", "live", "persons", "exits", "output", "options")
"""Top first: each imports only those below it."""
