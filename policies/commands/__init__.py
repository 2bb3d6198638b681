"""Command lines as pure data: what a line would run, found without running it.

What is not positively understood is dynamic: of the grammar (`grammar`, `scanner`), of the shell's builtins and
variables, and of the programs that run others.
"""

ROOMS = (
    "parse",  # a command line -> every simple command in it
    "grammar",  # lists, pipelines, compound commands
    "simple",  # assignments and words of a simple command
    "redirections",  # and here-documents
    "conditional",  # bash's [[ ]]
    "sink",  # what takes in the parts of a line
    "scanner",  # characters -> words, with their expansions
    "builtins",  # which uses of the shell's builtins are understood
    "programs",  # what each program runs besides itself
    "variables",  # those that change what a name runs
    "cursor",  # a place in a text
    "words",  # a word -> its text, or what it can become
)
