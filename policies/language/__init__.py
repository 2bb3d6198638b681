"""The parts rules are written in: values, regular expressions, paths, conditions, tool names."""

ROOMS = (
    "selectors",
    "predicates",
    "shell_commands",
    "facts",
    "conditions",
    "seen_values",
    "operators",
)
"""Top first: each imports only those below it."""
