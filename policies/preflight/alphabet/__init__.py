"""The finite classes of calls that preflight tells apart."""

ROOMS = (
    "call_classes",  # kinds of calls: a name, and what is known of the input
    "names",  # all tool names a policy can tell apart, as a finite set
    "automata",  # which sets of globs some name matches at once
)
