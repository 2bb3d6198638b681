"""Several policies merged left to right, and their clauses resolved once."""

ROOMS = (
    "clauses",  # the clauses of a stack, resolved once for compiling, preflight and drawing
    "ids",  # the name each rule of a stack is reported under
    "merge",  # several policies as one stack
    "locks",  # what policies say in vain because another one is locked
    "budgets",  # the budgets that hold
    "limits",  # the limits that hold
    "actions",  # what a clause does to a call that breaks it
    "price_tables",  # what tokens cost, as the policies say
)
