"""Code of others, called so that it harms nothing but itself."""

ROOMS = (
    "questions",  # what the machine of a run asks others
    "reserving",  # the store, asked about shared budgets
    "callouts",  # checks and approvers, asked
    "stored",  # whether a store gave back what it was given
    "apart",  # code of others that may be left behind
    "isolation",  # code of others, whose cancels end only itself
)
"""Top first: each imports only those below it."""
