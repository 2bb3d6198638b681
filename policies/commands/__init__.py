"""Command lines as pure data: what a line would run, found without running it. tree-sitter is loaded with `parse`."""

ROOMS = (
    "parse",  # a command line -> every simple command in it
    "wrappers",  # commands that run other commands
    "hazards",  # places where bash runs text that nobody can see in a line
    "words",  # a word of a command line -> its text, if that is known before it runs
)
"""Top first: each imports only those below it."""
