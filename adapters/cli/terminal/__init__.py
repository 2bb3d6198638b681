"""What the command line shows on a terminal, and what it asks there."""

ROOMS = (
    "board",  # the live board of `watch`
    "blocks",  # what blocks starts, in words and as data
    "prompt_approver",  # approvals asked for at the prompt
    "asking",  # who asks for a person, and why
    "latest",  # the latest events of a store, and those that come
    "live",  # events as they come, then how the run ended
    "events",  # one event as a line
    "output",  # text for people, JSON for programs
    "safe_console",  # a console that shows no text raw
    "wording",  # errors of the command line's parser in our words
)
"""Top first: each imports only those below it."""
