"""The parts rules are written in: conditions, and selectors of tools and their inputs."""

ROOMS = ("selectors", "predicates", "shell_commands", "facts", "conditions", "operators")
"""Top first: each imports only those below it."""
