"""Code of others, called so that it harms nothing but itself."""

ROOMS = (
    "questions",  # what the machine of a run asks others
    "callouts",  # checks and approvers, asked
    "stored",  # whether a store gave back what it was given
    "agents",  # what an adapter says of itself
    "apart",  # code of others, in a task that may be left behind
    "isolation",  # code of others, called so that its own cancels end only it
    "lineage",  # which run the code of an agent works for
)
