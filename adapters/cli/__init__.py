"""The command line: `proctor`.

One file a command (or a few that belong together), imported when it is used. To add one: a click
command in a file of `commands/`, and its line in `app`.
"""

import atexit
import gc
import os
import signal
from contextlib import suppress

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """The entry point. A Ctrl-C while the command is still read in ends the program at once: nothing has begun."""
    if arguments is None:  # else the process is the caller's
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, leave)
        # What a short command reads in stays, and what is left goes with the process: no fifth of its time for that.
        gc.set_threshold(50_000, 20, 20)
        atexit.register(gc.freeze)
    from .app import main as run

    run(arguments)


def leave(*_: object) -> None:
    """End the program as Ctrl-C does, without an exception, which would break a module that is half read in."""
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(3)


ROOMS = ("app", "commands", "board_view", "live", "persons", "exits", "output", "options")
"""Top first: each imports only those below it."""
