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
    "__main__",  # `python -m proctor.adapters.cli` is `proctor`
    "app",  # the commands by name, and `main`
    "commands",  # the commands, a file each
    "terminal",  # what the command line shows on a terminal, and what it asks there
    "common",  # options that several commands have
    "ending_signals",  # signals that end a run
    "exits",  # errors to exit codes and one message
    "inputs",  # policies, contexts and traces named on the command line
    "moments",  # moments as people type them, times as they read them
    "output_file",  # `-o FILE`
    "own_tree",  # who asks: a person, or a supervised run
    "store_place",  # where the store is
    "problems",  # problems in a policy text, with the line they are in
    "run_lookup",  # runs in a store, found by what people type
)
"""Top first: each imports only those below it."""
