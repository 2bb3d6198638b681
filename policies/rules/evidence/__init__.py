"""Rules that ask what a call stands on: checks, preconditions, where values come from."""

ROOMS = (
    "check",  # `check`
    "check_context",  # what a `check` is told beside the call, and how it may answer
    "provenance",  # `provenance`
    "precondition",  # `precondition`
    "prior",  # the evidence behind a `prior` requirement
    "requirement",  # what a precondition asks for
)
