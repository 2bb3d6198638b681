"""Command lines as pure data: what a line would run, found without running it.

What is not positively understood is dynamic: of the grammar (`parser`, `lexer`), of the shell's builtins and
variables, and of the programs that run others.
"""

ROOMS = (
    "parser",
    "lexer",
    "programs",
    "program_options",
    "git",
    "interpreters",
    "wrappers",
    "carrying",
    "builtins",
    "words",
)
"""Top first: each imports only those below it."""
