"""Command lines as pure data: what a line would run, found without running it.

Everything that is not positively understood is dynamic: grammar (`parser`, `lexer`), the shell's builtins and
variables, and programs that run others.
"""

ROOMS = (
    "parser",
    "lexer",
    "programs",
    "git",
    "program_options",
    "interpreters",
    "wrappers",
    "carrying",
    "builtins",
    "words",
)
"""Top first: each imports only those below it."""
