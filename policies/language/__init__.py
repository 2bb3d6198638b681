"""The parts rules are written in: values, regular expressions, paths, conditions, tool names."""

ROOMS = (
    "selectors",  # which calls a rule speaks of
    "tools",  # the tools that a rule speaks of, as they are written
    "explaining",  # which condition was met or missed by which value
    "naming",  # what a call goes by
    "predicates",  # the predicate each condition is compiled to
    "wording",  # conditions in words, for people who ask why a rule objects
    "command_lines",  # which commands a command line would run, and whether a policy names them
    "within",  # whether a path is inside a directory
    "facts",  # what a condition may look at besides its document
    "conditions",  # conditions on JSON, as they are written
    "operands",  # operands of conditions
    "operators",  # the operators of conditions
    "record",  # what every written record shares, and the types of its fields
)
