"""What a monitor answers: decisions, visible tools, the report at the end."""

ROOMS = (
    "report",  # how each rule ended
    "narrowing",  # which tools could be called next
    "decisions",  # from what the rules found about a call to one decision, and the steps that explain it
)
