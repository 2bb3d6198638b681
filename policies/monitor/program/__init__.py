"""A stack as machines, indexed by the tools they name."""

ROOMS = (
    "build",  # a stack as machines, indexed by the tools they name
    "steps",  # what calls do to one session: the states of its rules, and visits bound to them
    "index",  # compiled rules, and what calls of a tool mean to them
)
