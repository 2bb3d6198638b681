"""What goes into the machine, and what it hands out."""

ROOMS = (
    "inputs",  # what happened
    "commands",  # what the machine wants done
    "judge",  # what a run needs of the policies
    "result",  # how a run ended, for its caller
)
