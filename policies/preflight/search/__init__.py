"""What a stack lets happen, searched on a finite view of it."""

ROOMS = (
    "net_search",  # what a net can do by itself, whatever is called
    "order_search",  # whether some order of calls lets a call through
    "order_judges",  # the clauses that a search for an order of calls follows
    "modelling",  # the models of rules
    "net_model",  # A net as a transition system over tuples
    "order_models",  # rules about order as small transition systems
    "reachable",  # tools that the clauses together never let through
    "needs",  # what each kind of call needs to have come before it, by every clause that no run can get round
    "net_needs",  # what a net asks of each kind of call
    "derivation",  # the least fixed point of needs
)
"""Top first: each imports only those below it."""
