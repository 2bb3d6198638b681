"""What a stack lets happen, searched on a finite view of it."""

ROOMS = (
    "growth",  # what a net can do by itself: which transitions fire, and whether its tokens are bounded
    "product",  # whether some order of calls lets a call through, clauses taken together
    "saturation",  # which calls can ever be let through, each clause by itself, and why the others cannot
    "system",  # one clause as a transition system: its own machine, and what its slots mean
    "graph",  # a machine as a finite graph: what each call does to it
    "hypothetical",  # a call of which only the slots are known that it meets
)
