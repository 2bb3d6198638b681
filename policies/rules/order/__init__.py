"""Rules about what comes before, after, or at all."""

ROOMS = (
    "after",  # `after` and `eventually`
    "never_after",  # `never_after` and `forbids_after`
    "require",  # `require`
    "sequence",  # `sequence` and `forbidden_sequence`
    "before",  # `before` and `immediately_before`
)
