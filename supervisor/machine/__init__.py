"""The sans-I/O machine of one run: inputs in, commands out."""

ROOMS = (
    "machine",  # the machine of one run
    "ending",  # terminal events, and what the caller is owed
    "gate",  # the gate's side of the machine
    "held_calls",  # calls held for a person
    "approval_events",  # the records of an approval
    "inputs",  # what the machine of a run is told
    "provider_events",  # the provider's side of the machine
    "event_checks",  # what adapters hand over, checked
    "open_calls",  # calls that are not over
    "run_state",  # what the parts of the machine share
    "enforcement",  # what follows from a judgement, and its records
    "outbox",  # commands that wait for the record
    "commands",  # what the machine wants done
    "judge",  # what a run needs of the policies
    "result",  # how a run ended, for its caller
    "trust",  # what of a provider's stream is believed
)
"""Top first: each imports only those below it."""
