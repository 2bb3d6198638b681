"""What each program runs besides itself."""

ROOMS = (
    "table",  # every program known to run others, and how it is read
    "listed",  # those that run nothing
    "options",  # which options mean the same, and which take a value
    "git",  # its verbs
    "carrying",  # options that carry a command
    "interpreters",  # files, modules, and code that nobody reads
    "code",  # awk's and sed's
    "wrappers",  # where the command among a program's words begins
)
