"""Values and how they compare: equality, paths, regular expressions, globs, canonical JSON."""

ROOMS = (
    "amounts",
    "foreign_code",
    "globs",
    "automata",
    "paths",
    "json_values",
    "regexes",
    "work_budget",
    "model_base",
)
"""Top first: each imports only those below it."""
