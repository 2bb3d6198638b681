"""Petri nets over tools: how they are written, in full and in one line, and how they are judged."""

ROOMS = (
    "machine",  # A Petri net as a rule
    "status",  # where a net stands, in words
    "shorthand",  # nets in one line
    "written",  # A net as it is written, and what can be wrong with one
)
