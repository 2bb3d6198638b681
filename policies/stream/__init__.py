"""What is judged: events, calls, and their codec."""

ROOMS = (
    "codec",  # events as JSON: one decoder and one encoder for the whole program, made once
    "marks",  # a few bytes by which a call that is over is known again
    "calls",  # what a proposal is, what is known of the run around it, and what a judgement looks like
    "tools",  # a client's tools, and what their acts and inputs are called everywhere
    "events",  # the event stream of a session: every type of event
    "sessions",  # events of a session as a whole
    "outcomes",  # events of violations, approvals, errors and ends
    "acts",  # events of messages, responses, calls and usage
    "event",  # what every event has
)
