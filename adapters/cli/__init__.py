"""The command line: `proctor`.

One file a command (or a few that belong together), imported when it is used. To add one: a file with a click
command, and one line in `app.COMMANDS`. Rows, each importing only those above it:

    exits           errors to exit codes and one message
    wording         errors of the command line's parser in our words
    problems        problems in a policy text, with the line they are in
    output          text for people, JSON for programs
    places          where the store is
    inputs          policies, contexts and traces named on the command line
    events          one event as a line
    live            events as they come, then how the run ended
    asking          approvals asked at the prompt
    folding         recorded runs judged once more
    common          options that several commands have
    check, migrating, evaluating, comparing, narrowing, drawing, explaining, demo, running, reading,
    answering, killing, proxying, hooking, describing
                    the commands
    app             the commands by name, and `main`
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
