"""One file a family of findings, named for the defect it finds."""

ROOMS = (
    "adapter",  # calls that the adapter does not hold
    "allow_lists",  # allow lists that admit nothing, and entries of them that are denied
    "evasions",  # rules that a call in between evades
    "surprises",  # rules that hold less than they seem to
    "limits",  # limits and budgets of zero, costs without a price, and attempts to loosen what is locked
    "never_satisfied",  # rules that want a tool called which can never be called
    "never_callable",  # tools that no clause denies and that the clauses together never let through
    "missing_context",  # fields of the run's context that a `when` asks for and nobody gave
    "nets",  # nets with transitions that never fire, that grow without bound, or that hold nothing back
    "obligations",  # demands that can be met one by one and not in one run
    "order",  # tools that need nothing impossible and still fit in no order of calls
    "quotas",  # calls that must come more often than they may
    "unknown_names",  # names of tools, and of their inputs, that the agent does not have
    "odd_names",  # names that no tool has
    "shadowing",  # rules that another one makes idle
)
