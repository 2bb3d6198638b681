"""Other spellings of policies in use, rewritten as this one."""

ROOMS = (
    "spellings",  # other spellings on the tree, rewritten; each node keeps its place in the text
    "contracts",  # contracts keyed by their tool, in the other spelling, to `precondition` and `forbids_after` rules
    "nets",  # nets with camelCase keys and a `toolMapper`
    "durations",  # limits of time written with a unit
    "rewriting",  # what the rewriters of other spellings share
)
