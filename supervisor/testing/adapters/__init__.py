"""The conformance suite of adapters."""

ROOMS = (
    "conformance",  # all of them: the suite to run against an Adapter
    "cancelling",  # tests of ending an agent, whatever it is doing
    "compiling",  # tests of policies as launch options
    "crashing",  # tests of a client that is killed, or writes something that is not a message
    "gating",  # tests of order, completeness, the gate before the effect
    "refusing",  # tests of refusal, pairing, another input
    "showing",  # tests of usage, resuming, narrowing
    "supervising",  # tests of one policy over every adapter
    "checks",  # what the tests of the Adapter port share
    "driving",  # runs an adapter by hand
    "evidence",  # what was seen of an adapter, beside what it declares
)
