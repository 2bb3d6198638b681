"""Several policies merged left to right, and their clauses resolved once."""

ROOMS = (
    "wording",  # what a clause says, in a few words
    "clauses",  # A stack as preflight looks at it
    "ids",  # the name each rule of a stack is reported under
    "check",  # the stack a policy stands for, known to be sound
    "merge",  # several policies as one stack
)
"""Top first: each imports only those below it."""
