"""The parts rules are written in: values, regular expressions, paths, conditions, tool names."""

ROOMS = ("selectors", "predicates", "shell_commands", "facts", "conditions", "operators")
"""Top first: each imports only those below it."""
